"""The groups of an allow-list: hosts that this machine's own pip, npm and apt are configured for.

Their files and variables are read as the clients read them, the person's own only: nothing in a workspace has a say.
A client in the container is told the same index, without user name and password, which stay on this machine.
"""

from __future__ import annotations

import configparser
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sandbox_agent.errors import ConfigError
from sandbox_agent.hostnames import HostEntry, HostnameError, authority, entry_of

PYPI, PYPI_FILES = "https://pypi.org/simple", "https://files.pythonhosted.org"
NPM = "https://registry.npmjs.org"
DEBIAN = ("http://deb.debian.org", "http://security.debian.org")

_PORTS = {"http": 80, "https": 443}
_MAX_FILE_BYTES = 1024 * 1024
_NPM_LINE = re.compile(r"(?:@[^:\s]+:)?registry\s*=\s*[\"']?([^\"'\s]+)")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_URL = re.compile(r"(?:mirror\+)?(https?://[^\s\]]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where the clients' configuration is looked for."""

    environ: Mapping[str, str]
    home: Path
    etc: Path = Path("/etc")


@dataclass(frozen=True, slots=True)
class Expanded:
    """An allow-list without groups. `env` tells the clients in the container where their index is, `notes` are for the
    person."""

    entries: tuple[HostEntry, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def expand(entries: Iterable[HostEntry], machine: Machine) -> Expanded:
    """Put hosts in place of groups.

    Raises:
        ConfigError: a client's configuration cannot be read, or names an index that cannot be reached by name.
    """
    found: list[HostEntry] = []
    env: dict[str, str] = {}
    notes: list[str] = []
    for entry in entries:
        if not entry.group:
            found.append(entry)
            continue
        urls, told = _GROUPS[entry.host](machine)
        if any(_bare(url) != url for url in urls):
            notes.append(f"{entry.host}: user name and password of {_hosts(urls)} are not passed into the sandbox")
        env |= told
        found += [replace(_entry(entry.host, url), allow_private=entry.allow_private) for url in urls]
    return Expanded(tuple(dict.fromkeys(found)), env, tuple(notes))


def _python(machine: Machine) -> tuple[list[str], dict[str, str]]:
    values = {key: value for file in _pip_files(machine) for key, value in _pip_values(file)}
    for key in ("index-url", "extra-index-url"):
        variable = "PIP_" + key.upper().replace("-", "_")
        if machine.environ.get(variable):
            values[key] = machine.environ[variable]
    index = values.get("index-url", PYPI).strip()
    extra = [url for url in values.get("extra-index-url", "").split() if _is_web(url)]
    urls = [url for url in (index, *extra) if _is_web(url)]
    env = {"PIP_INDEX_URL": _bare(index)} if _is_web(index) and index != PYPI else {}
    if extra:
        env["PIP_EXTRA_INDEX_URL"] = " ".join(_bare(url) for url in extra)
    if any(urllib.parse.urlsplit(url).hostname == "pypi.org" for url in urls):
        urls.append(PYPI_FILES)
    return urls, env


def _pip_files(machine: Machine) -> Iterator[Path]:
    """The weakest first, as pip reads them."""
    own = machine.environ.get("PIP_CONFIG_FILE")
    if own == "/dev/null":
        return
    yield machine.etc / "xdg/pip/pip.conf"
    yield machine.etc / "pip.conf"
    yield machine.home / ".pip/pip.conf"
    config = machine.environ.get("XDG_CONFIG_HOME")
    yield (Path(config) if config else machine.home / ".config") / "pip/pip.conf"
    if own:
        yield Path(own)


def _pip_values(file: Path) -> Iterator[tuple[str, str]]:
    text = _read(file)
    if text is None:
        return
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as exc:
        raise ConfigError(f"{file}: pip's configuration cannot be read, which @python needs: {exc.message}") from exc
    for section in ("global", "download", "install"):
        if parser.has_section(section):
            yield from ((key.replace("_", "-"), value) for key, value in parser.items(section))


def _node(machine: Machine) -> tuple[list[str], dict[str, str]]:
    environ = machine.environ
    own = environ.get("NPM_CONFIG_USERCONFIG") or environ.get("npm_config_userconfig")
    files = (machine.etc / "npmrc", machine.etc.parent / "usr/etc/npmrc", Path(own) if own else machine.home / ".npmrc")
    main, scoped = NPM, []
    for file in files:
        for line in (_read(file) or "").splitlines():
            match = _NPM_LINE.fullmatch(line.strip())
            if match is None:
                continue
            url = _VARIABLE.sub(lambda name: environ.get(name[1], name[0]), match[1])
            if line.strip().startswith("@"):
                scoped.append(url)
            else:
                main = url
    main = environ.get("npm_config_registry") or environ.get("NPM_CONFIG_REGISTRY") or main
    env = {} if main.rstrip("/") == NPM else {"NPM_CONFIG_REGISTRY": _bare(main)}
    return [main, *scoped], env


def _debian(machine: Machine) -> tuple[list[str], dict[str, str]]:
    """Debian's own hosts too: the image in the container has sources of its own."""
    folder = machine.etc / "apt/sources.list.d"
    listed = sorted([*folder.glob("*.list"), *folder.glob("*.sources")])
    urls = [*DEBIAN]
    for file in (machine.etc / "apt/sources.list", *listed):
        for line in (_read(file) or "").splitlines():
            if not line.lstrip().startswith("#"):
                urls += _URL.findall(line)
    return urls, {}


_GROUPS = {"@python": _python, "@node": _node, "@debian": _debian}


def _read(file: Path) -> str | None:
    """The text of a client's file, None where there is none."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise ConfigError(f"{file} cannot be read, which sandbox.allow_hosts needs: {exc.strerror}") from exc
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError(f"{file} is larger than a client's configuration can be")
    return data.decode("utf-8", "replace")


def _is_web(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


def _entry(group: str, url: str) -> HostEntry:
    parts = urllib.parse.urlsplit(url)
    try:
        port = parts.port or _PORTS[parts.scheme]
        return entry_of(authority(parts.hostname or "", port))
    except (HostnameError, KeyError, ValueError) as exc:
        raise ConfigError(
            f"{group}: this machine's configuration names {_bare(url)!r}, which is no web address"
        ) from exc


def _bare(url: str) -> str:
    """Without user name and password."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _hosts(urls: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(urllib.parse.urlsplit(url).hostname or "" for url in urls if _bare(url) != url))
