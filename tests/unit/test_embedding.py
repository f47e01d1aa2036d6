"""The Python API as far as it needs no engine: imports, options, own tools, and what is refused."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engine_session import make_session, of, play, results, use
from pydantic import BaseModel

import sandbox_agent
from sandbox_agent.config import RunConfig
from sandbox_agent.embedding.options import Options, config_of
from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.own_tools import pool_of, told
from sandbox_agent.errors import ConfigError, SandboxUnavailableError, ToolError
from sandbox_agent.events import PermissionDecided
from sandbox_agent.policy.load import load_policy
from sandbox_agent.tools.base import Tool, ToolContext
from sandbox_agent.types import Mode, ToolResult

DONE = {"text": "done"}


class Number(BaseModel):
    """An input as a program writes it."""

    number: int


def make(run: Any, name: str = "look_up", **options: Any) -> Tool:
    return sandbox_agent.build_tool(name=name, description="Looks it up.", input_model=Number, run=run, **options)


async def double(given: Number, ctx: ToolContext) -> str:
    return str(given.number * 2)


def test_importing_the_package_imports_nothing_else() -> None:
    """Not even its own rooms; a name is imported when it is asked for."""
    program = (
        "import sys; before = set(sys.modules); import sandbox_agent; dir(sandbox_agent)\n"
        "print(sorted(n for n in set(sys.modules) - before if n.startswith(('sandbox_agent.', 'anyio', 'pydantic'))))\n"
        "sandbox_agent.errors.ConfigError; print('pydantic' in sys.modules)\n"
        "sandbox_agent.run; print('rich' in sys.modules, 'anthropic' in sys.modules, 'docker' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "False", "False False False"]


def test_every_public_name_is_there_and_the_stub_has_the_same() -> None:
    """What a type checker believes is what there is."""
    stub = ast.parse(Path(sandbox_agent.__file__).with_suffix(".pyi").read_text())
    declared = {
        alias.asname: (node.module, alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {*declared, "__version__"} == set(sandbox_agent.__all__) == set(dir(sandbox_agent))
    for name, (module, _) in declared.items():
        value = getattr(sandbox_agent, name)
        assert module == "sandbox_agent" or value is getattr(sys.modules[str(module)], name), name
    with pytest.raises(AttributeError, match="has no attribute 'ruin'"):
        _ = sandbox_agent.ruin  # type: ignore[attr-defined]


async def test_own_tools_pass_the_gate_as_tools_of_the_program(tmp_path: Path) -> None:
    """One that only reads runs, others are asked, with their input as what it is about; rules name them."""
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(request)
        return ApprovalAnswer(request.input["number"] == 1, reason="not that one")

    pool = pool_of(load_policy(None), [make(double, read_only=True), make(double, "change")])
    own = [tool for tool in pool.tools if tool.source == "program"]
    turns = [
        {
            "tools": [
                use("look_up", number=4),
                use("change", number=1),
                use("change", number=2),
                use("change", number="x"),
            ]
        },
        DONE,
    ]
    async with make_session(turns, tmp_path, tools=own, policy=load_policy(None), approver=approver) as session:
        events = await play(session)
    assert [content for content, _ in results(events)][:2] == ["8", "2"]
    assert [(one.tool, one.subject.summary) for one in asked] == [
        ("change", '{"number": 1}'),
        ("change", '{"number": 2}'),
    ]
    decided = [(one.tool, one.verdict, one.answered_by) for one in of(events, PermissionDecided)]
    assert decided[:3] == [("look_up", "allow", None), ("change", "allow", "callback"), ("change", "deny", "callback")]
    assert {is_error for _, is_error in results(events)[2:]} == {True}

    turns = [{"tools": [use("change", number=3)]}, DONE]
    folder = tmp_path / "by_rule"
    folder.mkdir()
    async with make_session(turns, folder, tools=own, policy=load_policy(None, allow=["change"])) as session:
        assert results(await play(session)) == [("6", False)]


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (ToolError("There is no 7."), "There is no 7."),
        (ZeroDivisionError("by zero"), "look_up failed: ZeroDivisionError: by zero"),
        (ConnectionError("no route"), "look_up failed: ConnectionError: no route"),
        ({"a": 1}, "look_up failed: it gave a dict, not a text"),
        (ToolResult("as it is"), "as it is"),
    ],
)
async def test_whatever_an_own_tool_does_the_run_goes_on(tmp_path: Path, failure: Any, text: str) -> None:
    """A fault of the program's code is an error result, not the end."""

    async def run(given: Number, ctx: ToolContext) -> Any:
        if isinstance(failure, Exception):
            raise failure
        return failure

    turns = [{"tools": [use("look_up", number=7)]}, DONE]
    async with make_session(turns, tmp_path, tools=[make(run)]) as session:
        events = await play(session)
    assert results(events) == [(text, not isinstance(failure, ToolResult))]


async def test_an_own_tool_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    """It is cancelled where it waits."""
    ended = asyncio.Event()

    async def run(given: Number, ctx: ToolContext) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    turns = [{"tools": [use("look_up", number=7)]}, DONE]
    async with make_session(turns, tmp_path, tools=[make(run, timeout_s=0.01)]) as session:
        events = await play(session)
    assert results(events) == [("look_up did not finish within 0.01 s and was stopped.", True)]
    assert ended.is_set()


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([make(double, "Bash")], "the tool 'Bash' is called like the built-in tool Bash; rename it"),
        ([make(double, "bash")], "the tool 'bash' is called like the built-in tool Bash; rename it"),
        ([make(double, "mcp__a__b")], "the tool 'mcp__a__b': names in mcp__ are of MCP servers; rename it"),
        (
            [make(double), make(double, "Look_Up")],
            "the tool 'Look_Up' is called like another one of the program, look_up",
        ),
        ([double], "tools has a function in it; make a tool with build_tool"),
    ],
)
def test_names_that_an_own_tool_cannot_have_are_refused(tools: list[Any], message: str) -> None:
    """Also where a rule hides the built-in one: the name would mean something else."""
    for policy in (load_policy(None), load_policy(None, deny=["Bash"])):
        with pytest.raises(ConfigError) as caught:
            pool_of(policy, tools)
        assert str(caught.value).startswith(message)


def test_a_rule_hides_an_own_tool_and_what_is_left_is_named() -> None:
    """Whatever source it claims, it is the program's."""
    own = [make(double), make(double, "hidden")]
    pool = pool_of(load_policy(None, deny=["hidden"]), own)
    assert "hidden" not in pool.names()
    assert told(pool) == ("tools that run in the program, outside the container: look_up",)
    assert told(pool_of(load_policy(None), [])) == ()


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"worksapce": "."}, TypeError, "there is no option 'worksapce'; there are workspace, model, "),
        ({"mode": "yolo"}, ConfigError, "mode 'yolo': one of default, acceptEdits, "),
        ({"allow": "Bash"}, ConfigError, "allow is a list, not one text"),
        ({"apply": "maybe"}, ValueError, 'apply is "never" or "always", not \'maybe\''),
        ({"task": " "}, ValueError, "the task is empty"),
    ],
)
def test_options_that_cannot_be_are_refused_at_the_call(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    """Before anything starts."""
    with pytest.raises(kind) as caught:
        sandbox_agent.run(**{"task": "x", **options})
    assert str(caught.value).startswith(message)


def test_every_option_of_a_run_can_be_given_from_a_program() -> None:
    """None is forgotten when one is added, and each goes where it belongs."""
    given: Any = {field.name: f"<{field.name}>" for field in dataclasses.fields(RunConfig)}
    lists: Any = {"allow": ("<allow>",), "deny": ("<deny>",), "mcp_config": (Path("/m"),), "mcp_servers": ("<m>",)}
    lists |= {"checks": ("<check>",), "check_files": ("<pattern>",)}
    given |= {
        "mode": "plan",
        "workspace": Path("/w"),
        "record": None,
        "answer_schema": {"type": "object"},
        **{name: lists[name] for name in lists if name in given},
    }
    config = config_of(given)
    assert dataclasses.asdict(config) == {**given, "mode": Mode.PLAN}
    assert set(given) <= set(Options.__annotations__)
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    assert [name for name in Options.__annotations__ if f"`{name}`" not in page] == []


async def test_without_an_engine_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised to whoever iterates, awaits, or opens a session."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    script = tmp_path / "script.yaml"
    script.write_text('{"turns": [{"text": "done"}]}')
    options: Any = {"workspace": tmp_path, "model": f"script:{script}"}
    with pytest.raises(SandboxUnavailableError):
        await sandbox_agent.run("x", **options)
    with pytest.raises(SandboxUnavailableError):
        async for _ in sandbox_agent.run("x", **options):
            pass
    with pytest.raises(SandboxUnavailableError):
        async with sandbox_agent.Session(**options):
            pass
    with pytest.raises(ConfigError, match="is called like the built-in tool Bash"):
        await sandbox_agent.run("x", tools=[make(double, "Bash")], **options)


async def test_a_session_or_run_used_the_wrong_way_says_so(tmp_path: Path) -> None:
    """Not open, not ended, twice."""
    session = sandbox_agent.Session(workspace=tmp_path)
    for act in (session.interrupt, lambda: session.send("x"), lambda: session.id):
        with pytest.raises(RuntimeError, match="the session is not open"):
            act()
    with pytest.raises(ValueError, match="when is one of now, next, later"):
        session.send("x", "soon")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no task of this session has ended"):
        _ = session.result
    with pytest.raises(RuntimeError, match="the session is not open"):
        await session.ask("x")
    run = sandbox_agent.run("x", workspace=tmp_path)
    with pytest.raises(RuntimeError, match="the run has not ended"):
        _ = run.result
    aiter(run)
    with pytest.raises(RuntimeError, match="a run goes once"):
        aiter(run)
