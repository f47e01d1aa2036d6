"""The policy file as pydantic sees it: every key has a default, the default is the strict one, unknown keys are errors.

Only shapes live here; `layers` turns them into rules and settings and finds the line of what is wrong. The published
JSON Schema is made from these classes, so a docstring under a field is what an editor shows for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from sandbox_agent.policy.hooks import HooksSection
from sandbox_agent.policy.hostlist import HostList
from sandbox_agent.policy.policy import DEFAULT_MASKS
from sandbox_agent.policy.servers import McpSection
from sandbox_agent.types import Mode

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(B|[KMGT]iB|[kKMGT]B)?")
_UNITS = {"B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4} | {
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
    "TIB": 1024**4,
}
_MIN_BYTES = 16 * 1024**2
_MAX_BYTES = 1024**5

LOCKABLE = ("mode", "bypassPermissions", "allow", "hooks", "mcp", "project_instructions", "sandbox", "limits")
"""What `lock` takes, beside single keys such as `sandbox.memory` and `limits.turns`."""


def parse_size(value: Any) -> int:
    """Bytes of `2GiB`, `500 MB` or a plain number of bytes.

    Raises:
        ValueError: it is not a size, less than 16 MiB, with which no container starts, or more than 1024 TiB.
    """
    match = _SIZE.fullmatch(str(value).strip()) if isinstance(value, int | str) and value is not True else None
    if match is None:
        raise ValueError("a size such as 2GiB or 500MB")
    size_bytes = int(float(match[1]) * _UNITS[(match[2] or "B").upper()])
    if size_bytes < _MIN_BYTES:
        raise ValueError("at least 16MiB; write the unit, as in 2GiB")
    if size_bytes > _MAX_BYTES:
        raise ValueError("at most 1024TiB")
    return size_bytes


def _long_form(value: Any) -> Any:
    return {"rule": value} if isinstance(value, str) else value


def _none_to_empty(value: Any) -> Any:
    """An empty key (`deny:`) means the empty list, as people write it."""
    return [] if value is None else value


def _none_to_nothing(value: Any) -> Any:
    """The same of a mapping."""
    return {} if value is None else value


def _as_list(value: Any) -> Any:
    if value is not None and not isinstance(value, str | list):
        raise ValueError("a name, or a list of names")
    return [value] if isinstance(value, str) else _none_to_empty(value)


def _number_one(value: Any) -> Any:
    """Python takes true for 1."""
    if type(value) is not int:
        raise ValueError("1")
    return value


@dataclass(frozen=True, slots=True)
class _Also:
    """For the JSON Schema: another form that a validator turns into the one that is meant."""

    form: JsonSchemaValue

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [self.form, handler(core_schema)]}


Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": _MIN_BYTES, "maximum": _MAX_BYTES},
                {"type": "string", "pattern": rf"^\s*{_SIZE.pattern}\s*$"},
            ],
            "examples": ["2GiB", "500MB"],
        }
    ),
]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Seconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]
Usd = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class RuleEntry(_Section):
    """One rule in the long form; the short form is its text alone."""

    rule: str
    """`Tool` or `Tool(specifier)`, as in Bash(git log:*), Read(/secret/**), mcp__server__tool."""
    id: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9._-]*$")
    """The rule's name in decisions and in the record."""
    reason: str | None = None
    """Shown to the model and to people; gives the alternative."""
    matches: list[str] = []
    """Examples the rule must cover, checked when the file is loaded."""
    not_matches: list[str] = []
    """Examples the rule must not cover, checked when the file is loaded."""


RuleList = Annotated[
    list[Annotated[RuleEntry, BeforeValidator(_long_form), _Also({"type": "string"})]],
    BeforeValidator(_none_to_empty),
]


class RulesSection(_Section):
    """Deny beats ask beats allow, whatever the order."""

    deny: RuleList = []
    """Never done, in no mode; a bare tool is not even shown to the model."""
    ask: RuleList = []
    """Asked in every mode; where nobody can be asked it is denied."""
    allow: RuleList = []
    """Done without asking, unless a deny or an ask rule speaks of it."""


class SandboxSection(_Section):
    """The container. Fixed at start; no decision changes it."""

    image: str = Field(default="base", min_length=1)
    """`base` or `dev`, or any image by name, digest or ID that the engine has."""
    runtime: str = Field(default="runc", min_length=1)
    """`runc`, or another runtime the engine has, such as `runsc` (gVisor)."""
    seccomp: Literal["default", "debug"] = "default"
    """Which system calls there are; `debug` lets gdb and strace work."""
    network: Literal["none"] = "none"
    """Only "none": what `allow_hosts` opens is reached through a gate, which needs no network in the container."""
    allow_hosts: HostList = []
    """Hosts that may be reached, as host:port, *.domain:port, @python, @node or @debian; empty is none."""
    egress: Size | None = None
    """Bytes, in both directions together, that a session may exchange with them; null is no limit."""
    ca_bundle: str | None = Field(default=None, pattern="^[/~]")
    """A file of this machine with certificates that the tools' clients trust beside the usual ones."""
    memory: Size = parse_size("2GiB")
    """Memory, swap included."""
    cpus: float = Field(default=2, ge=0.01, le=1024, allow_inf_nan=False)
    """Processors; fractions are fine."""
    pids: int = Field(default=512, ge=16, le=1_000_000)
    """Processes and threads at once."""
    nofile: int = Field(default=4096, ge=64, le=1_000_000)
    """Open files of one process."""
    fsize: Size = parse_size("4GiB")
    """The largest file a process may write."""
    disk: Size = parse_size("4GiB")
    """Room in the workspace."""
    tmp: Size = parse_size("1GiB")
    """Size of /tmp; it is memory, and never more than half of that."""
    tmp_files: int = Field(default=200_000, ge=100, le=100_000_000)
    """Files and folders in /tmp."""
    home: Size = parse_size("512MiB")
    """Size of the home folder; it is memory, and never more than a quarter of that."""
    home_files: int = Field(default=100_000, ge=100, le=100_000_000)
    """Files and folders in the home folder."""
    shm: Size = parse_size("64MiB")
    """Size of /dev/shm, shared memory; it is memory, and never more than a sixteenth of that."""
    masks: list[str] = list(DEFAULT_MASKS)
    """Files of the workspace that read as empty, gitignore syntax."""


class SubagentLimits(_Section):
    """Of all sub-agents of a run together."""

    depth: int = Field(default=2, ge=0, le=100)
    """Levels below the first agent; 0 is none."""
    at_once: int = Field(default=8, ge=1, le=1_000)
    """How many run at one time."""
    total: int = Field(default=50, ge=0, le=1_000_000)
    """How many are started in all."""


class PriceEntry(_Section):
    """US dollars for a million tokens."""

    input: Usd
    """What is sent, without what goes into or comes from the cache."""
    output: Usd
    """What is written, thinking included."""
    cache_write: Usd | None = None
    """What goes into the cache for five minutes; left out, 1.25 times `input`."""
    cache_write_1h: Usd | None = None
    """What goes there for an hour; left out, twice `input`."""
    cache_read: Usd | None = None
    """What comes from the cache; left out, a tenth of `input`."""


class LimitsSection(_Section):
    """null means no limit."""

    turns: Count | None = 200
    """Requests to the model, of each agent."""
    wall_s: Seconds | None = 3600
    """Seconds from start to end."""
    tokens: Count | None = None
    """What all agents' models read, from the cache too, and write."""
    cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """US dollars for all of that; the model's price must be known."""
    prices: Annotated[
        dict[Annotated[str, Field(min_length=1)], PriceEntry],
        BeforeValidator(_none_to_nothing),
        _Also({"type": "null"}),
    ] = {}
    """Prices by name of the model, in which * is anything; the first that fits counts, before the known ones."""
    context_tokens: int | None = Field(default=None, ge=1_000, le=1_000_000_000)
    """How long a conversation may get before it is compacted; null: as long as the model takes."""
    subagents: Annotated[SubagentLimits, BeforeValidator(_none_to_nothing), _Also({"type": "null"})] = SubagentLimits()
    """How many agents may be started by agents."""


class PolicyFile(_Section):
    """The whole file."""

    version: Annotated[Literal[1], BeforeValidator(_number_one)] = 1
    """Of the format."""
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """What messages call the policy; left out, the name of the file."""
    description: str | None = None
    """One line for people."""
    extends: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        BeforeValidator(_as_list),
        _Also({"type": "string", "minLength": 1}),
    ] = []
    """A shipped policy by name, a file relative to this one, or a list: rules add up, this file's settings win."""
    lock: Annotated[list[str], BeforeValidator(_as_list), _Also({"type": "string"})] = []
    """Parts that no nearer file, and no option, may loosen."""
    mode: Annotated[Mode, Field(strict=False)] = Mode.DEFAULT
    """What is done with what no rule decides."""
    read_only_commands: Literal["allow", "ask"] = "allow"
    """Whether commands that only read (a list shipped with the program) run without a rule."""
    saved_rules: Literal["apply", "ignore"] = "apply"
    """Whether rules that were saved by answering "always" hold under this policy."""
    project_instructions: Literal["give", "ignore"] = "give"
    """Whether the model is given AGENTS.md and CLAUDE.md of the folder, as text from somebody who is not trusted."""
    rules: RulesSection = RulesSection()
    sandbox: SandboxSection = SandboxSection()
    limits: LimitsSection = LimitsSection()
    mcp: McpSection = McpSection()
    hooks: HooksSection = HooksSection()


def lockable_keys() -> tuple[str, ...]:
    """Every word that `lock` takes."""
    single = [f"{name}.{key}" for name, part in _PARTS.items() for key in part.model_fields]
    return (*LOCKABLE, *single)


_PARTS: dict[str, type[_Section]] = {
    "sandbox": SandboxSection,
    "limits": LimitsSection,
    "limits.subagents": SubagentLimits,
}
