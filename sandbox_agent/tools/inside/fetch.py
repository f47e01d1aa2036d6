"""One page over the network's gate: a JSON job on standard input, one line of JSON and the page's text on standard
output. Bounded in size and time; whatever the server says, one of the outcomes comes out.

Outcomes: "page", "redirect" (to another place, not followed), "binary", "refused" (by the gate), "failed".
"""

from __future__ import annotations

import codecs
import http.client
import json
import os
import re
import socket
import ssl
import sys
import time
import zlib
from urllib.parse import quote, urljoin, urlsplit

from sandbox_agent.tools.inside.readable import readable

_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 5
_MAX_LOCATION_CHARS = 2000
_MAX_HEAD_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
_LOOKED_AT_BYTES = 1024
_OK = 200
_PORTS = {"http": 80, "https": 443}
_GATE_SAYS = "sandbox-agent: "
"""How the gate's own answers begin. A server can say the same, and gains nothing by it."""
_TEXT = re.compile(r"(text/.*|application/(.*\+)?(json|xml|yaml|javascript|ecmascript|toml|x-sh|x-ndjson|sql|graphql))")
_HTML = ("text/html", "application/xhtml+xml")
_CHARSETS = re.compile(
    r"(us-?)?ascii|utf-?8(-sig)?|utf-?16(-?[lb]e)?|iso-?8859-?[0-9]{1,2}|latin-?1|(windows|cp)-?125[0-9]|koi8-?[ru]"
    r"|shift.?jis|euc-?(jp|kr)|gbk|gb2312|gb18030|big5"
)
"""What pages come in. Other codecs of Python are no character sets, or are made to be slow."""
_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class Told(Exception):
    """An outcome, with what belongs to it."""

    def __init__(self, outcome: str, **fields: object) -> None:
        Exception.__init__(self, outcome)
        self.fields: dict[str, object] = dict(fields, outcome=outcome)


class Answer:
    """A response, and the socket that it comes from."""

    def __init__(self, response: http.client.HTTPResponse, sock: socket.socket) -> None:
        self.response = response
        self.sock = sock

    @property
    def status(self) -> int:
        return self.response.status

    def header(self, name: str) -> str:
        """A header as text, "" if there is none. Bytes beyond ASCII are taken for UTF-8."""
        return (self.response.headers.get(name) or "").encode("latin-1", "replace").decode("utf-8", "replace")


class Job:
    """What is to be fetched, and until when."""

    def __init__(self, given: dict) -> None:  # type: ignore[type-arg]  # JSON of our own
        self.url = str(given["url"])
        proxy = urlsplit(os.environ.get("HTTPS_PROXY") or "")
        self.proxy = (proxy.hostname or "", proxy.port or 0)
        self.max_bytes = int(given["max_bytes"])
        self.agent = str(given["agent"])
        self.deadline = time.monotonic() + float(given["timeout_s"])

    def left_s(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Told("failed", reason="it took too long")
        return left


def main() -> None:
    job = Job(json.load(sys.stdin))
    head: dict[str, object]
    text = ""
    try:
        head, text = fetch(job)
    except Told as told:
        head = told.fields
    except TimeoutError:
        head = {"outcome": "failed", "reason": "it took too long"}
    except ssl.SSLError as exc:
        head = {"outcome": "failed", "reason": "TLS failed: " + str(getattr(exc, "verify_message", "") or exc.reason)}
    except http.client.HTTPException as exc:
        head = {"outcome": "failed", "reason": "the answer is not HTTP: " + (str(exc) or type(exc).__name__)}
    except OSError as exc:
        head = {"outcome": "failed", "reason": "the connection failed: " + str(exc.strerror or exc)}
    data = text.encode("utf-8", "replace")
    if len(data) > job.max_bytes:
        data, head["cut"] = data[: job.max_bytes], True
    sys.stdout.buffer.write(json.dumps(head).encode("ascii") + b"\n" + data)
    sys.stdout.buffer.flush()


def fetch(job: Job) -> tuple[dict[str, object], str]:
    """The page at the end of what is followed.

    Raises:
        Told: there is none to show.
        OSError, http.client.HTTPException: the network, or the server's answer.
    """
    url = job.url
    for _ in range(_MAX_REDIRECTS + 1):
        answer = ask(job, url)
        location = answer.header("Location")
        if answer.status not in _REDIRECTS or not location:
            return page(job, url, answer)
        target = absolute(url, location)
        if not same_place(url, target):
            raise Told("redirect", url=url, status=answer.status, location=target[:_MAX_LOCATION_CHARS])
        answer.response.close()
        url = target.partition("#")[0]
    raise Told("failed", reason=f"it redirects more than {_MAX_REDIRECTS} times")


def absolute(url: str, location: str) -> str:
    """Where a redirect leads, in ASCII."""
    try:
        target = urljoin(url, location.strip())
        urlsplit(target).port  # noqa: B018 - raises where it is none
    except ValueError:
        raise Told("failed", reason="it redirects to what is no address") from None
    return quote(target, safe="!#$%&'()*+,/:;=?@[]~")


def same_place(url: str, target: str) -> bool:
    """Whether a redirect stays with the same server, and does not give up TLS."""
    before, after = urlsplit(url), urlsplit(target)
    if after.username is not None or before.hostname != after.hostname:
        return False
    ports = [parts.port or _PORTS.get(parts.scheme) for parts in (before, after)]
    return (before.scheme == after.scheme and ports[0] == ports[1]) or (
        (before.scheme, ports[0], after.scheme, ports[1]) == ("http", 80, "https", 443)
    )


def ask(job: Job, url: str) -> Answer:
    """One request over the gate; its answer as far as its head."""
    parts = urlsplit(url)
    host, default = parts.hostname or "", _PORTS[parts.scheme]
    port = parts.port or default
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if not job.proxy[0]:
        raise Told("failed", reason="the container has no way out")
    sock = socket.create_connection(job.proxy, timeout=job.left_s())
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme == "https":
        tunnel(job, sock, where)
        sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
    else:
        path = f"http://{where}{path}"
    connection = http.client.HTTPConnection(host, port)
    connection.sock = sock
    connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", where.rpartition(":")[0] if port == default else where)
    connection.putheader("User-Agent", job.agent)
    connection.putheader("Accept", "text/markdown, text/html, text/plain, application/json;q=0.9, */*;q=0.1")
    connection.putheader("Accept-Encoding", "identity")
    connection.putheader("Connection", "close")
    connection.endheaders()
    sock.settimeout(job.left_s())
    return Answer(connection.getresponse(), sock)


def tunnel(job: Job, sock: socket.socket, where: str) -> None:
    """Have the gate connect the socket with a server.

    Raises:
        Told: it does not; its reason is in its status line.
    """
    sock.sendall(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode("ascii"))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        sock.settimeout(job.left_s())
        byte = sock.recv(1)  # one at a time: what comes behind the head is TLS
        head += byte
        if not byte or len(head) > _MAX_HEAD_BYTES:
            raise Told("failed", reason="the network's gate gave no answer")
    status, _, reason = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")[2].partition(" ")
    if status != str(_OK):
        raise Told("refused", reason=reason)


def page(job: Job, url: str, answer: Answer) -> tuple[dict[str, object], str]:
    """What an answer shows.

    Raises:
        Told: nothing that is text, or nothing that can be read.
    """
    given = answer.header("Content-Type")
    kind = given.partition(";")[0].strip().lower()[:100]
    head: dict[str, object] = {
        "outcome": "page",
        "url": url,
        "status": answer.status,
        "reason": answer.response.reason[:200],
    }
    head["type"] = kind
    if kind and _TEXT.fullmatch(kind) is None:
        raise Told("binary", url=url, type=kind, size=answer.header("Content-Length")[:20])
    data, cut = body(job, answer)
    charset = charset_of(given, kind, data)
    if not charset.startswith("utf-16") and b"\0" in data[:_LOOKED_AT_BYTES]:
        raise Told("binary", url=url, type=kind or "unknown", size="")
    try:
        text = data.decode(charset)
    except UnicodeDecodeError:
        text = data.decode(charset, "replace")
        # Of a text that was cut only the last character may be broken.
        head["broken"] = not cut or "\ufffd" in text[:-1]
    if url.startswith("http://") and text.startswith(_GATE_SAYS):
        raise Told("refused", reason=text[len(_GATE_SAYS) :].strip()[:_MAX_LOCATION_CHARS])
    if kind in _HTML or (not kind and text.lstrip()[:1] == "<"):
        text, shortened = readable(text, url, job.max_bytes)
        cut = cut or shortened
    head.update(charset=charset, cut=cut)
    return head, text


def body(job: Job, answer: Answer) -> tuple[bytes, bool]:
    """The bytes of a body, at most as many as are wanted, and whether there were more.

    Raises:
        Told: it is packed in a way that is not known here, or wrongly.
    """
    packing = (answer.header("Content-Encoding") or "identity").strip().lower()
    if packing not in ("identity", "gzip", "x-gzip", "deflate"):
        raise Told("failed", reason=f"the page comes packed as {packing[:40]}, which was not asked for")
    unpack = None if packing == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
    data, taken = bytearray(), 0
    while len(data) <= job.max_bytes and taken <= job.max_bytes:
        answer.sock.settimeout(job.left_s())
        more = answer.response.read1(_READ_BYTES)
        taken += len(more)
        if not more and answer.response.length:
            raise Told("failed", reason="the server's answer ended before its end")
        if not more:
            return bytes(data), False
        try:
            data += more if unpack is None else unpack.decompress(more, job.max_bytes + 1 - len(data))
        except zlib.error as exc:
            raise Told("failed", reason=f"the page is not what it says, {packing}") from exc
    return bytes(data[: job.max_bytes]), True


def charset_of(given: str, kind: str, data: bytes) -> str:
    """How the bytes are to be read: as they say themselves, else as the server says, else UTF-8."""
    for bom, name in _BOMS:
        if data.startswith(bom):
            return name
    said = re.search(r"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", given, re.IGNORECASE)
    named = said.group(1) if said else ""
    if not named and kind in _HTML:
        meta = _META_CHARSET.search(data[:_LOOKED_AT_BYTES])
        named = meta.group(1).decode("ascii") if meta else ""
    named = named.lower()
    if _CHARSETS.fullmatch(named) is None:
        return "utf-8"
    try:
        return codecs.lookup(named).name
    except LookupError:
        return "utf-8"
