"""What a run may use: counted for all agents together, told in time, and never guessed where a price is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_session import finished, make_session, of, play, read_like, use

from sandbox_agent.engine.budget import Budget
from sandbox_agent.errors import ConfigError
from sandbox_agent.events import AssistantMessage, LimitReached, UserMessage
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.models.prices import Prices
from sandbox_agent.policy.load import parse_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.types import Limits, Price, Usage

PRICE = Price(input=2.0, output=10.0, cache_write=2.5, cache_read=0.2, cache_write_1h=4.0)
MILLION = Usage(1_000_000, 1_000_000, 1_000_000, 1_000_000)
SONNET = "claude-sonnet-5-5"
KINDS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def test_a_given_price_counts_before_a_known_one() -> None:
    """By the first pattern that fits, with or without the kind of model before the name."""
    prices = Prices([("claude-sonnet-*", PRICE), ("script:*", Price(1, 1, 1, 1, 1)), ("*", Price(0, 0, 0, 0, 0))])
    assert prices.cost_usd("anthropic:" + SONNET, MILLION) == pytest.approx(14.7)
    assert prices.cost_usd("script:demo", MILLION) == 4.0
    assert prices.cost_usd("other", MILLION) == 0.0


def test_the_package_knows_prices_and_its_input_is_all_that_was_read() -> None:
    """The cache is not paid for twice; a name it does not know costs nobody knows what."""
    prices = Prices()
    whole = prices.cost_usd(SONNET, MILLION)
    parts = [prices.cost_usd(SONNET, Usage(**{name: 1_000_000})) for name in KINDS]
    assert None not in parts
    assert whole == pytest.approx(sum(part for part in parts if part is not None))
    assert parts[3] is not None
    assert parts[0] is not None
    assert 0 < parts[3] < parts[0] / 5
    assert prices.cost_usd("claude-nobody-knows", MILLION) is None
    assert prices.cost_usd("script:demo", MILLION) is None


@pytest.mark.parametrize("prices", [Prices(), Prices([("*", PRICE)])], ids=["known", "given"])
def test_what_goes_into_the_cache_for_an_hour_has_its_own_price(prices: Prices) -> None:
    """Of what is written there as much as the API says."""
    paid = [
        prices.cost_usd(SONNET, Usage(cache_creation_input_tokens=1_000_000, cache_creation_1h_input_tokens=an_hour))
        for an_hour in (0, 400_000, 1_000_000)
    ]
    read = prices.cost_usd(SONNET, Usage(input_tokens=1_000_000))
    assert read is not None
    assert paid == [pytest.approx(read * times) for times in (1.25, 1.55, 2.0)]


def test_without_the_package_nothing_is_known_and_the_way_to_it_is_named() -> None:
    """A limit on the cost stops the run before it starts."""
    prices = Prices(known=lambda model, usage: None)
    budget = Budget(Limits(cost_usd=1.5), prices)
    with pytest.raises(ConfigError) as caught:
        budget.check(["anthropic:claude-x"])
    assert str(caught.value) == (
        "the cost is limited to 1.5 USD, and no price is known for the model claude-x: give it in your "
        "policy, in USD for a million tokens, as in limits: {prices: {'claude-x': {input: 3, output: 15}}}"
    )
    example = str(caught.value).partition("as in ")[2]
    assert parse_policy(example, "p").prices[0][0] == "claude-x"
    Budget(Limits(), prices).check(["anthropic:claude-x"])
    known = Budget(Limits(cost_usd=1.5), Prices([("claude-*", PRICE)]))
    known.check(["anthropic:claude-x", None, "haiku"])
    with pytest.raises(ConfigError, match="no price is known for the model script:other"):
        known.check(["anthropic:claude-x", "script:other"])


def test_usage_is_kept_by_model_and_a_cost_is_unknown_once_one_price_is() -> None:
    """Never a sum that leaves something out."""
    budget = Budget(Limits(tokens=5_000_000, cost_usd=20), Prices([("a", PRICE)], known=lambda model, usage: None))
    assert (budget.cost_usd, budget.over()) == (None, None)
    budget.spend("a", MILLION)
    budget.spend("a", Usage())
    assert (budget.cost_usd, budget.total, budget.over()) == (pytest.approx(14.7), MILLION, None)
    budget.spend("b", Usage(1, 2))
    assert budget.usage == {"a": MILLION, "b": Usage(1, 2)}
    assert budget.cost_usd is None
    over = budget.over()
    assert over is not None
    assert (over.name, over.value) == ("cost_usd", 20)
    assert "no price is known for b" in over.reason
    budget.begin()
    assert (budget.cost_usd, budget.total, budget.over()) == (None, Usage(), None)


def test_a_limit_is_over_when_it_is_reached() -> None:
    """Tokens before money."""
    budget = Budget(Limits(tokens=10, cost_usd=0.00001), Prices([("a", PRICE)]))
    budget.spend("a", Usage(9, 0))
    assert budget.over() == ("cost_usd", 0.00001, "1.8e-05 were used")
    budget.spend("a", Usage(0, 1))
    assert budget.over() == ("tokens", 10, "10 were used")


def test_each_agent_is_warned_once_of_each_limit_at_four_fifths() -> None:
    """With small numbers of turns before the last one."""
    now = [100.0]
    budget = Budget(Limits(tokens=100, wall_s=10), Prices([("a", PRICE)]), clock=lambda: now[0])
    budget.spend("a", Usage(79))
    assert budget.warnings("main", 159, 200) == []
    [turns] = budget.warnings("main", 160, 200)
    assert turns.startswith("160 of the 200 requests to the model that this run may use are used.")
    budget.spend("a", Usage(1))
    now[0] += 9
    assert [words.split(" that ")[0] for words in budget.warnings("agent-1", 0, None)] == [
        "80 of the 100 tokens",
        "9 of the 10 seconds",
    ]
    assert len(budget.warnings("main", 161, 200)) == 2
    assert budget.warnings("main", 162, 200) == []
    assert [bool(Budget(Limits()).warnings("main", turn, 3)) for turn in range(4)] == [False, False, True, False]
    assert [bool(Budget(Limits()).warnings("main", turn, 1)) for turn in range(2)] == [False, False]
    budget.begin()
    assert budget.warnings("main", 160, 200) != []


def priced(limits: str) -> Policy:
    """A policy with these limits, in which a test's model has a price."""
    return parse_policy(
        f"rules: {{allow: [Read]}}\nlimits: {{prices: {{function: {{input: 1, output: 1}}}}, {limits}}}", "p"
    )


@pytest.mark.parametrize(
    ("limits", "name", "value", "error"),
    [
        ("tokens: 250000", "tokens", 250_000, "the limit tokens = 250,000 was reached (300,000 were used)"),
        ("cost_usd: 0.25", "cost_usd", 0.25, "the limit cost_usd = 0.25 was reached (0.30 were used)"),
    ],
)
async def test_a_run_that_reaches_a_limit_lands_softly(
    tmp_path: Path, limits: str, name: str, value: float, error: str
) -> None:
    """The calls of the last answer are carried out, the model was told before, and what was used is said."""
    policy = priced(limits)

    def played(request: ModelRequest) -> Any:
        return {"tools": [use("Read", name="a")], "usage": {"input_tokens": 90_000, "output_tokens": 10_000}}

    async with make_session(
        played, tmp_path, tools=[read_like("Read")], policy=policy, limits=policy.limits
    ) as session:
        events = await play(session)

    end = finished(events)
    assert (end.status, end.error, end.turns) == ("limit", error, 3)
    assert (end.usage, end.cost_usd) == (Usage(270_000, 30_000), pytest.approx(0.3))
    assert end.model_usage == {"function": end.usage}
    assert [(one.limit, one.value) for one in of(events, LimitReached)] == [(name, value)]
    told = [one.content[0]["text"] for one in of(events, UserMessage)]
    assert told[0] == "do it"
    assert [text.split(" are used.")[0] for text in told[1:]] == [
        "200,000 of the 250,000 tokens that this run may use"
        if name == "tokens"
        else "0.20 of the 0.25 US dollars that this run may use"
    ]
    assert session.messages[-1]["content"][0]["type"] == "tool_result"


async def test_the_next_run_of_a_session_counts_from_the_start(tmp_path: Path) -> None:
    """As its turns and its time do."""
    policy = priced("tokens: 100")
    turn = {"text": "done", "usage": {"input_tokens": 90}}
    async with make_session([turn, turn], tmp_path, policy=policy, limits=policy.limits) as session:
        assert finished(await play(session)).status == "done"
        end = finished(await play(session))
    assert (end.status, end.usage) == ("done", Usage(90))


async def test_each_answer_says_what_its_request_cost(tmp_path: Path) -> None:
    """And all of them what the run did; nothing where nothing was used."""
    policy = parse_policy("rules: {allow: [Read]}\nlimits: {prices: {'*': {input: 1, output: 1}}}", "p")
    turns = [{"tools": [use("Read", name="a")], "usage": {"input_tokens": 90}}, {"text": "done"}]
    async with make_session(turns, tmp_path, tools=[read_like("Read")], policy=policy, limits=policy.limits) as session:
        events = await play(session)
    costs = [answer.cost_usd for answer in of(events, AssistantMessage)]
    assert costs == [pytest.approx(finished(events).cost_usd), None]
    assert costs[0] > 0


async def test_a_price_that_is_missing_in_the_middle_ends_a_run_with_a_limit(tmp_path: Path) -> None:
    """Another model may answer than was asked; without a limit the cost is just not known."""
    for limits, status in (("cost_usd: 9", "limit"), ("turns: 5", "done")):
        policy = parse_policy(f"rules: {{allow: [Read]}}\nlimits: {{{limits}}}", "p")
        turns = [{"tools": [use("Read", name="a")], "usage": {"input_tokens": 5}}, {"text": "done"}]
        folder = tmp_path / status
        folder.mkdir()
        async with make_session(
            turns, folder, tools=[read_like("Read")], policy=policy, limits=policy.limits
        ) as session:
            end = finished(await play(session))
        assert (end.status, end.cost_usd) == (status, None)
