"""Names of servers' tools: valid, unique, the same every time, and told apart from every other server's."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.mcp.names import server_part, tool_name
from sandbox_agent.policy.rules import parse_rule
from sandbox_agent.types import Verdict

SERVERS = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("git", "git_log", "mcp__git__git_log"),
        ("git", "a__b", "mcp__git__a__b"),
        ("my-server", "read-file", "mcp__my-server__read-file"),
        ("git", "log.all", "mcp__git__log_all_"),
        ("git", "", "mcp__git___"),
        ("a.b", "x", "mcp__a_b_"),
        ("a__b", "x", "mcp__a_b_"),
    ],
)
def test_a_valid_name_stays_and_any_other_gets_a_mark_of_its_own(server: str, tool: str, name: str) -> None:
    """What is cut or changed has six characters of its hash."""
    assert re.fullmatch(re.escape(name) + r"(?:[0-9a-f]{6}(?:__x)?)?", tool_name(server, tool))


@given(server=SERVERS, tool=st.text(max_size=200))
def test_every_name_is_one_that_the_api_takes(server: str, tool: str) -> None:
    """Whatever server and tool are called; a rule about the server fits it, and one about another does not."""
    name = tool_name(server, tool)

    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
    assert name.startswith(f"mcp__{server_part(server)}__")
    assert "__" not in server_part(server)
    assert name == tool_name(server, tool)
    assert parse_rule(f"mcp__{server_part(server)}__*", Verdict.DENY).names(name)


@given(first=st.tuples(SERVERS, st.text(max_size=80)), second=st.tuples(SERVERS, st.text(max_size=80)))
def test_two_tools_have_two_names(first: tuple[str, str], second: tuple[str, str]) -> None:
    """Of one server or of two: no tool can take another one's place by what it is called."""
    assert (first == second) == (tool_name(*first) == tool_name(*second))
