"""One quick pass over the person's folder: what is there (by stamps, nothing is hashed), and what must be hidden."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import ROOT_FOLDER_ID, Kind, Owner
from sandbox_agent.workspaces.entries import file_kind, link_digest, special
from sandbox_agent.workspaces.keys import CONTENT_RULE, is_private_key, is_public, worth_a_look
from sandbox_agent.workspaces.manifest import MASKED_BY, Entry, Manifest, in_git, stamp
from sandbox_agent.workspaces.masks import Masks
from sandbox_agent.workspaces.tree import Found, Tree

_LINKS_FOLLOWED = 20


@dataclass(slots=True)
class Survey:
    """`infos` has the status of every path; `manifest` the same as entries without digests, hidden ones as such.

    `hidden` has every path to hide with its rule, those below a hidden folder too; `foreign` are others' entries.
    """

    manifest: Manifest = field(default_factory=Manifest)
    infos: dict[str, os.stat_result] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)

    @property
    def covered(self) -> list[str]:
        """Hidden paths that are no folders."""
        return [path for path in self.hidden if self.manifest.entries[path].kind is not Kind.DIRECTORY]


def survey(tree: Tree, masks: Masks, *, uid: int, progress: Callable[[int], None] | None = None) -> Survey:
    """Look at everything once.

    Args:
        tree: the person's folder.
        masks: its patterns; without any, private keys are not looked for either.
        uid: whose folder it is, to tell what belongs to others.
        progress: see `Workspace.prepare`.

    Raises:
        WorkspaceError: the folder cannot be listed, or holds too many entries.
    """
    result = Survey()
    targets: dict[str, str] = {}

    def failed(path: str, error: OSError) -> None:
        if not path:
            raise WorkspaceError(f"{tree.root}: cannot be listed: {error.strerror}") from error

    for found in tree.walk(failed=failed):
        result.infos[found.path] = found.info
        if found.info.st_uid != uid:
            result.foreign.append(found.path)
        result.manifest.entries[found.path] = _entry(tree, found, targets)
        rule = _rule(tree, masks, found) if masks.patterns else None
        if rule is not None:
            result.hidden[found.path] = rule
        if progress is not None and len(result.infos) % 100 == 0:
            progress(len(result.infos))
    _spread(result, targets)
    for path, rule in result.hidden.items():
        kind = result.manifest.entries[path].kind
        result.manifest.entries[path] = Entry(kind, hidden=MASKED_BY + rule)
    result.manifest.finish()
    return result


def note_owners(found: Survey, owner: Owner, *, swap_root: bool = False) -> None:
    """Note in the manifest whom the entries belong to that are not the tools'.

    Args:
        found: what was seen.
        owner: who the tools run as.
        swap_root: whether the session sees root and `ROOT_FOLDER_ID` the other way round.
    """
    swap = {0: ROOT_FOLDER_ID, ROOT_FOLDER_ID: 0} if swap_root else {}
    for path, info in found.infos.items():
        ids = (swap.get(info.st_uid, info.st_uid), swap.get(info.st_gid, info.st_gid))
        entry = found.manifest.entries[path]
        if ids != (owner.uid, owner.gid) and entry.hidden is None:
            found.manifest.entries[path] = replace(entry, owner=ids)


def _entry(tree: Tree, found: Found, targets: dict[str, str]) -> Entry:
    kind = file_kind(found.info.st_mode)
    if kind is Kind.LINK:
        try:
            with tree.at(found.path) as place:
                text = place.readlink()
        except OSError as error:
            return Entry(kind, hidden=f"not readable ({error.strerror})")
        targets[found.path] = text
        return Entry(kind, link_digest(text), size_bytes=len(text), target=text)
    mode = found.info.st_mode & 0o777
    if kind is Kind.FILE:
        return Entry(kind, mode=mode, size_bytes=found.info.st_size, stamp=stamp(found.info))
    return Entry(kind, mode=mode, target=special(found.info) if kind is Kind.OTHER else None)


def _rule(tree: Tree, masks: Masks, found: Found) -> str | None:
    kind = file_kind(found.info.st_mode)
    rule = masks.rule_for(found.path, directory=kind is Kind.DIRECTORY)
    if kind is not Kind.FILE or (rule is None and (in_git(found.path) or not worth_a_look(found.path, found.info))):
        return rule
    try:
        with tree.at(found.path) as place:
            if rule is not None:
                return None if is_public(found.path, found.info, place) else rule
            return CONTENT_RULE if is_private_key(place) else None
    except OSError:
        return rule  # what cannot be read by us is hidden only where a pattern says so


def _spread(result: Survey, targets: dict[str, str]) -> None:
    """The same content under other names is hidden as well: hard links, and what a hidden link points to."""
    for path, why in list(result.hidden.items()):
        name, hops = path, 0
        while name in targets and hops < _LINKS_FOLLOWED:
            name, hops = os.path.normpath(os.path.join(os.path.dirname(name), targets[name])), hops + 1
        if name != path and name in result.infos and result.manifest.entries[name].kind is Kind.FILE:
            result.hidden.setdefault(name, why)
    linked = {
        (info.st_dev, info.st_ino): why
        for path, why in result.hidden.items()
        if (info := result.infos[path]).st_nlink > 1 and result.manifest.entries[path].kind is Kind.FILE
    }
    if linked:
        for path, info in result.infos.items():
            rule = linked.get((info.st_dev, info.st_ino))
            if rule is not None and result.manifest.entries[path].kind is Kind.FILE:
                result.hidden.setdefault(path, rule)
