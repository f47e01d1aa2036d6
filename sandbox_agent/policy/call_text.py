"""A call as people write it, `Bash(git push)`, `Read(~/.ssh/id)`, `mcp__server__tool`, as the request that is judged.

Used where no container is there to ask: paths are taken to lead to themselves, that is, no link is followed.
"""

from __future__ import annotations

import difflib
import posixpath
import re
from urllib.parse import urlsplit

from sandbox_agent.errors import ConfigError
from sandbox_agent.policy.paths import TOOLS_HOME
from sandbox_agent.policy.rules import FAMILIES
from sandbox_agent.policy.shell import analyse
from sandbox_agent.types import WORKSPACE_MOUNT, PathAccess, PermissionRequest, Subject

_FORM = re.compile(r"(?P<tool>[A-Za-z][A-Za-z0-9_-]*)(?:\((?P<inner>.*)\))?", re.DOTALL)
_READS = FAMILIES["Read"]
_EDITS = FAMILIES["Edit"]
_DIALOGUE = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "TodoWrite"})
_OTHERS = _DIALOGUE | {"Bash", "SendMessage", "Task", "TaskOutput", "TaskStop", "WebFetch", "WebSearch"}
_HARMLESS = _READS | _DIALOGUE | {"SendMessage", "Task", "TaskOutput", "TaskStop", "WebFetch"}


def parse_call(text: str, *, cwd: str = WORKSPACE_MOUNT, resolve: bool = True) -> PermissionRequest:
    """The request of a call.

    Args:
        text: `Tool`, or `Tool(what it is about)`: a command for Bash, a path for file tools, a URL or `domain:` for
            WebFetch, an agent's type for Task.
        cwd: where a command starts, and what relative paths are relative to; absolute in the container.
        resolve: take paths to lead to themselves; False leaves open where they lead, which few rules allow.

    Raises:
        ConfigError: it is nothing of the sort, or no tool is called so.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None or not match["tool"]:
        raise ConfigError(
            f"{_short(text)!r} is not a call: for a command write Bash(COMMAND), else Read(PATH) or a tool's name"
        )
    tool, inner = match["tool"], match["inner"]
    if tool not in _READS | _EDITS | _OTHERS and not tool.startswith("mcp__"):
        near = difflib.get_close_matches(tool, sorted(_READS | _EDITS | _OTHERS), n=1, cutoff=0.75)
        if near or inner is None:
            hint = f"did you mean {near[0]}?" if near else f"for a command write Bash({tool})"
            raise ConfigError(f"there is no tool {tool}; {hint}")
    if tool == "Bash" and inner is None:
        raise ConfigError("a Bash call has a command: write Bash(COMMAND)")
    return PermissionRequest(
        tool, _subject(tool, inner, cwd, resolve), "", read_only=tool in _HARMLESS, edits=tool in _EDITS
    )


def command_request(command: str, *, cwd: str = WORKSPACE_MOUNT, resolve: bool = True) -> PermissionRequest:
    """The request of a Bash call; the command is taken as it is."""
    paths = tuple(_led(access.path, access.write, resolve) for access in analyse(command).accesses(cwd))
    return PermissionRequest("Bash", Subject(command, paths=paths, command=command, cwd=cwd), input_sha256="")


def _subject(tool: str, inner: str | None, cwd: str, resolve: bool) -> Subject:
    if tool == "Bash":
        return command_request(inner or "", cwd=cwd, resolve=resolve).subject
    if tool == "ExitPlanMode":
        return Subject(tool, needs_person="Leaving plan mode needs a person's yes.")
    if inner is None:
        return Subject(tool, sends_out=tool == "WebFetch")
    if tool in _READS | _EDITS:
        path = inner.replace("~/", TOOLS_HOME + "/", 1) if inner.startswith("~/") else inner
        path = posixpath.normpath(posixpath.join(cwd, "/" + path.lstrip("/") if path.startswith("//") else path))
        return Subject(path, paths=(_led(path, tool in _EDITS, resolve),))
    if tool == "WebFetch":
        return Subject(inner, specifier=_domain(inner), sends_out=True)
    return Subject(inner, specifier=inner)


def _led(path: str, write: bool, resolve: bool) -> PathAccess:
    return PathAccess(path, write, resolved=path if resolve else None)


def _domain(inner: str) -> str:
    """WebFetch rules are about the host of a URL."""
    return inner if inner.startswith("domain:") else f"domain:{urlsplit(inner).hostname or inner}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:77] + "..."
