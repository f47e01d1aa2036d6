"""No agent, however deep and of whatever type, may do what one above it may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_session import make_session, make_tool, read_like
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.engine.agent_types import AgentType
from sandbox_agent.engine.child import child_of
from sandbox_agent.engine.gate import _strictest
from sandbox_agent.engine.session import Session
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.shell import analyse
from sandbox_agent.types import Mode, PathAccess, PermissionRequest, Subject, Verdict

NAMES = ("Bash", "Edit", "Glob", "Read", "Task", "Write", "mcp__a__get", "mcp__a__set", "mcp__b__get")
TOOLS = [read_like(name) if name in ("Read", "Glob") else make_tool(name) for name in NAMES]
POLICIES = (
    load_policy(None),
    load_policy(None, allow=["Bash", "Edit", "mcp__a"], deny=["Read(secret/**)"], ask=["Bash(git:*)"]),
    load_policy("readonly"),
    load_policy(None, mode=Mode.BYPASS, deny=["Bash(rm:*)"]),
)

PATTERNS = st.lists(st.sampled_from([*NAMES, "mcp__*", "mcp__a__*", "*", "R*"]), max_size=4).map(tuple)
TYPES = st.builds(
    AgentType,
    name=st.just("any"),
    description=st.just("d"),
    instruction=st.just("i"),
    tools=st.none() | PATTERNS,
    disallowed_tools=PATTERNS,
    mode=st.none() | st.sampled_from(Mode),
)
TREES = st.lists(st.tuples(st.integers(0, 100), TYPES), min_size=1, max_size=6)
"""Each agent with the number of its parent among those before it."""

COMMANDS = ("ls", "cat secret/a", "git push", "rm -rf x", "make", "echo a > b", "touch a && git status", "cd ..; ls")
PATHS = ("/workspace/a", "/workspace/secret/a", "/workspace/.git/config", "/tmp/a", "/etc/passwd")


def on_command(command: str) -> PermissionRequest:
    paths = tuple(analyse(command).accesses("/workspace"))
    return PermissionRequest("Bash", Subject(command, paths=paths, command=command), "")


def on_path(name: str, path: str) -> PermissionRequest:
    reads = name in ("Read", "Glob")
    subject = Subject(path, paths=(PathAccess(path, write=not reads, resolved=path),))
    return PermissionRequest(name, subject, "", read_only=reads, edits=not reads)


def on_server(name: str, read_only: bool) -> PermissionRequest:
    return PermissionRequest(name, Subject(name), "", read_only=read_only, source="mcp:a")


REQUESTS = (
    st.builds(on_command, st.sampled_from(COMMANDS))
    | st.builds(on_path, st.sampled_from(["Read", "Glob", "Edit", "Write"]), st.sampled_from(PATHS))
    | st.builds(on_server, st.sampled_from(["mcp__a__get", "mcp__a__set", "mcp__b__get"]), st.booleans())
)


def above(session: Session) -> list[Session]:
    return [] if session.parent is None else [session.parent, *above(session.parent)]


def grown(root: Session, tree: list[tuple[int, AgentType]]) -> list[Session]:
    agents = [root]
    for number, (parent, kind) in enumerate(tree):
        agents.append(child_of(agents[parent % len(agents)], kind, f"agent-{number}", None))
    return agents


@pytest.mark.parametrize("policy", POLICIES, ids=range(len(POLICIES)))
async def test_no_agent_has_more_than_those_above_it(tmp_path: Path, policy: Policy) -> None:
    """Tools are a subset of every ancestor's, and no decision is looser than any ancestor's."""
    async with make_session([{"text": "done"}], tmp_path, tools=TOOLS, policy=policy) as root:

        @settings(max_examples=120, deadline=None, derandomize=True)
        @given(TREES, st.lists(REQUESTS, min_size=1, max_size=6))
        def check(tree: list[tuple[int, AgentType]], requests: list[PermissionRequest]) -> None:
            for agent in grown(root, tree):
                for ancestor in above(agent):
                    assert set(agent.pool.names()) <= set(ancestor.pool.names())
                    for request in requests:
                        own = _strictest(agent.policy, request, agent.modes).verdict
                        assert own >= _strictest(ancestor.policy, request, ancestor.modes).verdict
                        assert own >= ancestor.policy.decide(request, ancestor.mode).verdict

        check()


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.BYPASS])
async def test_a_type_that_bypasses_permissions_bypasses_none(tmp_path: Path, mode: Mode) -> None:
    """What the session would ask or deny stays asked or denied, two levels down, too."""
    bypassing: Any = AgentType("any", "d", "i", mode=Mode.BYPASS)
    async with make_session([{"text": "done"}], tmp_path, tools=TOOLS, policy=load_policy(None, mode=mode)) as root:
        child = child_of(root, bypassing, "agent-1", None)
        grandchild = child_of(child, bypassing, "agent-1.1", None)
        for agent in (child, grandchild):
            for request in (on_command("make"), on_command("rm -rf x"), on_path("Write", "/workspace/a")):
                wanted = root.policy.decide(request, mode)
                assert _strictest(agent.policy, request, agent.modes).verdict is wanted.verdict
        assert _strictest(root.policy, on_command("make"), child.modes).verdict is not Verdict.ALLOW
