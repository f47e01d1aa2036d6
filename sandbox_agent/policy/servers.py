"""MCP servers as a policy describes them, or a file of servers that a person names for a run; `mcp` connects to them.

Where a server runs is always stated: in the session's container (`session`: where a program runs that does not say),
in a container of its own (`own`), or on this machine (`host`), which is what a server behind a URL counts as.
"""

from __future__ import annotations

import enum
import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from sandbox_agent.errors import PolicyError
from sandbox_agent.hostnames import HostEntry
from sandbox_agent.policy.hostlist import HostList
from sandbox_agent.policy.source import KeyPath

DEFAULT_STARTUP_S = 30.0
DEFAULT_CALL_S = 120.0
MAX_CALL_S = 3600.0
DEFAULT_RESULT_CHARS = 100_000
MAX_SERVERS = 50

NAME = r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_OPEN = frozenset({"HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER"})
"""Variables whose values are no secrets: masked, half of every output would be."""

_SECRET_NAME = re.compile(r"auth|token|key|secret|cookie|passw|credential", re.IGNORECASE)
_KEPT_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|API_?KEY|KEY|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|PAT|DSN)$"
    r"|(?:TOKEN|SECRET|PASSWORD|APIKEY)$",
    re.IGNORECASE,
)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Place(enum.StrEnum):
    """Where a server runs."""

    SESSION = "session"
    OWN = "own"
    HOST = "host"


class Transport(enum.StrEnum):
    """How it is spoken to."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


@dataclass(frozen=True, slots=True)
class McpServer:
    """One server. `command` is the program and its arguments, empty where there is a `url`.

    `image`, `allow_hosts` and `workspace` are of a server in a container of its own. `tools` are names or patterns of
    those that are offered. `trust_hints` lets what the server says of its tools count ("this one only reads").
    `allow_private` lets a URL lead to this machine and to private networks. `secrets` are the values of the person's
    variables that `with_environment` filled in, and what by its name is one.
    """

    name: str
    transport: Transport
    place: Place
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    allow_hosts: tuple[HostEntry, ...] = ()
    workspace: Literal["none", "ro", "rw"] = "none"
    allow_private: bool = False
    tools: tuple[str, ...] = ("*",)
    trust_hints: bool = False
    startup_timeout_s: float = DEFAULT_STARTUP_S
    call_timeout_s: float = DEFAULT_CALL_S
    max_result_chars: int = DEFAULT_RESULT_CHARS
    location: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def apart(self) -> bool:
        """Whether it has no way to change the workspace."""
        return self.transport is not Transport.STDIO or (self.place is Place.OWN and self.workspace != "rw")

    def offers(self, tool: str) -> bool:
        """Whether a tool of this name, as the server calls it, is to be offered."""
        return any(fnmatch.fnmatchcase(tool, pattern) for pattern in self.tools)

    @property
    def shown(self) -> str:
        """What it is, for people: nothing that could be a secret."""
        if self.url is not None:
            parts = urlsplit(self.url)
            return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
        return self.command[0]


def _none_to_empty(value: Any) -> Any:
    return {} if value is None else value


class ServerEntry(BaseModel):
    """One MCP server."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)

    type: Literal["stdio", "http", "streamable-http", "sse"] | None = None
    """How it is spoken to. Left out: `http` where there is a `url`, else `stdio`."""
    place: Annotated[Place, Field(strict=False)] | None = None
    """`session` in the session's container; `own` in one of its own; `host` on this machine, and for every URL."""
    command: Annotated[str, Field(min_length=1)] | None = None
    """The program; ${VAR} stands for a variable of your environment, also in `args`, `env`, `url` and `headers`."""
    args: list[str] = []
    """Its arguments."""
    env: dict[str, str] = {}
    """Its environment, beside PATH and HOME: nothing else of yours comes to it."""
    url: Annotated[str, Field(min_length=1)] | None = None
    """Where a server listens that is not started here."""
    headers: dict[str, str] = {}
    """Sent with each request to the URL."""
    image: Annotated[str, Field(min_length=1)] | None = None
    """Of a server with `place: own`; left out, the session's."""
    allow_hosts: HostList = []
    """Hosts that a server with `place: own` may reach, as in `sandbox.allow_hosts`; empty is none."""
    workspace: Literal["none", "ro", "rw"] = "none"
    """What a server with `place: own` sees of the workspace."""
    allow_private: bool = False
    """Whether the URL may lead to this machine or to a private network."""
    tools: list[Annotated[str, Field(min_length=1)]] = ["*"]
    """Which of its tools are offered, as names with *."""
    trust_hints: bool = False
    """Whether what it says of its tools counts, above all that one only reads."""
    startup_timeout_s: float = Field(default=DEFAULT_STARTUP_S, gt=0, le=600)
    """How long it may take to be there with its tools."""
    call_timeout_s: float = Field(default=DEFAULT_CALL_S, gt=0, le=MAX_CALL_S)
    """How long one call may take."""
    max_result_chars: int = Field(default=DEFAULT_RESULT_CHARS, ge=1_000, le=1_000_000)
    """How much of one result the model is shown; the rest is kept in a file."""

    @field_validator("env", "headers")
    @classmethod
    def _plain(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for name, text in value.items():
            if info.field_name == "env" and not _VARIABLE_NAME.match(name):
                raise ValueError(f"{name!r} is no name of a variable")
            if any(char in name + text for char in "\0\r\n") and info.field_name == "headers":
                raise ValueError(f"{name!r}: a header has one line")
            if "\0" in text:
                raise ValueError(f"{name!r} holds a NUL character")
        return value


class McpSection(BaseModel):
    """MCP servers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)

    servers: Annotated[dict[Annotated[str, Field(pattern=NAME)], ServerEntry], BeforeValidator(_none_to_empty)] = {}
    """By name. Their tools are called mcp__NAME__TOOL."""
    host: Annotated[list[str], BeforeValidator(lambda value: [] if value is None else value)] = []
    """Servers of a file named with --mcp-config that may run on this machine, or lie behind a URL."""


def parse_servers(section: McpSection, locate: Callable[[KeyPath], str]) -> tuple[McpServer, ...]:
    """The servers of a policy file, in its order.

    Raises:
        PolicyError: one says too little, or things that do not go together.
    """
    return tuple(
        server_of(name, entry, entry.place, locate(("mcp", "servers", name)), may_be_host=True)
        for name, entry in section.servers.items()
    )


def server_of(name: str, entry: ServerEntry, place: Place | None, where: str, *, may_be_host: bool) -> McpServer:
    """The server that an entry describes.

    Raises:
        PolicyError: it says too little, or things that do not go together.
    """
    transport = _transport(entry)
    told = _fault(name, entry, transport, place, may_be_host=may_be_host)
    if told is not None:
        raise PolicyError(f"the MCP server {name}: {told}", location=where)
    return McpServer(
        name=name,
        transport=transport,
        place=place or Place.SESSION,
        command=(entry.command, *entry.args) if entry.command is not None else (),
        env=dict(entry.env),
        url=entry.url,
        headers=dict(entry.headers),
        image=entry.image,
        allow_hosts=tuple(entry.allow_hosts),
        workspace=entry.workspace,
        allow_private=entry.allow_private,
        tools=tuple(entry.tools),
        trust_hints=entry.trust_hints,
        startup_timeout_s=entry.startup_timeout_s,
        call_timeout_s=entry.call_timeout_s,
        max_result_chars=entry.max_result_chars,
        location=where,
    )


def _transport(entry: ServerEntry) -> Transport:
    if entry.type is None:
        return Transport.HTTP if entry.url is not None else Transport.STDIO
    return Transport.HTTP if entry.type == "streamable-http" else Transport(entry.type)


def _fault(
    name: str, entry: ServerEntry, transport: Transport, place: Place | None, *, may_be_host: bool
) -> str | None:
    """What is wrong with it, None if nothing is."""
    if transport is Transport.STDIO:
        if entry.command is None or entry.url is not None or entry.headers or entry.allow_private:
            return "a stdio server has a command, and neither url, headers nor allow_private"
    elif entry.url is None or entry.command is not None or entry.args or entry.env:
        return f"a server of the type {transport.value} has a url, and neither command, args nor env"
    elif place is not Place.HOST and may_be_host:
        return "a server behind a URL counts as one of this machine: write place: host"
    if (place is Place.HOST or transport is not Transport.STDIO) and not may_be_host:
        return f"it would run on this machine, or lie behind a URL; allow that in your policy: mcp: {{host: [{name}]}}"
    if place is Place.HOST and "/" in (entry.command or "") and not (entry.command or "").startswith(("/", "${")):
        return "on this machine its command is found by PATH, or is a whole path that begins with /"
    if place is not Place.OWN and (entry.image or entry.allow_hosts or entry.workspace != "none"):
        return "image, allow_hosts and workspace are of a server with place: own"
    if place in (Place.SESSION, None):
        given = [f"${{{one}}}" for one in sorted(variables(entry))] or [
            f"env: {one}" for one, text in entry.env.items() if _is_secret(one, text)
        ]
        if given:
            return (
                f"{given[0]} cannot be given to it: in the session's container whatever else runs there could read "
                "it. Give it place: own or host"
            )
    return None


def _is_secret(name: str, text: str) -> bool:
    """Whether a variable of an entry is a secret, by its name and by what it looks like."""
    plain = len(text) < 8 or text[0] in "/.~" or text.replace(".", "").isdecimal()
    return not plain and _KEPT_NAME.search(name) is not None


def variables(entry: ServerEntry) -> set[str]:
    """The names of the person's variables that an entry asks for."""
    texts = [entry.command or "", *entry.args, *entry.env.values(), entry.url or "", *entry.headers.values()]
    return {found.group(1) for text in texts for found in _VARIABLE.finditer(text)}


def with_environment(server: McpServer, environ: Mapping[str, str]) -> McpServer:
    """The server with the person's variables in place of `${VAR}` and `${VAR:-otherwise}`.

    Raises:
        PolicyError: a variable is not set, or what comes out is no URL.
    """
    used: list[str] = []

    def value(found: re.Match[str]) -> str:
        name, otherwise = found.group(1), found.group(2)
        if name in environ:
            if name not in _OPEN:
                used.append(environ[name])
            return environ[name]
        if otherwise is None:
            told = f"the MCP server {server.name} needs the variable {name}, which is not set; set it, or take it out"
            raise PolicyError(told, location=server.location)
        return otherwise

    def filled(texts: Mapping[str, str]) -> dict[str, str]:
        return {name: _VARIABLE.sub(value, text) for name, text in texts.items()}

    command = tuple(_VARIABLE.sub(value, word) for word in server.command)
    url = None if server.url is None else _VARIABLE.sub(value, server.url)
    env, headers = filled(server.env), filled(server.headers)
    if url is not None and not _is_url(url):
        told = f"the MCP server {server.name}: its url is none; write http://HOST/PATH or https://HOST/PATH"
        raise PolicyError(told, location=server.location)
    for name, text in (*env.items(), *headers.items()):
        if _SECRET_NAME.search(name):
            used += [text, *text.split()[1:]]  # "Bearer X" is one, and so is X
    return replace(server, command=command, url=url, env=env, headers=headers, secrets=tuple(dict.fromkeys(used)))


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:
        return False
