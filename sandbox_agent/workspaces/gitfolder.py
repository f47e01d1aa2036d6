"""What changed in git's own folders, told in lines: it is never copied back, nor read as configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.entries import examine
from sandbox_agent.workspaces.manifest import GIT_ALIASES, Manifest, in_git, stamp
from sandbox_agent.workspaces.tree import Found, Tree

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class _Words:
    made: str
    removed: str
    hooks: str
    config: str
    commits: str


_IN_COPY = _Words(
    made="a repository was made inside; it is not copied back",
    removed="was removed in the copy; the original stays",
    hooks="hooks changed in the copy, not copied back",
    config="git configuration changed in the copy, not copied back",
    commits="commits or branches changed in the copy, only the files are copied back",
)
_IN_PLACE = _Words(
    made="a repository was made",
    removed="was removed",
    hooks="hooks changed, and git on the host runs them",
    config="git configuration changed, and git on the host obeys it",
    commits="commits or branches changed",
)


def git_notes(manifest: Manifest, now: Mapping[str, Found], tree: Tree, *, in_place: bool = False) -> list[str]:
    """Lines about hooks, configuration, commits and whole repositories that came or went.

    Args:
        manifest: the folder at the start.
        now: what lies in git's folders in `tree`.
        tree: the session's copy, or the person's folder when `in_place`.
    """
    words = _IN_PLACE if in_place else _IN_COPY
    was = {path for path, entry in manifest.entries.items() if in_git(path) and entry.hidden is None}
    tops_before, tops_now = {_split(p)[0] for p in was}, {_split(p)[0] for p in now}
    lines = [f"{top}: {words.made}" for top in sorted(tops_now - tops_before)]
    lines += [f"{top}: {words.removed}" for top in sorted(tops_before - tops_now)]
    kept = tops_before & tops_now
    changed = sorted(
        path
        for path in was | now.keys()
        if _split(path)[0] in kept and _area(path) is not None and _differs(path, manifest, now.get(path), tree)
    )
    hooks = [path for path in changed if _area(path) == "hooks"]
    config = [path for path in changed if _area(path) == "config"]
    commits = sorted({_split(path)[0] for path in changed if _area(path) == "commits"})
    lines += [
        f"{cause}: {_some(paths)}"
        for cause, paths in ((words.hooks, hooks), (words.config, config), (words.commits, commits))
        if paths
    ]
    return lines


def _split(path: str) -> tuple[str, str]:
    """(the repository's folder with `.git`, the path in it)."""
    parts = path.split("/")
    index = next(number for number, part in enumerate(parts) if part.lower() in GIT_ALIASES)
    return "/".join(parts[: index + 1]), "/".join(parts[index + 1 :])


def _area(path: str) -> str | None:
    inner = _split(path)[1]
    name = inner.rpartition("/")[2]
    if inner.startswith("hooks/") or "/hooks/" in inner:
        return "hooks"
    if inner == "" or name in ("config", "config.worktree", "attributes", "alternates", "gitdir", "commondir"):
        return "config"
    return "commits" if name in ("HEAD", "packed-refs") or "refs/" in inner else None


def _differs(path: str, manifest: Manifest, found: Found | None, tree: Tree) -> bool:
    known = manifest.entries.get(path)
    if known is None or found is None:
        return True
    if known.kind is Kind.DIRECTORY or known.stamp == stamp(found.info):
        return False
    try:
        with tree.at(path) as place:
            return not known.same_as(examine(place))
    except OSError:
        return True


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:_SHOWN]) + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")
