"""`sandbox.allow_hosts`: what an entry means, and that no layer opens more than another locks."""

from __future__ import annotations

from pathlib import Path

import pytest
from layers_desk import LayersDesk

from sandbox_agent.hostnames import HostEntry
from sandbox_agent.policy.hostlist import is_wider, parse_entry
from sandbox_agent.policy.load import parse_policy

HELD = ["a.org:443", "*.b.org:443", {"host": "c.org", "port": 80, "allow_private": True}, "@python"]


@pytest.fixture
def desk(tmp_path: Path) -> LayersDesk:
    """Nobody has written a policy yet."""
    return LayersDesk(tmp_path)


def test_entries_are_canonical() -> None:
    """Case, a final dot and international letters make no other host; a mapping may have the port in either place."""
    text = (
        "sandbox: {allow_hosts: [A.Org.:443, 'bücher.example:443', '*.B.org:1', '@node',"
        " {host: c, port: 2, allow_private: true}, {host: 'c:2'}]}\n"
    )
    assert parse_policy(text).sandbox.allow_hosts == (
        HostEntry("a.org", 443),
        HostEntry("xn--bcher-kva.example", 443),
        HostEntry("*.b.org", 1),
        HostEntry("@node"),
        HostEntry("c", 2, True),
        HostEntry("c", 2),
    )


@pytest.mark.parametrize("text", ["", "sandbox: {allow_hosts: }\n", "sandbox: {allow_hosts: []}\n"])
def test_without_entries_nothing_is_open(text: str) -> None:
    """Left out, empty and null are the same."""
    assert parse_policy(text).sandbox.allow_hosts == ()


@pytest.mark.parametrize(
    ("offered", "wider"),
    [
        ("a.org:443", False),
        ("x.b.org:443", False),
        ("*.x.b.org:443", False),
        ("c.org:80", False),
        ({"host": "c.org", "port": 80, "allow_private": True}, False),
        ("@python", False),
        ("a.org:444", True),
        ("b.org:443", True),
        ("x.a.org:443", True),
        ("*.org.uk:443", True),
        ({"host": "a.org", "port": 443, "allow_private": True}, True),
        ({"host": "@python", "allow_private": True}, True),
        ("@node", True),
        ("pypi.org:443", True),
    ],
)
def test_what_opens_more_than_a_list_is_wider(offered: object, wider: bool) -> None:
    """Another port, a name beyond the wildcard, private addresses: all are more."""
    assert is_wider([parse_entry(offered)], [parse_entry(one) for one in HELD]) is wider


def test_a_locked_list_may_be_narrowed_and_not_widened(desk: LayersDesk) -> None:
    """Both places are named; what the administrator left empty stays closed."""
    desk.file("etc/policy.yaml", "lock: sandbox\nsandbox: {allow_hosts: ['*.a.org:443']}\n")
    assert desk.run(desk.file("n.yaml", "sandbox: {allow_hosts: ['x.a.org:443']}\n")).sandbox.allow_hosts == (
        HostEntry("x.a.org", 443),
    )
    told = desk.refusal(desk.file("n.yaml", "sandbox:\n  allow_hosts: [b.org:443]\n"))
    assert told == (
        "n.yaml:2: sandbox.allow_hosts [b.org:443] is looser than [*.a.org:443], "
        "which etc/policy.yaml:1 locks; take it out"
    )
    desk.file("etc/policy.yaml", "lock: sandbox.allow_hosts\n")
    assert "is looser than []" in desk.refusal(desk.file("n.yaml", "sandbox: {allow_hosts: ['@python']}\n"))


def test_a_locked_amount_is_capped_and_a_locked_bundle_kept(desk: LayersDesk) -> None:
    """No limit is more than any; another bundle is another trust."""
    desk.file("etc/policy.yaml", "lock: sandbox\nsandbox: {egress: 1GiB, ca_bundle: /etc/ca.pem}\n")
    assert desk.run(desk.file("n.yaml", "sandbox: {egress: null}\n")).sandbox.egress_bytes == 1024**3
    assert "sandbox.ca_bundle ~/x is looser" in desk.refusal(desk.file("n.yaml", "sandbox: {ca_bundle: ~/x}\n"))
