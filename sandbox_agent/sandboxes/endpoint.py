"""Which engine to use, and whether it answers: one resolver, one ping, standard library only, so it costs milliseconds.

DOCKER_HOST wins, then the active Docker context, then the default socket. Whatever was named is used or refused;
nothing is tried in its place.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sandbox_agent.errors import SandboxUnavailableError

DEFAULT_URL = "unix:///var/run/docker.sock"
PING_S = 5.0
"""For everything of a ping together."""

_TCP_PORT = 2375
_TLS_PORT = 2376
_MAX_ANSWER_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a TLS engine; `verify` is False only where the user's own configuration says so."""

    ca: str | None
    cert: str | None
    key: str | None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Raises OSError (ssl.SSLError) when a file cannot be used."""
        context = ssl.create_default_context(cafile=self.ca)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert:
            context.load_cert_chain(self.cert, self.key)
        return context


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the engine is and who said so: `DOCKER_HOST`, `Docker context NAME` or `default`."""

    url: str
    source: str
    tls: TlsFiles | None = None

    def __str__(self) -> str:
        return f"{self.url} (from {self.source})"


def resolve_endpoint(environ: Mapping[str, str]) -> Endpoint:
    """The engine that the user's environment names.

    Raises:
        SandboxUnavailableError: DOCKER_HOST or the context cannot be used as written.
    """
    url = environ.get("DOCKER_HOST", "")
    if url:
        tls = _tls_from(environ) if url.startswith("tcp://") else None
        return _checked(Endpoint(url, "DOCKER_HOST", tls))
    folder = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "/")) / ".docker")
    context = environ.get("DOCKER_CONTEXT") or _current_context(folder)
    if context and context != "default":
        return _checked(_from_context(folder, context))
    return Endpoint(DEFAULT_URL, "default")


def ping(endpoint: Endpoint, *, within_s: float = PING_S) -> str:
    """The API version the engine speaks, for example "1.41". Raises as `greet`."""
    return greet(endpoint, within_s=within_s).version


def greet(endpoint: Endpoint, *, within_s: float = PING_S) -> Greeting:
    """What the engine says first. Blocks for at most `within_s`.

    Raises:
        SandboxUnavailableError: with the one line that says what is wrong and what to do.
    """
    try:
        answer = _ask(endpoint, within_s)
    except OSError as exc:
        raise SandboxUnavailableError(_diagnosis(endpoint, exc, within_s)) from exc
    head = answer.split(b"\r\n\r\n", 1)[0].decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    version = headers.get("api-version", "")
    if " 200 " not in head[0] + " " or not version.replace(".", "").isdigit():
        text = f"{endpoint} answers, but not as a Docker Engine does: {head[0][:80]!r}; check the address"
        raise SandboxUnavailableError(text)
    return Greeting(version, podman="libpod-api-version" in headers)


@dataclass(frozen=True, slots=True)
class Greeting:
    """The API version of an engine, and whether it is Podman, which differs in a few things; see `podman`."""

    version: str
    podman: bool = False


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """Which engine answers: its own ID, and what its abilities depend on."""

    id: str
    version: str
    kernel: str


def identify(endpoint: Endpoint) -> EngineIdentity:
    """Ask the engine who it is; takes it about 12 ms.

    Raises:
        SandboxUnavailableError: it does not answer, or not with what an engine says.
    """
    try:
        body = _ask(endpoint, PING_S, "/info", whole=True).partition(b"\r\n\r\n")[2]
        fields = json.loads(body)
        return EngineIdentity(str(fields["ID"]), str(fields["ServerVersion"]), str(fields["KernelVersion"]))
    except OSError as exc:
        raise SandboxUnavailableError(_diagnosis(endpoint, exc, PING_S)) from exc
    except (ValueError, LookupError, TypeError) as exc:
        raise SandboxUnavailableError(f"the engine at {endpoint} does not describe itself: {exc}") from exc


def connect(endpoint: Endpoint, timeout_s: float) -> socket.socket:
    """A connection to the engine. Raises OSError."""
    parts = urlsplit(endpoint.url)
    if parts.scheme == "unix":
        unix = socket.socket(socket.AF_UNIX)
        unix.settimeout(timeout_s)
        try:
            unix.connect(parts.path)
        except OSError:
            unix.close()
            raise
        return unix
    port = parts.port or (_TLS_PORT if endpoint.tls else _TCP_PORT)
    plain = socket.create_connection((parts.hostname or "", port), timeout_s)
    if endpoint.tls is None:
        return plain
    try:
        return endpoint.tls.context().wrap_socket(plain, server_hostname=parts.hostname)
    except OSError:
        plain.close()
        raise


def _ask(endpoint: Endpoint, within_s: float, path: str = "/_ping", *, whole: bool = False) -> bytes:
    """The answer's head, or all of it: with HTTP/1.0 it ends with the connection, and comes in one piece."""
    deadline_s = time.monotonic() + within_s
    with connect(endpoint, within_s) as channel:
        channel.sendall(f"GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
        answer = b""
        while (whole or b"\r\n\r\n" not in answer) and len(answer) < _MAX_ANSWER_BYTES:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            channel.settimeout(left_s)
            more = channel.recv(4096)
            if not more:
                break
            answer += more
        return answer


def _diagnosis(endpoint: Endpoint, exc: OSError, within_s: float) -> str:
    """One line: what was wrong, where, what to do."""
    if isinstance(exc, TimeoutError):
        return f"the engine at {endpoint} accepts connections but does not respond within {within_s:g} s; restart it"
    if isinstance(exc, PermissionError):
        path = urlsplit(endpoint.url).path
        return (
            f"permission denied on the engine's socket {path} (from {endpoint.source}): add your user to its group "
            "(sudo usermod -aG docker $USER, then log in again)"
        )
    reason = exc.strerror or str(exc) or type(exc).__name__
    if isinstance(exc, ssl.SSLError):
        return f"the engine at {endpoint} refuses the TLS connection ({reason}); check DOCKER_CERT_PATH"
    if endpoint.source == "default":
        return (
            f"no Docker Engine is running: {endpoint.url}: {reason}; start it (`make setup`, or "
            "systemctl start docker), or set DOCKER_HOST"
        )
    return (
        f"{endpoint.source} names {endpoint.url}, where no engine answers: {reason}; correct or unset it "
        "(no other engine was tried)"
    )


def _checked(endpoint: Endpoint) -> Endpoint:
    parts = urlsplit(endpoint.url)
    if parts.scheme == "ssh":
        text = f"{endpoint}: engines over ssh are not supported; forward its socket and name that (unix:///PATH)"
        raise SandboxUnavailableError(text)
    usable = (parts.scheme == "unix" and parts.path.startswith("/")) or (parts.scheme == "tcp" and parts.hostname)
    if not usable:
        text = f"{endpoint} is not an engine's address; write unix:///PATH or tcp://HOST:PORT, or unset it"
        raise SandboxUnavailableError(text)
    return endpoint


def _tls_from(environ: Mapping[str, str]) -> TlsFiles | None:
    if not environ.get("DOCKER_TLS_VERIFY"):
        return None
    folder = environ.get("DOCKER_CERT_PATH") or os.path.join(environ.get("HOME", "/"), ".docker")
    ca, cert, key = (os.path.join(folder, name) for name in ("ca.pem", "cert.pem", "key.pem"))
    return TlsFiles(ca, cert, key)


def _current_context(folder: Path) -> str:
    config = folder / "config.json"
    try:
        fields = json.loads(config.read_text("utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as exc:
        raise SandboxUnavailableError(f"{config} cannot be read ({exc}); correct it or set DOCKER_HOST") from exc
    name = fields.get("currentContext", "") if isinstance(fields, dict) else ""
    return name if isinstance(name, str) else ""


def _from_context(folder: Path, name: str) -> Endpoint:
    digest = hashlib.sha256(name.encode()).hexdigest()
    place = folder / "contexts" / "meta" / digest / "meta.json"
    try:
        settings = json.loads(place.read_text("utf-8"))["Endpoints"]["docker"]
        url, verify = str(settings["Host"]), not settings.get("SkipTLSVerify", False)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        text = f"the active Docker context {name!r} cannot be read ({place}): {why}; see `docker context ls`"
        raise SandboxUnavailableError(text) from exc
    return Endpoint(
        url, f"Docker context {name}", _tls_of_context(folder / "contexts" / "tls" / digest / "docker", verify)
    )


def _tls_of_context(folder: Path, verify: bool) -> TlsFiles | None:
    ca, cert, key = (
        str(folder / name) if (folder / name).exists() else None for name in ("ca.pem", "cert.pem", "key.pem")
    )
    return TlsFiles(ca, cert, key, verify) if ca or cert else None
