"""One spelling for every host, and no second reading of any text."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.hostnames import (
    HostEntry,
    HostnameError,
    authority,
    canonical_host,
    entry_of,
    entry_of_json,
    is_address,
    split_authority,
)

LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
NAME = st.builds(lambda labels, last: ".".join([*labels, last]), st.lists(LABEL, max_size=4), st.just("org"))


@given(NAME, st.booleans(), st.data())
def test_case_and_a_final_dot_make_no_other_host(name: str, dot: bool, data: st.DataObject) -> None:
    """All spellings of a name are the same one, and that is its own spelling."""
    spelled = "".join(data.draw(st.sampled_from([char, char.upper()])) for char in name) + "." * dot

    assert canonical_host(spelled) == name
    assert canonical_host(name) == name
    assert not is_address(name)


@given(st.text(max_size=40))
def test_what_is_taken_is_plain(text: str) -> None:
    """Whatever passes is a name of letters, digits and dashes, or an address that Python reads the same way."""
    try:
        host = canonical_host(text)
    except HostnameError:
        return
    assert canonical_host(f"[{host}]" if ":" in host else host) == host
    if is_address(host):
        assert str(ipaddress.ip_address(host)) == host
    else:
        assert set(host) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")


@given(st.ip_addresses(v=4))
def test_an_address_is_taken_in_its_usual_spelling_only(address: ipaddress.IPv4Address) -> None:
    """As one number, in hex, in octal, with fewer parts: programs read these as the same address, so none is taken."""
    assert canonical_host(str(address)) == str(address)
    number = int(address)
    parts = str(address).split(".")
    for other in (
        str(number),
        hex(number),
        f"0{number:o}",
        ".".join(f"0x{int(part):x}" for part in parts),
        ".".join(f"0{int(part):o}" for part in parts),
        f"{parts[0]}.{number & 0xFFFFFF}",
        f"{parts[0]}.{parts[1]}.{number & 0xFFFF}",
    ):
        with pytest.raises(HostnameError):
            canonical_host(other)


@given(st.ip_addresses(v=6))
def test_ipv6_has_one_spelling(address: ipaddress.IPv6Address) -> None:
    """Long or short, it is in brackets where it comes in and without inside."""
    assert canonical_host(f"[{address.exploded}]") == str(address)
    host, port = split_authority(authority(str(address), 443))
    assert (canonical_host(host), port) == (str(address), 443)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        ".a",
        "-a.org",
        "a-.org",
        "a_b.org",
        "a b.org",
        "a.org\0.b.org",
        "a.org\n",
        "a%2eorg",
        "a.org/",
        "user@a.org",
        "bücher.example",
        "a.org。",
        "ⓐ.org",
        "x" * 64 + ".org",
        ".".join(["x" * 60] * 5),
        "a.0",
        "a.0x1",
        "1.2.3",
        "1.2.3.4.5",
        "1.2.3.256",
        "01.2.3.4",
        "::1",
        "[::1%eth0]",
        "[fe80::1%25eth0]",
        "[1.2.3.4]",
        "[::1",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(text: str) -> None:
    """Nothing is repaired."""
    with pytest.raises(HostnameError):
        canonical_host(text)


@pytest.mark.parametrize(
    "text",
    ["a.org", "a.org:", "a.org:0", "a.org:65536", "a.org:080", "a.org:+1", "u@a.org:1", "a.org:1/", ":1", "a:1:2"],
)
def test_an_authority_is_host_and_port_and_no_more(text: str) -> None:
    """Neither user information, nor a path, nor a port that is none."""
    with pytest.raises(HostnameError):
        split_authority(text)


@pytest.mark.parametrize(
    ("entry", "host", "covered"),
    [
        ("a.org:443", "a.org", True),
        ("a.org:443", "x.a.org", False),
        ("*.a.org:443", "x.a.org", True),
        ("*.a.org:443", "x.y.a.org", True),
        ("*.a.org:443", "a.org", False),
        ("*.a.org:443", "xa.org", False),
        ("*.a.org:443", "a.org.evil.test", False),
        ("1.2.3.4:443", "1.2.3.4", True),
    ],
)
def test_an_entry_covers_its_host_or_what_is_below_it(entry: str, host: str, covered: bool) -> None:
    """A wildcard is for whole labels, and not for the name itself."""
    assert entry_of(entry).covers(host, 443) is covered
    assert not entry_of(entry).covers(host, 444)


@pytest.mark.parametrize("entry", [HostEntry("*.a.org", 1, True), HostEntry("@node"), HostEntry("::1", 5)])
def test_an_entry_survives_the_record(entry: HostEntry) -> None:
    """As JSON and back."""
    assert entry_of_json(entry.as_json()) == entry


@pytest.mark.parametrize(
    "data", [{}, {"host": 3}, {"host": "a.org"}, {"host": "a/b", "port": 1}, {"host": "a", "port": "1"}]
)
def test_a_changed_record_is_no_entry(data: dict[str, object]) -> None:
    """It is refused, not guessed."""
    with pytest.raises(HostnameError):
        entry_of_json(data)
