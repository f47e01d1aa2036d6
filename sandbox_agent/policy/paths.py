"""Path patterns of rules: gitignore syntax with four anchors, judged on absolute paths in the container.

`//abs` starts at the root, `~/` at the tools' home, `/` and `./` and bare patterns at the workspace. A bare pattern
without a slash matches at any depth, as in a .gitignore file. Text only: nothing here looks at a file system.
"""

from __future__ import annotations

import fnmatch
import posixpath
import unicodedata
from dataclasses import dataclass

from pathspec import GitIgnoreSpec

from sandbox_agent.errors import PolicyError
from sandbox_agent.types import WORKSPACE_MOUNT

TOOLS_HOME = "/home/agent"
"""What `~` means in a container path; the same as in `ToolContext.container_path`."""

_UNGUESSABLE_CHILD = "\ue000"

PROTECTED = (
    ".git",
    ".config/git",
    ".config/sandbox-agent",
    ".vscode",
    ".idea",
    ".husky",
    ".cargo",
    ".devcontainer",
    ".yarn",
    ".mvn",
    ".claude",
    ".mcp.json",
    ".envrc",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".inputrc",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".gitconfig",
    ".gitmodules",
    ".gitattributes",
)
"""Names, at any depth, that later run code or change what git does. Never written without a person's answer."""

# "git~1" is what Windows calls `.git` besides.
_PROTECTED_SPEC = GitIgnoreSpec.from_lines(f"**/{name}" for name in (*PROTECTED, "git~1"))


@dataclass(frozen=True, slots=True)
class PathPattern:
    """One gitignore pattern below `base`, an absolute container folder."""

    text: str
    base: str
    spec: GitIgnoreSpec

    def matches(self, path: str) -> bool:
        """True if the pattern covers this absolute path or a folder it lies in."""
        relative = below(self.base, path)
        return bool(relative) and self.spec.match_file(relative or "")

    @property
    def workspace_line(self) -> str | None:
        """What this pattern covers of the workspace, as a gitignore line there; None if that is nothing."""
        if self.base == WORKSPACE_MOUNT:
            line = self.text.removeprefix(".") if self.text.startswith("./") else self.text
            return "/**" if line == "/" else line
        if self.base != "/":
            return None
        top, _, rest = self.text[2:].partition("/")
        if top == "**":
            return f"**/{rest or '*'}"
        return f"/{rest or '**'}" if fnmatch.fnmatchcase(WORKSPACE_MOUNT[1:], top or "*") else None

    def covers_tree(self, path: str) -> bool:
        """True if the pattern covers whatever may lie below this folder."""
        return self.matches(path.rstrip("/") + "/" + _UNGUESSABLE_CHILD)


def below(base: str, path: str) -> str | None:
    """`path` relative to `base`; "" for the same path, None for one that lies elsewhere."""
    root = base.rstrip("/")
    if path in (base, root):
        return ""
    return path[len(root) + 1 :] if path.startswith(root + "/") else None


def parse_path_pattern(text: str, *, location: str | None = None) -> PathPattern:
    """The pattern of a path rule.

    Raises:
        PolicyError: it is empty, negated (`!`), or a comment (`#`), or has `.` or `..` in it, which no path has that
            is judged.
    """
    if not text or text[0] in "!#":
        raise PolicyError(
            f"path pattern {text!r}: it must be a gitignore pattern that is not empty, negated or a comment",
            location=location,
        )
    if text.startswith("//"):
        base, pattern = "/", text[1:]
    elif text.startswith("~/"):
        base, pattern = TOOLS_HOME, text[1:]
    elif text.startswith("./"):
        base, pattern = WORKSPACE_MOUNT, text[1:]
    else:
        base, pattern = WORKSPACE_MOUNT, text
    if {".", ".."} & set(pattern.split("/")):
        raise PolicyError(
            f"path pattern {text!r}: paths are judged without . and .. in them, so it can never fit; write //path from "
            "the container's root, or /path from the workspace",
            location=location,
        )
    if pattern == "/":
        pattern = "/**"
    return PathPattern(text, base, GitIgnoreSpec.from_lines([pattern]))


def is_protected(path: str) -> bool:
    """True for a path that is, or lies in, something that later runs code (`.git`, dotfiles of shells, editors), by any
    spelling that some file system takes for its name."""
    relative = path.lstrip("/")
    return _PROTECTED_SPEC.match_file(relative) or _PROTECTED_SPEC.match_file(_loosely(relative))


def _loosely(path: str) -> str:
    """Without letter case, width, invisible characters, and what Windows drops at the end of a name."""
    wide = unicodedata.normalize("NFKC", path).casefold()
    seen = "".join(char for char in wide if unicodedata.category(char) != "Cf")
    return "/".join(part.partition(":")[0].rstrip(". ") or part for part in seen.split("/"))


def in_workspace(path: str) -> bool:
    """True for the workspace itself and everything below it, by spelling."""
    return below(WORKSPACE_MOUNT, posixpath.normpath(path)) is not None
