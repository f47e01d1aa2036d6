"""The composition root: the one place that knows every room. Opens a session and always removes what it made.

What is slow overlaps: the engine is pinged first (fails in milliseconds), then the folder is copied and the container
starts in the background while the model's SDK is imported and the first request is under way. The first tool waits.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio
from anyio.abc import TaskGroup

from sandbox_agent import registry
from sandbox_agent.config import RunConfig, config_dir, sessions_dir
from sandbox_agent.engine import acceptance, egress, offered, project_instructions, session_hooks
from sandbox_agent.engine.agent_types import FOLDER as AGENT_TYPES
from sandbox_agent.engine.agent_types import AgentType, load_agent_types
from sandbox_agent.engine.approval import Approver
from sandbox_agent.engine.beginning import begin, bound_disk, start, tell
from sandbox_agent.engine.beside import Ground
from sandbox_agent.engine.budget import Budget
from sandbox_agent.engine.child import with_types
from sandbox_agent.engine.container import settings_to_go_on, spec_of
from sandbox_agent.engine.discarding import discard
from sandbox_agent.engine.hooks import ProgramHook
from sandbox_agent.engine.late import LoadingModel
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.engine.model_choice import fallback_name, model_kind
from sandbox_agent.engine.own_tools import names_of, pool_of
from sandbox_agent.engine.past import EVENTS_FILE, load_past, new_session_id
from sandbox_agent.engine.placement import Placement
from sandbox_agent.engine.planning import told_at_start
from sandbox_agent.engine.proof import Proof
from sandbox_agent.engine.recording import recording_of
from sandbox_agent.engine.replaying import Replaying
from sandbox_agent.engine.secrecy import Secrecy
from sandbox_agent.engine.servers import named, servers_of, start_servers
from sandbox_agent.engine.session import Rights, Session
from sandbox_agent.engine.settling import settle_interrupted
from sandbox_agent.engine.stage import late_sandbox, mask_of, open_workspace, stands_on
from sandbox_agent.engine.subagents import Team
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.models.base import Model
from sandbox_agent.models.prices import Prices
from sandbox_agent.policy import saved
from sandbox_agent.policy.hooks import check_programs_outside
from sandbox_agent.policy.layers import CommandLine
from sandbox_agent.policy.load import SAVED_RULES_FILE, check_outside_workspace, run_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.endpoint import Endpoint, ping, resolve_endpoint
from sandbox_agent.tape import TapeWriter
from sandbox_agent.tools.base import Tool, ToolContext
from sandbox_agent.tools.questions import Ask
from sandbox_agent.workspaces.base import Workspace

if TYPE_CHECKING:
    from sandbox_agent.engine.structured import StructuredAnswer


@asynccontextmanager
async def open_session(
    config: RunConfig,
    *,
    approver: Approver | None = None,
    ask: Ask | None = None,
    hooks: Sequence[ProgramHook] = (),
    tools: Sequence[Tool] = (),
    served: Sequence[Tool] = (),
    agents: Mapping[str, AgentType] | None = None,
    caller: Model | None = None,
    replay: Replaying | None = None,
) -> AsyncIterator[Session]:
    """A session for one run; its container is removed and its record closed on the way out, whatever happens.

    Changes that were not applied stay in the session's folder for `apply ID`. `approver` says whether what is asked may
    run, `ask` answers the model's own questions; None: nobody does. `hooks` are functions of the program, which run
    before those of the policy; `tools` are its own, which run on this machine, `served` those of MCP servers inside it,
    `agents` its types of sub-agents, each in place of one of its name. `caller` is in the place of a model that
    there is not, where calls come from elsewhere (see `engine.served`). `replay` has the policy, the types and the
    model of the run that is replayed.

    Raises:
        ConfigError: the configuration cannot be used (policy, model, key, tools, unknown session).
        WorkspaceError: the folder cannot be used.
        SandboxUnavailableError: no engine answers; nothing was started.
    """
    acceptance.refuse_bad(config)
    session: Session | None = None
    try:
        async with anyio.create_task_group() as tasks:
            fallback = fallback_name(config.fallback_model, config.model)
            given = replay.model(caller) if replay is not None else caller
            loading = LoadingModel(_model(config) if given is None else lambda: given)
            tasks.start_soon(loading.load)
            answer: StructuredAnswer | None = None
            if config.answer_schema is not None:
                answer = registry.load("engine", "structured").StructuredAnswer(config.answer_schema)
            own = Own(approver, ask, hooks, tools, served, agents or {}, replay, answer)
            session = await _open(config, own, tasks, called=caller is not None)
            session.answer = answer
            try:
                session.model, session.fallback = await loading.loaded(), fallback
                if session.proof is not None and replay is None:
                    session.model = session.proof.model(session.model)
                if config.model.startswith("anthropic:"):  # beside the first request: it costs 0.25 s
                    tasks.start_soon(anyio.to_thread.run_sync, session.budget.prices.load)
                yield session
                await session.jobs.close()
                await session.last_look()
            finally:
                if session.servers is not None:
                    await session.servers.close()
                await session_hooks.close(session)
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await session.sandbox.close()
    except BaseExceptionGroup as group:
        raise bare(group) from None
    finally:
        # Not before the group has ended: a thread that makes the folder ready cannot be cancelled, and would mount
        # again what was just given back.
        if session is not None:
            with anyio.CancelScope(shield=True):
                await _close(session)


class Own(NamedTuple):
    """What a program gives to its session, see `open_session`."""

    approver: Approver | None
    ask: Ask | None
    hooks: Sequence[ProgramHook]
    tools: Sequence[Tool]
    served: Sequence[Tool]
    agents: Mapping[str, AgentType]
    replay: Replaying | None
    answer: StructuredAnswer | None

    @property
    def all_hooks(self) -> Sequence[ProgramHook]:
        return self.hooks if self.answer is None else (*self.hooks, self.answer.hook)

    @property
    def all_tools(self) -> Sequence[Tool]:
        return self.tools if self.answer is None else (*self.tools, self.answer.tool)

    def types(self, workspace: Path) -> Mapping[str, AgentType]:
        """Of sub-agents, those of the program before others."""
        if self.replay is not None:
            return self.replay.types
        return {**load_agent_types(config_dir() / AGENT_TYPES, names_of(self.all_tools), workspace), **self.agents}


async def _open(config: RunConfig, own: Own, tasks: TaskGroup, *, called: bool) -> Session:
    past = load_past(sessions_dir(), config.resume, config.workspace.resolve()) if config.resume else None
    if past is not None:  # no policy may come from the folder that is really worked on
        config = replace(config, workspace=stands_on(sessions_dir() / past.session_id) or config.workspace)
    policy = policy_of(config) if own.replay is None else own.replay.policy
    types = own.types(config.workspace)
    models = (
        ()
        if called or own.replay is not None
        else (config.model, config.fallback_model, *(kind.model for kind in types.values()))
    )
    await anyio.to_thread.run_sync(Budget(policy.limits, Prices(policy.prices)).check, models)
    pool = with_types(pool_of(policy, own.all_tools, own.served), types)
    # Of a bundle, which comes from anywhere, nothing is filled in from the person's environment.
    servers = policy.servers
    if own.replay is None:
        servers = servers_of(policy, config.mcp_config, os.environ, config.mcp_servers, workspace=config.workspace)
    proof = own.replay or recording_of(config, policy, types, servers, own)
    endpoint = await anyio.to_thread.run_sync(reachable_engine)
    settled = await settle_interrupted()  # before this run takes its picture of the folder
    folder = sessions_dir() / (past.session_id if past else new_session_id())
    folder.mkdir(mode=0o700, exist_ok=past is not None)
    lock = SessionLock(folder)
    settings = settings_to_go_on(policy, folder) if past else policy.sandbox
    try:
        way_out = await egress.prepare(settings, environ=os.environ, workspace=config.workspace)
        workspace, placement = await _workspace(config, policy, folder, endpoint, proof)
    except SandboxAgentError:
        lock.release()
        if past is None:
            shutil.rmtree(folder)
        raise
    spec = replace(spec_of(workspace, folder, settings), pinned_env=proof.environment if proof is not None else {})
    if way_out is not None:
        spec = replace(spec, egress_env=way_out.env)
    secrecy = Secrecy()
    sandbox = late_sandbox(spec, endpoint, workspace, way_out.open if way_out is not None else None, secrecy)
    ctx = ToolContext(sandbox=sandbox, workspace_host=str(workspace.host), masked=partial(mask_of, workspace))
    ctx.by_name = bool(spec.pinned_env)
    session = Session(
        id=folder.name,
        model=cast(Model, None),  # `open_session` sets it while the container starts
        sandbox=sandbox,
        workspace=workspace,
        pool=pool,
        rights=Rights(policy),
        mode=policy.mode,
        limits=policy.limits,
        ctx=ctx,
        system=tuple({"type": "text", "text": text} for text in _instructions(policy, way_out)),
        tape=TapeWriter(folder / EVENTS_FILE),
        lock=lock,
        tasks=tasks,
        secrecy=secrecy,
        approver=own.approver,
        save_rule=partial(saved.save, config_dir() / SAVED_RULES_FILE) if own.replay is None else None,
        proof=proof,
    )
    way = way_out.opens if way_out is not None else None
    offered.attach(session, ask=own.ask, opens=way, planned=past is not None and past.planned)
    Team(types, policy.limits, session.jobs, *((past.agents, past.jobs) if past is not None else ())).attach(session)
    begin(session, config, settings, past, placement, named(servers))
    start_servers(session, servers, Ground(sandbox, spec, settings, endpoint, folder, os.environ))
    session_hooks.attach(session, own.all_hooks)
    await project_instructions.attach(session, fresh=past is None)
    session.before_end = partial(_before_end, session)
    bound_disk(session, folder, settings)
    tell(session, settled)
    start(session, folder, past, way_out)
    return session


async def _workspace(
    config: RunConfig, policy: Policy, folder: Path, endpoint: Endpoint, proof: Proof | None
) -> tuple[Workspace, Placement | None]:
    """See `open_workspace`. A recording that cannot be written is known before there is a workspace."""
    if proof is None:
        return await open_workspace(config, policy, folder, endpoint)
    proof.claim(folder.name, config.workspace.resolve())
    try:
        return await open_workspace(config, policy, folder, endpoint)
    except SandboxAgentError:
        proof.abandon()
        raise


async def _before_end(session: Session) -> None:
    """Nothing runs any more when the hooks of the end look at the workspace, and the review after them."""
    await session.jobs.close()
    if session.servers is not None:  # one with the workspace could write to it
        await session.servers.close()
    await session_hooks.end(session)


def _instructions(policy: Policy, way_out: egress.WayOut | None) -> tuple[str, ...]:
    """What the model is told before the task."""
    return (prompt("system"), *egress.told_to_model(way_out), *told_at_start(policy.mode))


def _model(config: RunConfig) -> Callable[[], Model]:
    kind, name = model_kind(config.model)
    return lambda: cast(Model, registry.load("models", kind).create(name))


def policy_of(config: RunConfig) -> Policy:
    """Every layer of the policy; none of its files may lie in the folder.

    Raises:
        ConfigError: a layer cannot be used.
    """
    options = CommandLine(
        allow=config.allow,
        deny=config.deny,
        mode=config.mode,
        image=config.image,
        max_turns=config.max_turns,
        max_tokens=config.max_tokens,
        max_cost_usd=config.max_cost_usd,
        timeout_s=config.timeout_s,
        project_instructions=config.project_instructions,
    )
    policy = run_policy(config.policy, options)
    check_outside_workspace(policy, config.workspace)
    check_programs_outside(policy.hooks, config.workspace)
    return policy


def reachable_engine() -> Endpoint:
    """The person's engine.

    Raises:
        SandboxUnavailableError: it does not answer; nothing was started.
    """
    endpoint = resolve_endpoint(os.environ)
    ping(endpoint)
    return endpoint


async def _close(session: Session) -> None:
    """Container first, then the record; the copy goes when nothing in it is still wanted."""
    try:
        await session.sandbox.close()
        if session.proof is not None:
            await session.proof.close(session)
        try:
            session.effects.blind()
        finally:  # a full disk takes no last entry of the record; the mounts go all the same
            await anyio.to_thread.run_sync(session.workspace.release)
        if not session.copy_is_wanted:
            await discard(sessions_dir() / session.id)
    finally:
        try:
            if session.model is not None:
                await session.model.aclose()
            session.tape.sync()
            session.tape.close()
        finally:
            session.lock.release()


def bare(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error inside a task group's wrapping; the group itself where there are several."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return found
