"""The rules of the gate: what is listed, where names may lead, and that it is closed whenever it is in doubt."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.hostnames import HostEntry, entry_of
from sandbox_agent.sandboxes.egress.gate import Asked, Gate, Passed, Refusal
from sandbox_agent.sandboxes.egress.ranges import RANGES, range_of

LISTED = entry_of("a.org:443")
PRIVATE = entry_of("a.org:443", allow_private=True)


def judged(entry: HostEntry, *addresses: str, own: Sequence[str] = ()) -> Passed | Refusal:
    gate = Gate([entry], is_own=lambda address: address in own)
    return gate.judge(Asked("a.org", 443), entry, addresses)


@given(st.text(max_size=30), st.integers(1, 65535))
def test_an_empty_list_is_closed(host: str, port: int) -> None:
    """Whatever is asked for."""
    assert isinstance(Gate().ask(host, port)[1], Refusal)


@pytest.mark.parametrize("host", ["a.org", "A.ORG", "a.org."])
def test_a_listed_host_passes_in_every_spelling(host: str) -> None:
    """Case and a final dot mean nothing."""
    assert Gate([LISTED]).ask(host, 443) == (Asked("a.org", 443), LISTED)


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        ("b.org", 443, "b.org:443 is not in sandbox.allow_hosts"),
        ("a.org", 80, "a.org:80 is not in sandbox.allow_hosts"),
        ("x.a.org", 443, "x.a.org:443 is not in sandbox.allow_hosts"),
        ("a.org.evil.test", 443, "a.org.evil.test:443 is not in sandbox.allow_hosts"),
        ("xa.org", 443, "xa.org:443 is not in sandbox.allow_hosts"),
        ("1.2.3.4", 443, "1.2.3.4:443 is not in sandbox.allow_hosts"),
        ("[::1]", 443, "[::1]:443 is not in sandbox.allow_hosts"),
        ("a.org\0.b.org", 443, "the host is not a host name"),
        ("0x7f.1", 443, "the host is not a host name, nor an IPv4 address of four plain decimal numbers"),
    ],
)
def test_what_is_not_listed_is_refused_with_the_setting(host: str, port: int, reason: str) -> None:
    """Before anything is resolved."""
    refusal = Gate([LISTED]).ask(host, port)[1]
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.unlisted) == (reason, reason.endswith("allow_hosts"))


def test_an_exact_entry_counts_before_a_wildcard() -> None:
    """Private addresses of one host do not open those of its neighbours, nor the other way round."""
    wide, exact = entry_of("*.a.org:1", allow_private=True), entry_of("x.a.org:1")
    assert Gate([wide, exact]).entry("x.a.org", 1) is exact
    assert Gate([wide, exact]).entry("y.a.org", 1) is wide


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.8.8", "loopback"),
        ("::1", "loopback"),
        ("169.254.169.254", "cloud metadata"),
        ("169.254.170.2", "cloud metadata"),
        ("100.100.100.200", "cloud metadata"),
        ("168.63.129.16", "cloud metadata"),
        ("fd00:ec2::254", "cloud metadata"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("fc00::1", "unique-local"),
        ("fd12:3456::1", "unique-local"),
        ("::ffff:127.0.0.1", "IPv4-mapped"),
        ("::ffff:8.8.8.8", "IPv4-mapped"),
        ("::ffff:0:7f00:1", "IPv4-translated"),
        ("::7f00:1", "IPv4-compatible"),
        ("64:ff9b::808:808", "NAT64"),
        ("64:ff9b::a00:1", "NAT64"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "cloud metadata"),
        ("64:ff9b:1::1", "this network"),
        ("64:ff9b:1::a00:1", "NAT64"),
        ("64:ff9b:1::808:808", "NAT64"),
        ("64:ff9b:1::a9fe:a9fe", "cloud metadata"),
        ("64:ff9b:1:a9fe:a9:fe00::", "cloud metadata"),
        ("64:ff9b:1:a9:fe:a9fe::", "cloud metadata"),
        ("64:ff9b:1::7f:0:100:0", "loopback"),
        ("64:ff9b:1:7f00:0:100::", "loopback"),
        ("64:ff9b:1:a00:0:100::", "NAT64"),
        ("2002:7f00:1::1", "6to4"),
        ("2001::1", "Teredo"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "this network"),
        ("::", "unspecified"),
        ("255.255.255.255", "broadcast"),
        ("240.0.0.1", "reserved"),
        ("192.0.0.1", "IETF protocols"),
        ("fec0::1", "site-local"),
        ("100::1", "discard"),
        ("fe80::1%eth0", "not an address"),
        ("2130706433", "not an address"),
        ("", "not an address"),
    ],
)
def test_a_name_may_not_lead_into_a_named_range(address: str, name: str) -> None:
    """The refusal says which."""
    refusal = judged(LISTED, address)
    assert isinstance(refusal, Refusal)
    assert refusal.address_range == name
    assert f"a.org:443 leads to {address} ({name})" in refusal.reason


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "192.0.2.1", "198.51.100.7", "203.0.113.80", "198.18.0.1", "172.32.0.1", "2001:db8::1", "2606:4700::1"],
)
def test_public_addresses_and_those_for_tests_pass(address: str) -> None:
    """Mirrors inside a company resolve to the latter; no library's idea of private has a say."""
    assert judged(LISTED, address) == Passed((address,))


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "192.168.1.1", "100.64.0.1", "fd12:3456::1"),
        *("64:ff9b::a00:1", "64:ff9b:1::a00:1", "64:ff9b:1:a00:0:100::", "64:ff9b:1::808:808"),
    ],
)
def test_allow_private_opens_private_ranges_for_its_host(address: str) -> None:
    """The refusal without it says so."""
    assert judged(PRIVATE, address) == Passed((address,))
    refusal = judged(LISTED, address)
    assert isinstance(refusal, Refusal)
    assert refusal.reason.endswith("allow_private: true at its entry in sandbox.allow_hosts permits that")


@pytest.mark.parametrize("one", [one for one in RANGES if one.opening == "never"], ids=lambda one: one.network)
def test_nothing_opens_the_other_ranges(one: object) -> None:
    """Metadata services, multicast and the forms of IPv6 that stand for other addresses."""
    address = str(one.network).split("/")[0]  # type: ignore[attr-defined]
    assert isinstance(judged(PRIVATE, address), Refusal)
    literal = HostEntry(address, 443, True)
    assert isinstance(judged(literal, address), Refusal)


@pytest.mark.parametrize(
    "address", ["64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1::7f00:1", "64:ff9b:1::"]
)
def test_an_address_inside_another_is_judged_itself(address: str) -> None:
    """What translates one into the other would take a private mirror's name to the metadata service."""
    assert isinstance(judged(PRIVATE, address), Refusal)


@pytest.mark.parametrize(
    ("entry", "address", "passes"),
    [
        (HostEntry("127.0.0.1", 443, True), "127.0.0.1", True),
        (HostEntry("localhost", 443, True), "127.0.0.1", True),
        (HostEntry("::1", 443, True), "::1", True),
        (HostEntry("127.0.0.1", 443), "127.0.0.1", False),
        (PRIVATE, "127.0.0.1", False),
    ],
)
def test_loopback_is_opened_for_itself_only(entry: HostEntry, address: str, passes: bool) -> None:
    """Whoever owns a listed name could point it there, at whatever listens on the machine."""
    assert isinstance(judged(entry, address), Passed) is passes


def test_the_machine_s_own_addresses_are_private() -> None:
    """Its services on a public address are not meant for the sandbox either."""
    refusal = judged(LISTED, "203.0.113.5", own=["203.0.113.5"])
    assert isinstance(refusal, Refusal)
    assert refusal.address_range == "this machine"
    assert judged(PRIVATE, "203.0.113.5", own=["203.0.113.5"]) == Passed(("203.0.113.5",))


def test_only_addresses_that_pass_are_connected_to() -> None:
    """In their order; a name with none at all is told apart."""
    assert judged(LISTED, "10.0.0.1", "203.0.113.5", "127.0.0.1", "203.0.113.6") == Passed(
        ("203.0.113.5", "203.0.113.6")
    )
    assert judged(LISTED) == Refusal("a.org:443 has no address", 502)


@given(st.ip_addresses())
def test_every_range_that_holds_an_address_is_found(address: object) -> None:
    """An address that no range of the table holds has no range, and the first that does names it."""
    found = range_of(str(address))
    holding = [one for one in RANGES if one.holds(address)]  # type: ignore[arg-type]
    assert (found is None) == (not holding)
    if found is not None and found.name != "NAT64" and not str(address).startswith("64:ff9b::"):
        assert found == holding[0]


def test_what_is_done_to_a_list_later_changes_no_gate() -> None:
    """It has the one that it was made with, to its end."""
    entries = [LISTED]
    gate = Gate(entries)
    entries[:] = [entry_of("b.org:443")]
    assert isinstance(gate.ask("a.org", 443)[1], HostEntry)
    assert isinstance(gate.ask("b.org", 443)[1], Refusal)
    with pytest.raises(AttributeError):
        gate.entries = tuple(entries)  # type: ignore[misc]
