"""Starts MCP servers in their places, in a session that is thrown away, and tells what became of each."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import click

from sandbox_agent.cli.faults import say
from sandbox_agent.config import RunConfig, sessions_dir
from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.open import open_session, policy_of
from sandbox_agent.engine.servers import servers_named
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ConfigError
from sandbox_agent.events import McpServerChanged, Notice
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.models.absent import AbsentModel
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.removal import remove_tree

_ADVICE = {
    "session": "it runs in the session's container: is its program in the image (--image), and does it need a network "
    "(sandbox: allow_hosts)? With place: own it can have an image and hosts of its own",
    "own": "it runs in a container of its own: is its program in its image, and does it need a network (allow_hosts)?",
    "host": "it runs on this machine, or behind a URL: does its command run in a shell, or the URL answer?",
}


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one server. `differs` is how its tools differ from the approved ones, and `approved` whether
    they have been approved now."""

    event: McpServerChanged
    after_s: float
    differs: str | None
    approved: bool

    @property
    def fine(self) -> bool:
        """Whether it can be used as it is."""
        return self.event.state == "connected" and (self.differs is None or self.approved)

    def as_json(self) -> JsonObject:
        """For `--json`."""
        event = self.event
        return {
            "name": event.server,
            "fine": self.fine,
            "place": event.place,
            "state": event.state,
            "error": event.error or None,
            "protocol": event.protocol,
            "version": event.version,
            "after_s": round(self.after_s, 3),
            "tools": list(event.tools),
            "left_out": list(event.left_out),
            "differs": self.differs,
            "approved": self.approved,
            "note": event.note or None,
        }


def try_servers(
    names: Sequence[str],
    *,
    workspace: Path,
    policy: str | None,
    mcp_config: tuple[Path, ...],
    image: str | None,
    approve: bool,
    as_json: bool,
) -> int:
    """The `mcp test` command. Returns the exit code.

    Raises:
        ConfigError: the policy or a file cannot be used, or there is no such server.
        SandboxError: the container could not be started.
    """
    config = RunConfig(
        workspace=workspace, policy=policy, image=image, mcp_config=mcp_config, project_instructions=False
    )
    known = [server.name for server in servers_named(policy_of(config), mcp_config, workspace)]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"there is no MCP server {unknown[0]!r}; those that are: {', '.join(known) or 'none'}")
    wanted = tuple(names or known)
    if not wanted:
        raise ConfigError(
            "there are no MCP servers; name some in the policy (mcp: servers:), or give --mcp-config FILE"
        )
    found = anyio.run(partial(_try, replace(config, mcp_servers=wanted), wanted, approve=approve))
    for one in found:
        click.echo(json.dumps(one.as_json()) if as_json else "\n".join(map(sanitise, _lines(one))))
    return 0 if all(one.fine for one in found) else 1


async def _try(config: RunConfig, wanted: Sequence[str], *, approve: bool) -> list[Tried]:
    differences: dict[str, str] = {}

    async def answer(request: ApprovalRequest) -> ApprovalAnswer:
        differences[request.tool.removeprefix("mcp__")] = request.subject.summary
        return ApprovalAnswer(approve, by="person")

    started_s = time.monotonic()
    heard: dict[str, tuple[McpServerChanged, float]] = {}

    async def listen(session: Session) -> None:
        with session.listen() as events:
            async for event in events:
                match event:
                    case McpServerChanged(server=name) if name not in heard:
                        heard[name] = event, time.monotonic() - started_s
                    case Notice(level="warning", text=text):
                        say(text)
                    case _:
                        pass

    async with open_session(config, approver=answer, caller=AbsentModel("mcp test")) as session:
        session.tasks.start_soon(listen, session)
        assert session.servers is not None
        await session.sandbox.start()  # a container that does not come up is what there is to be told of then
        await session.servers.ready()
        session.unapplied = set()  # no call ran: nothing was changed that anybody would want
        session_id = session.id
        session.hang_up()
    await anyio.to_thread.run_sync(remove_tree, sessions_dir().resolve(), session_id)
    return [Tried(*heard[name], differs=differences.get(name), approved=approve) for name in wanted if name in heard]


def _lines(one: Tried) -> list[str]:
    event = one.event
    lines = [f"{'ok' if one.fine else 'NOT OK'}  {event.server}  ({event.place}: {event.shown})"]
    if event.state != "connected":
        answered = event.error.startswith(f"the server {event.server} ")  # then it runs, and is wrong in itself
        return [*lines, f"    {event.error}", *([] if answered else [f"    {_ADVICE[event.place]}"])]
    who = f"{event.version}, " if event.version else ""
    lines.append(f"    {who}protocol {event.protocol}, there after {one.after_s:.1f} s")
    lines += [f"    {name}" for name in event.tools] or ["    it has no tools that can be used"]
    lines += [f"    left out: {left['tool']} ({left['reason']})" for left in event.left_out]
    if one.differs is not None and not one.approved:
        lines.append(f"    its tools are not those that were approved: {one.differs}")
        lines.append(f"    to approve them: sandbox-agent mcp test {event.server} --approve")
    elif one.differs is not None:
        lines.append(f"    approved now: {one.differs}")
    elif event.note:
        lines.append(f"    {event.note}")
    return lines
