"""What changed in git's own folders, told in lines: it is never copied back, nor read as configuration."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox_agent.workspaces.manifest import Manifest, in_git
from sandbox_agent.workspaces.source import Scan

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class _Words:
    made: str
    removed: str
    hooks: str
    config: str
    commits: str


_INSIDE = _Words(
    made="a repository was made inside; it is not brought to your folder",
    removed="was removed inside; the original stays",
    hooks="hooks changed inside, not brought to your folder",
    config="git configuration changed inside, not brought to your folder",
    commits="commits or branches changed inside, only the files are brought to your folder",
)
_IN_PLACE = _Words(
    made="a repository was made",
    removed="was removed",
    hooks="hooks changed, and git on the host runs them",
    config="git configuration changed, and git on the host obeys it",
    commits="commits or branches changed",
)


@dataclass(frozen=True, slots=True)
class GitNotes:
    """`lines` for the person; `commits` are the git folders whose commits or branches changed, new ones among them."""

    lines: tuple[str, ...]
    commits: tuple[str, ...]


def git_notes(manifest: Manifest, scan: Scan, *, in_place: bool = False) -> GitNotes:
    """Lines about hooks, configuration, commits and whole repositories that came or went.

    Args:
        manifest: the folder at the start.
        scan: what the session made of it.
        in_place: the session worked on the person's folder itself.
    """
    now = scan.git
    words = _IN_PLACE if in_place else _INSIDE
    was = {path for path, entry in manifest.entries.items() if in_git(path) and entry.hidden is None}
    tops_before, tops_now = {_split(p)[0] for p in was}, {_split(p)[0] for p in now}
    lines = [f"{top}: {words.made}" for top in sorted(tops_now - tops_before)]
    lines += [f"{top}: {words.removed}" for top in sorted(tops_before - tops_now)]
    kept = tops_before & tops_now
    changed = sorted(
        path for path in was | now if _split(path)[0] in kept and _area(path) is not None and scan.git_differs(path)
    )
    hooks = [path for path in changed if _area(path) == "hooks"]
    config = [path for path in changed if _area(path) == "config"]
    commits = sorted({_split(path)[0] for path in changed if _area(path) == "commits"})
    lines += [
        f"{cause}: {_some(paths)}"
        for cause, paths in ((words.hooks, hooks), (words.config, config), (words.commits, commits))
        if paths
    ]
    return GitNotes(tuple(lines), tuple(sorted({*commits, *(tops_now - tops_before)})))


def _split(path: str) -> tuple[str, str]:
    """(the repository's folder with `.git`, or what some file system takes for that name, the path in it)."""
    parts = path.split("/")
    index = next((number for number, part in enumerate(parts) if in_git(part)), len(parts) - 1)
    return "/".join(parts[: index + 1]), "/".join(parts[index + 1 :])


def _area(path: str) -> str | None:
    inner = _split(path)[1]
    name = inner.rpartition("/")[2]
    if inner.startswith("hooks/") or "/hooks/" in inner:
        return "hooks"
    if inner == "" or name in ("config", "config.worktree", "attributes", "alternates", "gitdir", "commondir"):
        return "config"
    return "commits" if name in ("HEAD", "packed-refs") or "refs/" in inner else None


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:_SHOWN]) + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")
