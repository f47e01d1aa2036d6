"""What a run shows of the network: refusals at once, every host at the end, and the same for programs."""

from __future__ import annotations

from sandbox_agent.events import EgressDecided, EgressEnded
from sandbox_agent.frontends.network import HostsAsked, decision_line, line_of
from sandbox_agent.frontends.summary import RunSummary

ALLOWED = EgressDecided(host="a.org", port=443, verdict="allow", reason="listed", protocol="connect", address="1.1.1.1")
REFUSED = EgressDecided(host="b.org", port=80, verdict="deny", reason="b.org:80 is not in sandbox.allow_hosts", times=3)
ENDED = EgressEnded(
    host="a.org",
    port=443,
    sent_bytes=10,
    received_bytes=2_000,
    duration_s=0.5,
    total_sent_bytes=30,
    total_received_bytes=4_000,
)


def test_every_host_is_summed_up() -> None:
    """Counts and bytes are those of the last event of a kind, which are of the whole run."""
    summary = RunSummary()
    for event in (ALLOWED, ENDED, REFUSED):
        summary.feed(event)

    assert summary.network.as_json() == [
        {
            "host": "a.org",
            "port": 443,
            "allowed": 1,
            "refused": 0,
            "reasons": [],
            "sent_bytes": 30,
            "received_bytes": 4_000,
        },
        {
            "host": "b.org",
            "port": 80,
            "allowed": 0,
            "refused": 3,
            "reasons": ["b.org:80 is not in sandbox.allow_hosts"],
            "sent_bytes": 0,
            "received_bytes": 0,
        },
    ]
    assert summary.network.lines() == [
        "hosts asked for:",
        "  a.org:443: 1 connection, 30 B sent, 4.0 kB received",
        "  b.org:80: refused 3 times (b.org:80 is not in sandbox.allow_hosts)",
    ]


def test_a_run_without_network_says_nothing_of_it() -> None:
    """No heading without hosts."""
    assert HostsAsked().lines() == []


def test_a_long_list_of_hosts_is_cut() -> None:
    """A program may ask for as many names as it likes."""
    asked = HostsAsked()
    for number in range(1_000):
        asked.feed(EgressDecided(host=f"h{number}.org", port=1, verdict="deny", reason="no"))

    assert len(asked.lines()) == 32
    assert asked.lines()[-1] == "  and 970 more"
    assert len(asked.as_json()) == 1_000


def test_a_refusal_is_shown_once_and_safely() -> None:
    """What a tool asked for is its own choice, escape sequences included."""
    hostile = EgressDecided(host="\x1b[2J", port=1, verdict="deny", reason="the host is \x1b]0;x\x07 nothing")

    assert decision_line(REFUSED, verbose=True) is None
    shown = decision_line(hostile, verbose=False)
    assert shown is not None
    assert shown.isprintable()
    assert decision_line(ALLOWED, verbose=False) is None
    assert decision_line(ALLOWED, verbose=True) == "network: a.org:443 (connect)"


def test_programs_get_a_line_for_each() -> None:
    """Decision and end, with the calls that ran."""
    assert line_of(ENDED)["subtype"] == "egress_ended"
    assert line_of(REFUSED) == {
        "subtype": "egress_decided",
        "host": "b.org",
        "port": 80,
        "verdict": "deny",
        "reason": "b.org:80 is not in sandbox.allow_hosts",
        "protocol": "",
        "address": None,
        "address_range": None,
        "tool_use_ids": [],
        "times": 3,
    }
