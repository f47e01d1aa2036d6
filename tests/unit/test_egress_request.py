"""The head of a proxy request: what two programs could read in two ways is refused."""

from __future__ import annotations

import h11
import pytest
from egress_rig import connect_to, get
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.sandboxes.egress.request import Request, RequestError, outgoing, parse_head

HEAD = "GET http://a.org/ HTTP/1.1\r\n"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_tunnel_is_asked_for_in_both_versions(version: str) -> None:
    """urllib says 1.0, curl 1.1; its headers do not matter."""
    request = parse_head(connect_to("A.org:443", version))
    assert (request.tunnel, request.host, request.port) == (True, "A.org", 443)


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("http://a.org/x?y=1", "a.org", 80, b"/x?y=1"),
        ("HTTP://a.org", "a.org", 80, b"/"),
        ("http://a.org?q", "a.org", 80, b"/?q"),
        ("http://a.org:8080/", "a.org", 8080, b"/"),
        ("http://[2001:db8::1]/", "[2001:db8::1]", 80, b"/"),
        ("http://[2001:db8::1]:81/", "[2001:db8::1]", 81, b"/"),
        ("http://a.org//b.org/http://c.org/", "a.org", 80, b"//b.org/http://c.org/"),
    ],
)
def test_a_plain_request_names_its_host_in_its_target(url: str, host: str, port: int, path: bytes) -> None:
    """And that host alone."""
    request = parse_head(get(url, host=url.partition("://")[2].split("/")[0].split("?")[0]))
    assert (request.host, request.port, request.path) == (host, port, path)


BAD = [
    "GET / HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET https://a.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET ftp://a.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET //a.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http:/a.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http://u:p@a.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http://a.org@b.org/ HTTP/1.1\r\nHost: b.org\r\n\r\n",
    "GET http://a.org\\@b.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http://a.org#@b.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http://a.org/#x HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http://a.org:/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http://a.org:0/ HTTP/1.1\r\nHost: a.org:0\r\n\r\n",
    "GET http://a.org:99999/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http://a%2eorg/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET  http://a.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http://a.org/ HTTP/1.1 \r\nHost: a.org\r\n\r\n",
    "GET http://a.org/ b HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http://a.org/\0 HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http://a.org/\tb HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "GET http://a.org/ HTTP/2.0\r\nHost: a.org\r\n\r\n",
    "GET http://a.org/\r\n\r\n",
    "G(T http://a.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "\r\nGET http://a.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
    "CONNECT a.org HTTP/1.1\r\n\r\n",
    "CONNECT a.org:443/ HTTP/1.1\r\n\r\n",
    "CONNECT http://a.org:443 HTTP/1.1\r\n\r\n",
    "CONNECT u@a.org:443 HTTP/1.1\r\n\r\n",
    "CONNECT a.org:0443 HTTP/1.1\r\n\r\n",
    "CONNECT a.org:443\0.b.org:443 HTTP/1.1\r\n\r\n",
    HEAD + "\r\n",
    HEAD + "Host: b.org\r\n\r\n",
    HEAD + "Host: a.org:81\r\n\r\n",
    HEAD + "Host: a.org\r\nHost: a.org\r\n\r\n",
    HEAD + "Host: a.org\r\nhost: b.org\r\n\r\n",
    HEAD + "Host: a.org, b.org\r\n\r\n",
    HEAD + "Host: u@a.org\r\n\r\n",
    HEAD + "Host : a.org\r\n\r\n",
    HEAD + "Host:\r\n a.org\r\n\r\n",
    HEAD + "Host: a.org\r\nX: 1\r\n\tfolded\r\n\r\n",
    HEAD + "Host: a.org\r\nX: 1\nHost: b.org\r\n\r\n",
    HEAD + "Host: a.org\r\nX: 1\rHost: b.org\r\n\r\n",
    HEAD + "Host: a.org\r\nno colon\r\n\r\n",
    HEAD + "Host: a.org\r\n: x\r\n\r\n",
    HEAD + "Host: a.org\r\nX: a\0b\r\n\r\n",
    HEAD + "Host: a.org\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    HEAD + "Host: a.org\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
    HEAD + "Host: a.org\r\nContent-Length: 1, 1\r\n\r\n",
    HEAD + "Host: a.org\r\nContent-Length: +1\r\n\r\n",
    HEAD + "Host: a.org\r\nContent-Length: 0x1\r\n\r\n",
    HEAD + "Host: a.org\r\nContent-Length: -1\r\n\r\n",
    HEAD + "Host: a.org\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    HEAD + "Host: a.org\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    HEAD + "Host: a.org\r\nTransfer-Encoding: identity\r\n\r\n",
    HEAD + "Host: a.org\r\nTransfer-Encoding : chunked\r\n\r\n",
    HEAD + "Host: a.org\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
    "POST http://a.org/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    HEAD + "Host: a.org\r\n" + "X: 1\r\n" * 100 + "\r\n",
]


@pytest.mark.parametrize("head", BAD)
def test_what_could_be_read_in_two_ways_is_refused(head: str) -> None:
    """Targets with more than a host, a second host, folded or unclear headers, two lengths of a body."""
    with pytest.raises(RequestError):
        parse_head(head.encode("latin-1"))


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reading(data: bytes) -> None:
    """Everything is a request or a refusal."""
    try:
        request = parse_head(data + b"\r\n\r\n")
    except RequestError:
        return
    assert request.host


NAME = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,12}", fullmatch=True).filter(lambda name: name.lower() != "host")
VALUE = st.from_regex(r"[ -~]{0,20}", fullmatch=True)


@given(st.lists(st.tuples(NAME, VALUE), max_size=8), st.from_regex(r"[a-z0-9/?=&.%_-]{0,20}", fullmatch=True))
def test_what_goes_out_has_one_host_and_ends_its_connection(headers: list[tuple[str, str]], path: str) -> None:
    """Read again by the strict reader's own rules, there is one Host, one Connection, and one length at most."""
    head = f"GET http://a.org/{path} HTTP/1.1\r\nHost: a.org\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
    try:
        request = parse_head(head.encode())
    except RequestError:
        return
    data = h11.Connection(h11.CLIENT).send(outgoing(request, request.path))
    assert data is not None
    lines = data.removesuffix(b"\r\n\r\n").split(b"\r\n")
    names = [line.partition(b":")[0].lower() for line in lines[1:]]

    assert lines[0] == b"GET /" + path.encode() + b" HTTP/1.1"
    assert lines[1] == b"Host: a.org"
    assert names.count(b"host") == names.count(b"connection") == 1
    assert lines[-1] == b"Connection: close"
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    assert not {b"proxy-authorization", b"upgrade", b"keep-alive", b"te"} & {*names}


def test_what_belongs_to_the_connection_stays_behind() -> None:
    """Also headers that the client names in Connection."""
    text = get("http://a.org:81/", "Connection: close, X-Mine", "X-Mine: 1", "Proxy-Authorization: x", "X-Other: 2")
    request = parse_head(text)
    assert isinstance(request, Request)
    assert outgoing(request, request.path).headers == [
        (b"host", b"a.org:81"),
        (b"x-other", b"2"),
        (b"connection", b"close"),
    ]
