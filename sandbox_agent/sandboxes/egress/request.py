"""The head of one proxy request, read strictly: what two programs could read in two ways is refused, never repaired.

What is passed on is made anew from the parts, by h11, so no byte of the tool's framing reaches the server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import h11

from sandbox_agent.hostnames import HostnameError, canonical_host, split_authority

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 100
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(rb"[\x21-\x7e]+")
_HTTP_DEFAULT_PORT = 80

_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate te trailer upgrade "
    b"http2-settings expect host content-length transfer-encoding".split()
)
"""For the connection to us, or made anew."""


class RequestError(Exception):
    """A request that is not passed on; `status` is that of the answer."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a proxy. `host` is as it was written. A tunnel has neither path nor headers that matter."""

    method: bytes
    host: str
    port: int
    path: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    head: bytes = b""

    @property
    def tunnel(self) -> bool:
        return self.method == b"CONNECT"

    @property
    def where(self) -> bytes:
        """Host and port as they go out, in their one spelling."""
        host = canonical_host(self.host)
        name = f"[{host}]" if ":" in host else host
        return (name if self.port == _HTTP_DEFAULT_PORT else f"{name}:{self.port}").encode("ascii")

    @property
    def expects_continue(self) -> bool:
        return any(name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers)


def parse_head(head: bytes) -> Request:
    """The request of a head that ends with an empty line.

    Raises:
        RequestError: it is no proxy request, or one that could be read in two ways.
    """
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines):
        raise RequestError("the request has bare line ends or NULs")
    words = lines[0].split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.1", b"HTTP/1.0") or not _TOKEN.fullmatch(words[0]):
        raise RequestError("not an HTTP/1.0 or HTTP/1.1 request")
    method, target, version = words
    if not _TARGET.fullmatch(target):
        raise RequestError("the request's target has characters that belong in none")
    headers = _headers(lines[1:])
    if method == b"CONNECT":
        host, port = _split(target.decode("ascii"))
        return Request(method, host, port, head=head)
    host, port, path = _absolute(target)
    _check_host(headers, host, port, needed=version == b"HTTP/1.1")
    _check_framing(headers)
    if version == b"HTTP/1.0" and any(name == b"transfer-encoding" for name, _ in headers):
        raise RequestError("HTTP/1.0 has no chunked bodies")
    return Request(method, host, port, path, tuple(headers), head)


def outgoing(request: Request, target: bytes, extra: tuple[tuple[bytes, bytes], ...] = ()) -> h11.Request:
    """The request as it goes to the server (or to a further proxy, by another target): one on its connection."""
    lists = [value for name, value in request.headers if name == b"connection"]
    named = {word.strip().lower() for value in lists for word in value.split(b",")}
    kept = [(name, value) for name, value in request.headers if name not in _HOP_BY_HOP | named]
    framing = [pair for pair in request.headers if pair[0] in (b"content-length", b"transfer-encoding")]
    return h11.Request(
        method=request.method,
        target=target,
        headers=[(b"Host", request.where), *kept, *framing, *extra, (b"Connection", b"close")],
    )


def _headers(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    if len(lines) > MAX_HEADERS:
        raise RequestError(f"more than {MAX_HEADERS} header lines", 431)
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if line[:1] in (b" ", b"\t"):
            raise RequestError("a header is folded over lines")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise RequestError("a header line is malformed")
        headers.append((name.lower(), value.strip(b" \t")))
    return headers


def _split(text: str) -> tuple[str, int]:
    try:
        return split_authority(text)
    except HostnameError as exc:
        raise RequestError(f"the request's target is {exc}") from exc


def _absolute(target: bytes) -> tuple[str, int, bytes]:
    """Host, port and path of http://host[:port]/path."""
    scheme, found, rest = target.partition(b"://")
    if not found or target.startswith(b"/"):
        raise RequestError("this is the sandbox's proxy; it serves nothing itself")
    if scheme.lower() != b"http":
        raise RequestError("only http:// is asked for by its whole address; for https:// use CONNECT")
    end = next((at for at, byte in enumerate(rest) if byte in b"/?"), len(rest))
    where, path = rest[:end].decode("ascii"), rest[end:]
    if b"#" in path or b"\\" in rest:
        raise RequestError("the request's target has characters that belong in none")
    if path[:1] != b"/":
        path = b"/" + path
    has_port = re.search(r":[0-9]+\Z", where) and not where.endswith("]")
    host, port = _split(where if has_port else f"{where}:{_HTTP_DEFAULT_PORT}")
    return host, port, path


def _check_host(headers: list[tuple[bytes, bytes]], host: str, port: int, *, needed: bool) -> None:
    named = [value for name, value in headers if name == b"host"]
    if len(named) > 1 or (needed and not named):
        raise RequestError("there must be one Host header")
    for value in named:
        text = value.decode("ascii", "replace")
        other, other_port = _split(text if re.search(r":[0-9]+\Z", text) else f"{text}:{_HTTP_DEFAULT_PORT}")
        try:
            same = (canonical_host(other), other_port) == (canonical_host(host), port)
        except HostnameError as exc:
            raise RequestError(f"the host is {exc}") from exc
        if not same:
            raise RequestError("the Host header is not the host that is asked for")


def _check_framing(headers: list[tuple[bytes, bytes]]) -> None:
    """One way to tell where the body ends, at most."""
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise RequestError("the length of the body is told more than once")
    if any(not re.fullmatch(rb"[0-9]{1,18}", value) for value in lengths):
        raise RequestError("the length of the body is no number")
    if any(value.lower() != b"chunked" for value in codings):
        raise RequestError("a body is taken plain or chunked")
