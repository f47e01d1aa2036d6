"""What the gate tells is bounded, whatever tools ask for, and its sums are right all the same."""

from __future__ import annotations

from sandbox_agent.sandboxes.egress.gate import Asked, Refusal
from sandbox_agent.sandboxes.egress.ledger import BEYOND_KINDS, MAX_KINDS, TOLD_EACH, Decided, Ended, Ledger, Told

HOST = Asked("a.org", 443)


def test_the_sums_of_everything_are_told_at_the_end() -> None:
    """After fewer and fewer words in between; once only."""
    told = list[Told]()
    ledger = Ledger(told.append)
    for _ in range(100):
        passing = ledger.allowed(HOST, "connect", "198.51.100.1")
        passing.sent(1)
        passing.received(10)
        passing.end()
    before = len(told)
    ledger.flush()
    ledger.flush()

    assert before == 2 * (TOLD_EACH + 2)
    decided, ended = told[before:]
    assert isinstance(decided, Decided)
    assert decided.times == 100
    assert isinstance(ended, Ended)
    assert (ended.total_sent_bytes, ended.total_received_bytes) == (100, 1_000)
    assert ledger.total_bytes == 1_100


def test_names_without_end_are_told_as_one() -> None:
    """A tool may ask for as many as it likes, and put what it likes into them."""
    told = list[Told]()
    ledger = Ledger(told.append)
    for number in range(3 * MAX_KINDS):
        ledger.refused(Asked(f"x{number}.org", 443), Refusal(f"x{number}.org:443 is not listed"))
    ledger.flush()

    assert len(told) < MAX_KINDS + TOLD_EACH + 20
    last = told[-1]
    assert last == Decided(asked=BEYOND_KINDS, allowed=False, reason="refused", times=2 * MAX_KINDS)


def test_names_without_end_that_are_let_pass_are_told_as_one() -> None:
    """Below a listed *.example.org there may be any number of them."""
    told = list[Told]()
    ledger = Ledger(told.append)
    for number in range(3 * MAX_KINDS):
        passing = ledger.allowed(Asked(f"x{number}.example.org", 443), "connect", "198.51.100.1")
        passing.sent(1)
        passing.end()
    ledger.flush()

    assert len(told) < 2 * (MAX_KINDS + TOLD_EACH + 20)
    last = [one for one in told if isinstance(one, Ended)][-1]
    assert (last.asked, last.total_sent_bytes) == (BEYOND_KINDS, 2 * MAX_KINDS)
