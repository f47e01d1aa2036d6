"""One permission rule: `Tool`, `Tool(specifier)`, `mcp__server__*`, parsed once and compared with requests.

`Read(...)` speaks for Read, Grep and Glob and for files that commands read; `Edit(...)` for Edit, Write and
NotebookEdit and for files that commands write. A rule without specifier is the same as one that covers everything of
its tool.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.commands import CommandPattern, parse_command_pattern
from sandbox_agent.policy.paths import PathPattern, parse_path_pattern
from sandbox_agent.types import PathAccess, PermissionRequest, Verdict

FAMILIES = {
    "Read": frozenset({"Read", "Grep", "Glob"}),
    "Edit": frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"}),
}
"""Rule tool to the tools it speaks for."""

_OF_A_SERVER = ("ListMcpResources", "ReadMcpResource")
_KNOWN_TOOLS = (
    *("AskUserQuestion", "Bash", "Edit", "EnterPlanMode", "ExitPlanMode", "Glob", "Grep", "NotebookEdit", "Read"),
    *("ReportFindings", "Task", "TaskOutput", "TaskStop", "TodoWrite", "WebFetch", "Write"),
    *_OF_A_SERVER,
)
_WITH_SPECIFIER = frozenset({"Bash", "Task", "WebFetch", "WebSearch"}).union(_OF_A_SERVER, *FAMILIES.values())
"""No other tool's calls have anything that a specifier is compared with."""
_CALLED_ELSEWHERE = {
    **dict.fromkeys(("shell", "sh", "exec", "command", "run", "terminal"), "Bash"),
    **dict.fromkeys(("agent", "subagent"), "Task"),
    **dict.fromkeys(("ls", "list", "view"), "Read"),
    "fetch": "WebFetch",
}
"""What other agents call the tools that are here, in lower case."""
_DOMAIN = "domain:"
_FORM = re.compile(r"(?P<tool>[A-Za-z0-9_*-]+)(?:\((?P<specifier>.*)\))?", re.DOTALL)
_MCP_SERVER = re.compile(r"mcp__[A-Za-z0-9_-]+?__")


@dataclass(frozen=True, slots=True)
class Rule:
    """A parsed rule. `text` is the rule as written; `label` is how decisions name it."""

    text: str
    verdict: Verdict
    tool: str
    specifier: str | None = None
    command: CommandPattern | None = None
    path: PathPattern | None = None
    reason: str | None = None
    id: str | None = None
    location: str | None = None
    layer: str | None = field(default=None, compare=False)
    """Whose rule it is, as decisions name it."""

    @property
    def label(self) -> str:
        """The id where there is one, else the text."""
        return self.id or self.text

    @property
    def bare(self) -> bool:
        """True for a rule about the whole tool."""
        return self.specifier is None

    def names(self, tool: str) -> bool:
        """True if the rule speaks for the tool of this name."""
        if tool in FAMILIES.get(self.tool, ()):
            return True
        if tool == self.tool or (self._is_mcp_server and tool.startswith(self.tool + "__")):
            return True
        return "*" in self.tool and fnmatch.fnmatchcase(tool, self.tool)

    @property
    def _is_mcp_server(self) -> bool:
        return self.tool.startswith("mcp__") and "__" not in self.tool.removeprefix("mcp__")

    def is_about_files(self, *, write: bool) -> bool:
        """True if the rule is about reading files (or writing them), whichever tool does it."""
        return self.tool == ("Edit" if write else "Read")

    def touches(self, access: PathAccess) -> bool:
        """Deny and ask: the rule speaks about this access, by its spelling or by where it really leads."""
        if not self.is_about_files(write=access.write):
            return False
        pattern = self.path
        if pattern is None:
            return True
        places = {access.path, access.resolved or access.path}
        return any(pattern.matches(place) or (not access.write and pattern.covers_tree(place)) for place in places)

    def permits(self, access: PathAccess) -> bool:
        """Allow: the rule covers both the spelling and where it really leads; an unresolved path never."""
        if not self.is_about_files(write=access.write) or access.resolved is None:
            return False
        pattern = self.path
        if pattern is None:
            return True
        places = {access.path, access.resolved}
        return all(pattern.matches(place) or (not access.write and pattern.covers_tree(place)) for place in places)

    def restricts(self, request: PermissionRequest) -> bool:
        """Deny and ask, for tools other than Bash: the rule speaks against this request."""
        if any(self.touches(access) for access in request.subject.paths):
            return True
        if not self.names(request.tool):
            return False
        return self.bare or self._specifier_matches(request.subject.specifier)

    def grants(self, request: PermissionRequest) -> bool:
        """Allow, for requests that name no path and no command."""
        return self.names(request.tool) and (self.bare or self._specifier_matches(request.subject.specifier))

    def _specifier_matches(self, specifier: str | None) -> bool:
        if specifier is None or self.specifier is None or self.path is not None or self.command is not None:
            return False
        return fnmatch.fnmatchcase(specifier, self.specifier.replace("[", "[[]"))


def parse_rule(
    text: str,
    verdict: Verdict,
    *,
    reason: str | None = None,
    id: str | None = None,
    location: str | None = None,
) -> Rule:
    """A rule from its text.

    Raises:
        PolicyError: it is not `Tool` or `Tool(specifier)`, the tool is a misspelling of one that exists, or the
            specifier can never match.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise PolicyError(f"rule {text!r}: write Tool or Tool(specifier), such as Bash(git log:*)", location=location)
    tool, specifier = match["tool"], match["specifier"]
    _check_tool(text, tool, specifier, verdict, location)
    if specifier is not None:
        _check_specifier(text, tool, specifier, location)
    command = path = None
    if specifier is not None and tool == "Bash":
        command = parse_command_pattern(specifier, location=location)
    elif specifier is not None and tool in FAMILIES:
        path = parse_path_pattern(specifier, location=location)
    return Rule(text.strip(), verdict, tool, specifier, command, path, reason, id, location)


def _check_tool(text: str, tool: str, specifier: str | None, verdict: Verdict, location: str | None) -> None:
    if tool not in _KNOWN_TOOLS and "*" not in tool and not tool.startswith("mcp__"):
        near = _near(tool, _KNOWN_TOOLS)
        if near:
            raise PolicyError(f"rule {text!r}: there is no tool {tool}; did you mean {near}?", location=location)
    if tool.startswith("mcp__") and "*" not in tool and not _names_mcp(tool):
        raise PolicyError(
            f"rule {text!r}: it names no server and tool; write mcp__server, mcp__server__tool or mcp__server__*",
            location=location,
        )
    if "*" in tool and specifier is not None:
        raise PolicyError(f"rule {text!r}: a wildcard in the tool's name takes no specifier", location=location)
    if "*" in tool and verdict is Verdict.ALLOW and not _MCP_SERVER.match(tool):
        raise PolicyError(
            f"rule {text!r}: an allow rule takes a wildcard only after a literal server, as in mcp__server__*",
            location=location,
        )
    if specifier is not None and not specifier.strip():
        raise PolicyError(f"rule {text!r}: the brackets are empty; leave them out to mean the tool", location=location)
    family = next((name for name, tools in FAMILIES.items() if tool in tools and tool != name), None)
    if family and specifier is not None:
        raise PolicyError(f"rule {text!r}: write {family}({specifier}), which covers {tool}", location=location)


def takes_specifier(tool: str) -> bool:
    """True if a rule about this tool may say in brackets which of its calls it means."""
    return tool in _WITH_SPECIFIER or tool.startswith("mcp__")


def _names_mcp(tool: str) -> bool:
    """True for `mcp__server` and `mcp__server__tool` with neither part empty."""
    server, separator, name = tool.removeprefix("mcp__").partition("__")
    return bool(server) and bool(name or not separator)


def _check_specifier(text: str, tool: str, specifier: str, location: str | None) -> None:
    """Refuse what no call can ever fit: the person would believe in a rule that is none."""
    if not takes_specifier(tool):
        near = _CALLED_ELSEWHERE.get(tool.lower())
        if tool in _KNOWN_TOOLS:
            raise PolicyError(f"rule {text!r}: {tool} takes no brackets; write {tool}", location=location)
        advice = f"did you mean {near}({specifier})?" if near else f"for a tool of your own program write {tool} alone"
        raise PolicyError(f"rule {text!r}: there is no tool {tool} that takes brackets; {advice}", location=location)
    if tool == "WebFetch" and not _can_be_domain(specifier):
        host = _host(specifier) or "example.org"
        raise PolicyError(
            f"rule {text!r}: it is compared with the host alone; write WebFetch({_DOMAIN}{host})", location=location
        )


def _can_be_domain(specifier: str) -> bool:
    """True if a host fits: `domain:` with a name as calls have it, or a wildcard that leaves room for that."""
    if not specifier.startswith(_DOMAIN):
        literal = re.split(r"[*?]", specifier, maxsplit=1)[0]
        return literal != specifier and _DOMAIN.startswith(literal)
    name = specifier.removeprefix(_DOMAIN)
    return name == _host(specifier) or (name.count(":") > 1 and "/" not in name)  # an IPv6 address


def _host(specifier: str) -> str | None:
    """The host that a specifier means, be it a URL or a name, in lower case as calls have it."""
    name = "".join(specifier.removeprefix(_DOMAIN).split())
    try:
        return urlsplit(name if "//" in name else f"//{name}").hostname
    except ValueError:
        return None


def _near(name: str, names: Iterable[str]) -> str | None:
    by_lower = {known.lower(): known for known in names}
    # A tool of the embedding program may be called Fetch: only what is nearly as long is a misspelling of WebFetch.
    similar = [known for known in by_lower if abs(len(known) - len(name)) <= 1]
    found = difflib.get_close_matches(name.lower(), similar, n=1, cutoff=0.75)
    return by_lower[found[0]] if found else None


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a policy. Order within a list only matters for which rule is named; deny beats ask beats allow.

    With `read_only_commands` False a command that no rule speaks about is asked even if it only reads.
    """

    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()
    read_only_commands: bool = True

    def of(self, verdict: Verdict) -> tuple[Rule, ...]:
        """The rules of one kind."""
        return {Verdict.DENY: self.deny, Verdict.ASK: self.ask, Verdict.ALLOW: self.allow}[verdict]

    def having(self, verdict: Verdict, rules: tuple[Rule, ...]) -> RuleSet:
        """The same with other rules of one kind."""
        match verdict:
            case Verdict.DENY:
                return replace(self, deny=rules)
            case Verdict.ASK:
                return replace(self, ask=rules)
            case Verdict.ALLOW:
                return replace(self, allow=rules)

    def restricting(self, request: PermissionRequest) -> Rule | None:
        """The first deny rule, else the first ask rule, that speaks against a request without a command."""
        return next((rule for rule in (*self.deny, *self.ask) if rule.restricts(request)), None)

    def restricts_files(self, *, write: bool) -> bool:
        """True if any deny or ask rule is about reading (writing) files."""
        return any(rule.is_about_files(write=write) for rule in (*self.deny, *self.ask))
