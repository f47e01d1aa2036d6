"""The name in a ClientHello must be the host that was asked for, and the only one."""

from __future__ import annotations

import pytest
from egress_rig import client_hello
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.sandboxes.egress.sni import HelloError, check_hello, record_bytes


def hello(*extensions: bytes, rest: bytes = b"") -> bytes:
    """A record with a hello that has these extensions, and `rest` behind the hello."""
    listed = b"".join(extensions)
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + sized(2, listed)
    return record(b"\x01" + sized(3, body) + rest)


def record(data: bytes) -> bytes:
    return b"\x16\x03\x01" + sized(2, data)


def sized(size: int, data: bytes) -> bytes:
    return len(data).to_bytes(size) + data


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2) + sized(2, data)


def names(*hosts: bytes, kind: int = 0) -> bytes:
    """The server_name extension."""
    return extension(0, sized(2, b"".join(bytes([kind]) + sized(2, host) for host in hosts)))


def refusal(data: bytes, host: str = "a.org") -> str:
    with pytest.raises(HelloError) as caught:
        check_hello(data, host)
    return str(caught.value)


@pytest.mark.parametrize("host", ["a.org", "xn--bcher-kva.example", "x" * 60 + ".a.org"])
def test_a_real_client_s_hello_passes_for_its_host(host: str) -> None:
    """As Python's own TLS makes it."""
    data = client_hello(host)
    assert record_bytes(data) == len(data)
    check_hello(data, host)
    assert refusal(data, "b.org") == f"the TLS name is {host!r}, but b.org was asked for"


def test_names_are_compared_as_names() -> None:
    """Case means nothing."""
    check_hello(hello(names(b"A.Org")), "a.org")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (hello(), "the TLS ClientHello names no host (no SNI)"),
        (client_hello(None), "the TLS ClientHello names no host (no SNI)"),
        (hello(names(b"b.org")), "the TLS name is 'b.org', but a.org was asked for"),
        (hello(names(b"a.org", b"b.org")), "the TLS name is 'a.org', 'b.org', but a.org was asked for"),
        (hello(names(b"a.org\0.b.org")), "the TLS name is 'a.org\\x00.b.org', but a.org was asked for"),
        (hello(names(b"a.org"), names(b"b.org")), "the ClientHello is malformed"),
        (hello(names(b"a.org", kind=1)), "the ClientHello is malformed"),
        (hello(names(b"a.org"), extension(0xFE0D, b"x")), "the TLS name is encrypted (encrypted_client_hello)"),
        (hello(extension(0xFFCE, b"x"), names(b"a.org")), "the TLS name is encrypted (encrypted_server_name)"),
        (hello(names(b"a.org"), rest=hello(names(b"b.org"))[5:]), "there is more in the first TLS record"),
        (record(b"\x01" + (500).to_bytes(3) + b"x" * 20), "the ClientHello is spread over several TLS records"),
        (record(b"\x02" + sized(3, b"x" * 60)), "the first TLS message is not a ClientHello"),
        (record(b"\x01" + sized(3, b"\x03\x03short")), "the ClientHello is malformed"),
        (hello(b"\0\0\0\x09abc"), "the ClientHello is malformed"),
    ],
)
def test_a_hello_that_hides_its_name_is_refused(data: bytes, reason: str) -> None:
    """No name, another, two, an encrypted one, or a shape that servers could read differently."""
    assert refusal(data).startswith(reason)


def test_an_address_is_asked_for_without_a_name() -> None:
    """TLS has no names for addresses."""
    check_hello(hello(), "192.0.2.1")
    assert "but the address 192.0.2.1 was asked for" in refusal(hello(names(b"a.org")), "192.0.2.1")


def test_a_name_without_end_is_cut_in_what_is_said_of_it() -> None:
    """What is refused is recorded, so often as it comes."""
    assert len(refusal(hello(names(b"a" * 15_000)))) < 200
    assert len(refusal(hello(names(b"a" * 5_000, b"b" * 5_000, b"c" * 5_000)))) < 500
    assert len(refusal(hello(names(b"a" * 15_000)), "192.0.2.1")) < 200


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1", b"SSH-2.0-x", b"\x80\x2e\x01", b"\x16\x02\x00\x00\x10", b"\x17\x03\x03\0\x10"]
)
def test_what_is_not_tls_is_known_by_its_first_bytes(data: bytes) -> None:
    """Nothing is waited for."""
    with pytest.raises(HelloError, match="not TLS"):
        record_bytes(data[:2])


def test_a_record_is_as_long_as_it_says() -> None:
    """Unknown while its header is not there; empty and oversized ones are refused."""
    assert record_bytes(b"\x16\x03\x01\x02") is None
    assert record_bytes(b"\x16\x03\x01\x02\x00") == 517
    for size in (0, 4, 16 * 1024 + 1, 65535):
        with pytest.raises(HelloError):
            record_bytes(b"\x16\x03\x01" + size.to_bytes(2))


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reading(data: bytes) -> None:
    """Everything passes or is refused; random bytes never pass for a name."""
    with pytest.raises(HelloError):
        check_hello(record(data), "a.org")


@given(st.integers(0, 600), st.integers(0, 255))
def test_a_changed_hello_is_refused_or_has_the_name_still(at: int, value: int) -> None:
    """Flipping a byte of a real hello makes no hello for another host pass."""
    changed = bytearray(client_hello("a.org"))
    changed[at % len(changed)] = value
    try:
        check_hello(bytes(changed), "a.org")
    except HelloError:
        return
    assert b"a.org" in bytes(changed).lower()
