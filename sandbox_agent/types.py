"""The plain values that travel between rooms. No I/O, no behaviour beyond small predicates.

Message content is kept as the Messages API's own JSON blocks, so that blocks this version does not know
(thinking, redacted, future ones) go back to the model unchanged.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

JsonObject = dict[str, Any]
"""A JSON object as the Messages API writes it. The one place where `Any` is allowed past the edge."""

MAX_NESTING = 100
"""Levels of lists and objects in what a model sends. Python's JSON writer gives up at a depth that hangs on where it is
called, so what could be read may not be writable; nothing that works comes near."""

SUMMARY_MARK = "<conversation-summary>"
"""What a text begins with that stands for a conversation that was shortened."""

WORKSPACE_MOUNT = "/workspace"
"""Where the workspace is inside every session container."""


@dataclass(frozen=True, slots=True)
class OverlayMount:
    """A workspace of layers: the engine's host paths, absolute. Reads fall through to the first of `lower` that has
    the path; whatever is written goes to `upper`. `work` is the kernel's own, on the file system of `upper`."""

    lower: tuple[str, ...]
    upper: str
    work: str


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """A workspace that only the engine has, for engines that do not see our file system. It outlives the container.

    `filled`: it holds a session's work, so it must be there: an empty one made in its place would read as if all had
    been deleted.
    """

    name: str
    filled: bool = False


@dataclass(frozen=True, slots=True)
class SharedMount:
    """What another container has mounted as its workspace: the name of its volume, or else a folder."""

    source: str
    is_volume: bool
    read_only: bool


@dataclass(frozen=True, slots=True)
class EmptyMount:
    """No workspace: a small empty folder in memory."""


WorkspaceMount = str | OverlayMount | VolumeMount | SharedMount | EmptyMount
"""What is mounted at `WORKSPACE_MOUNT`; a string is a folder of the engine's host, bound read-write."""


class Verdict(enum.IntEnum):
    """Ordered: the strictest of several verdicts is their `max`."""

    ALLOW = 0
    ASK = 1
    DENY = 2


class Mode(enum.StrEnum):
    """The permission mode of a session; spelled as the field spells it."""

    DEFAULT = "default"
    ACCEPT_EDITS = "acceptEdits"
    PLAN = "plan"
    DONT_ASK = "dontAsk"
    BYPASS = "bypassPermissions"


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One tool_use block of the model's answer.

    `malformed` holds the text as it came when it was not a JSON object; `input` is empty then.
    """

    id: str
    name: str
    input: JsonObject
    malformed: str | None = None


@dataclass(frozen=True, slots=True)
class PathAccess:
    """A path a call will touch, absolute in the container.

    `resolved` is the same path with links followed *in the container*; None until the gate has asked. A missing
    file resolves to where it would be made.
    """

    path: str
    write: bool
    resolved: str | None = None


@dataclass(frozen=True, slots=True)
class Withheld:
    """What a search of a folder must not show. `covers` takes a path relative to it, `rules` are who says so."""

    rules: tuple[str, ...]
    covers: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a call is about, for rules and for people.

    `summary` is one line (unsanitised). `command` is the shell text of Bash. `specifier` is what a rule
    `Tool(specifier)` is compared with for Task, WebFetch and tools of MCP servers; rules about other tools of an
    embedding program have none. `cwd` is where a command starts: relative paths in it are seen from there.
    `sends_out`: something leaves the container, so that the call is not allowed for only reading. `needs_person` is why
    no rule and no mode can allow it, but only a person who is asked; None where they can.
    """

    summary: str
    paths: tuple[PathAccess, ...] = ()
    command: str | None = None
    specifier: str | None = None
    cwd: str = WORKSPACE_MOUNT
    sends_out: bool = False
    needs_person: str | None = None


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """All a policy needs to decide, gathered beforehand; deciding does no I/O.

    `input_sha256` binds the decision to the exact input that runs. `read_only` and `edits` are the tool's
    predicates on that input, False where in doubt.
    """

    tool: str
    subject: Subject
    input_sha256: str
    read_only: bool = False
    edits: bool = False
    source: str = "builtin"
    agent_id: str = "main"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with its reason. `rule` is the rule text or id, `location` its `file:line`, None if no rule spoke.

    `layer` names the part of the policy that the rule is from, `hook` the hook that spoke; None if neither is known.
    `for_model` is what the model is told instead of the reason, where that quotes what may have been written for it to
    obey; None where the reason does.
    """

    verdict: Verdict
    reason: str
    rule: str | None = None
    location: str | None = None
    layer: str | None = None
    hook: str | None = None
    for_model: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool call gave: text or API content blocks for the model, and data for front ends.

    `meta` keys that front ends know: `diff` (unified diff text), `todos` (list), `exit_code`, `timed_out`,
    `truncated`, `changed` (list of container paths the call itself wrote).
    """

    content: str | tuple[JsonObject, ...]
    is_error: bool = False
    meta: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts. `input_tokens` excludes the cache, as the API reports it. Of `cache_creation_input_tokens`, those
    of `cache_creation_1h_input_tokens` stay there for an hour, which costs more."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_1h_input_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """All that was read, from the cache too, and written."""
        return self.input_tokens + self.output_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            self.cache_read_input_tokens + other.cache_read_input_tokens,
            self.cache_creation_1h_input_tokens + other.cache_creation_1h_input_tokens,
        )


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens of each kind that `Usage` has. `cache_write` is of what stays for five minutes,
    `cache_write_1h` of what stays for an hour."""

    input: float
    output: float
    cache_write: float
    cache_read: float
    cache_write_1h: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use, all its agents together but for `turns`, which are each agent's own. None means no limit.

    `tokens` counts what models read (from the cache too) and write. `context_tokens` is how long a conversation may get
    before it is compacted; None is as long as the model takes. `subagent_depth` is how many levels there may be
    below the first agent, `subagents_at_once` how many run at one time, `subagents_total` how many are ever started.
    """

    turns: int | None = 200
    wall_s: float | None = 3600.0
    tokens: int | None = None
    cost_usd: float | None = None
    context_tokens: int | None = None
    subagent_depth: int = 2
    subagents_at_once: int = 8
    subagents_total: int = 50


def nests_too_deep(value: object) -> bool:
    """True if JSON data has more than `MAX_NESTING` levels."""
    level = [value]
    for _ in range(MAX_NESTING + 1):
        containers = [one for one in level if isinstance(one, dict | list | tuple)]
        if not containers:
            return False
        level = [child for one in containers for child in (one.values() if isinstance(one, dict) else one)]
    return True
