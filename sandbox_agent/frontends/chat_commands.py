"""The commands of a chat: what begins with a slash is for us and not for the agent.

A command that needs the agent to rest is refused while it works, and keeps it from starting until it is done.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sandbox_agent.engine import steering
from sandbox_agent.engine.compacting import compact
from sandbox_agent.engine.previewing import changes_so_far
from sandbox_agent.engine.subagents import Desk as AgentsDesk
from sandbox_agent.engine.undoing import check_here, undo_here
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.frontends import chat_keys, chat_servers, outcome, policy_view, review, undo_view, words
from sandbox_agent.frontends.chat_talk import Talk
from sandbox_agent.frontends.printer import Printer
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.terminal import Asker
from sandbox_agent.types import Mode

SHOWN_CHARS = 80
REWIND = "  Rewind the conversation to that step, too? If not, the agent is told what was undone. [y/N] > "


@dataclass(slots=True)
class Desk:
    """What commands act on. `leave` ends the chat."""

    talk: Talk
    asker: Asker
    leave: Callable[[], None]
    verbose: bool = False

    @property
    def printer(self) -> Printer:
        return self.asker.printer


class UsageFault(Exception):
    """The command was not used rightly; the text says how it is."""


class Command(NamedTuple):
    """`arguments` is shown in the help. `resting`: the agent must not be at work; `stops`: Esc may stop it halfway."""

    arguments: str
    help: str
    run: Callable[[Desk, str], Awaitable[None]]
    resting: bool = False
    stops: bool = False


async def _help(desk: Desk, rest: str) -> None:
    lines = [(f"/{name} {command.arguments}".rstrip(), command.help) for name, command in COMMANDS.items()]
    width = max(len(usage) for usage, _ in lines)
    for usage, text in lines:
        desk.printer.line(f"  {usage:<{width}}  {text}")
    desk.printer.gap()
    for line in chat_keys.HELP.splitlines():
        desk.printer.line(f"  {line}")
    desk.printer.line("  A message that begins with a slash and is no path: put a space before it.", "dim")


async def _policy(desk: Desk, rest: str) -> None:
    session = desk.talk.session
    for line in policy_view.lines(session.policy):
        desk.printer.line(line)
    if session.mode is not session.policy.mode:
        desk.printer.line(f"The mode is now {session.mode.value}.", "yellow")


async def _mode(desk: Desk, rest: str) -> None:
    session = desk.talk.session
    names = ", ".join(mode.value for mode in Mode)
    if not rest:
        desk.printer.line(f"The mode is {session.mode.value}; there are {names}.")
        return
    if rest not in [mode.value for mode in Mode]:
        raise UsageFault(f"there is no mode {rest!r}; there are {names}")
    steering.set_mode(session, Mode(rest))
    desk.printer.line(f"The mode is {session.mode.value} from now on.")


async def _model(desk: Desk, rest: str) -> None:
    if not rest:
        desk.printer.line(f"The model is {sanitise(desk.talk.session.model.name)}.")
        return
    _nobody_works(desk)
    await steering.set_model(desk.talk.session, rest)
    desk.printer.line(f"The model is {sanitise(desk.talk.session.model.name)} from now on.")


async def _cost(desk: Desk, rest: str) -> None:
    talk, budget = desk.talk, desk.talk.session.budget
    runs, turns = words.count(talk.runs, "run"), words.count(talk.turns, "turn")
    used, cost_usd = budget.in_all
    desk.printer.line(", ".join(filter(None, [runs, turns, words.tokens(used), words.cost(cost_usd, used)])))
    if desk.talk.running_since_s is not None:
        now = [words.tokens(budget.total), words.cost(budget.cost_usd, budget.total)]
        desk.printer.line(f"of that in the run that is under way: {', '.join(filter(None, now))}")


async def _diff(desk: Desk, rest: str) -> None:
    talk = desk.talk
    resting = talk.running_since_s is None
    found = await changes_so_far(talk.session, resting=resting)
    if not resting:
        desk.printer.line(f"As of step {found.step}; what runs now is not in it.", "dim")
    changes = found.changes
    if rest:
        wanted = {path for word in rest.split() for path in review.covered(changes, word)}
        changes = tuple(change for change in changes if change["path"] in wanted)
    if not changes:
        desk.printer.line(f"No change fits {sanitise(rest)}." if rest else "Nothing was changed so far.")
        return
    whole = desk.verbose or bool(rest)
    review.show(desk.printer, changes, max_lines=None if whole else review.FILE_LINES)


async def _undo(desk: Desk, rest: str) -> None:
    if rest and not rest.isdecimal():
        raise UsageFault("write /undo, or /undo STEP with the number of a step")
    session = desk.talk.session
    _nobody_works(desk)
    step = int(rest) if rest else None
    await check_here(session, step)
    answer = await desk.asker.ask(REWIND)
    if answer is None:
        desk.printer.line("Nothing was undone.")
        return
    rewind = answer.lower() in ("y", "yes")
    reached = await undo_here(session, step, rewind=rewind)
    if rewind:
        desk.talk.recall()
    undo_view.show(desk.printer, reached, rewound=rewind)


def _nobody_works(desk: Desk) -> None:
    running = desk.talk.session.jobs.running()
    if running:
        raise UsageFault(f"jobs are running ({', '.join(job.id for job in running)}): /jobs stop ID ends one")


async def _compact(desk: Desk, rest: str) -> None:
    if not await compact(desk.talk.session, focus=rest or None):
        desk.printer.line("There is nothing yet that a summary could stand for.")


async def _agents(desk: Desk, rest: str) -> None:
    for agent_id, seen in desk.talk.agents.items():
        what = f"{seen.started.agent_type}: {words.shorten(seen.started.description, SHOWN_CHARS)}"
        how = "at work" if seen.ended is None else f"{seen.ended.status}, {words.count(seen.ended.turns, 'turn')}"
        desk.printer.line(sanitise(f"  {agent_id}  {what}  {how}"))
    agents = desk.talk.session.ctx.agents
    earlier = agents.team.earlier if isinstance(agents, AgentsDesk) else {}
    for agent_id, started in earlier.items():
        what = f"{started.agent_type}: {words.shorten(started.description, SHOWN_CHARS)}"
        desk.printer.line(sanitise(f"  {agent_id}  {what}  of before this session went on"))
    if not desk.talk.agents and not earlier:
        desk.printer.line("There are no sub-agents.")


async def _jobs(desk: Desk, rest: str) -> None:
    jobs = desk.talk.session.jobs
    verb, _, job_id = rest.partition(" ")
    if verb == "stop" and job_id:
        found = [job for job in jobs.running() if job.id == job_id.strip()]
        if not found:
            raise UsageFault(f"no job {job_id.strip()!r} is running")
        await found[0].stop("by the person")
        return
    if rest:
        raise UsageFault("write /jobs, or /jobs stop ID")
    known = {job.id: job for job in (*jobs.of("main"), *jobs.running())}
    for job in known.values():
        state = words.duration(job.duration_s) + (" so far" if job.running else f", {job.ended_words()}")
        desk.printer.line(sanitise(f"  {job.id}  {words.shorten(job.what, SHOWN_CHARS)}  {state}"))
    if not known:
        desk.printer.line("Nothing runs in the background.")


async def _todo(desk: Desk, rest: str) -> None:
    shown = outcome.todo_list(desk.talk.todos)
    desk.printer.line(shown if shown is not None else "There is no todo list.")


async def _clear(desk: Desk, rest: str) -> None:
    steering.clear(desk.talk.session)
    desk.printer.line("A fresh conversation, on the workspace as it is. /undo brings files back, not what was said.")


async def _mcp(desk: Desk, rest: str) -> None:
    await chat_servers.show(desk.talk.session, desk.printer)


async def _quit(desk: Desk, rest: str) -> None:
    desk.leave()


COMMANDS = {
    "help": Command("", "this list, and the keys", _help),
    "policy": Command("", "the rules, limits and settings that hold, and where each comes from", _policy),
    "mode": Command("[MODE]", "show or change the permission mode", _mode),
    "model": Command("[KIND:NAME]", "show or change the model", _model, resting=True),
    "cost": Command("", "what was used so far", _cost),
    "diff": Command("[PATH...]", "what was changed so far; nothing is applied before you leave", _diff),
    "undo": Command("[STEP]", "bring the workspace back, by a step or to one", _undo, resting=True),
    "compact": Command("[FOCUS]", "replace the conversation so far by a summary", _compact, resting=True, stops=True),
    "agents": Command("", "sub-agents, and how their tasks went", _agents),
    "jobs": Command("[stop ID]", "what runs in the background", _jobs),
    "mcp": Command("", "the MCP servers, and the prompts that they have: /mcp__SERVER__PROMPT", _mcp),
    "todo": Command("", "the agent's todo list", _todo),
    "clear": Command("", "a fresh conversation on the same workspace", _clear, resting=True),
    "quit": Command("", "leave: the review of all changes follows", _quit),
}


async def _prompt(name: str, desk: Desk, rest: str) -> None:
    try:
        text = await chat_servers.prompt(desk.talk.session, desk.asker, name, rest)
    except ValueError as fault:
        raise UsageFault(str(fault)) from fault
    if text is None:
        desk.printer.line("Nothing was said.")
    else:
        desk.talk.say(text)


def arguments_of(name: str) -> Sequence[str]:
    """What may follow a command, as far as there is a list of it."""
    return [mode.value for mode in Mode] if name == "mode" else ["stop"] if name == "jobs" else []


def is_command(text: str) -> bool:
    """Whether a line is for us: it begins with a slash, and its first word is not a path."""
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return text.startswith("/") and "/" not in first[1:]


async def obey(desk: Desk, text: str) -> None:
    """Do what a line says that `is_command`; what is wrong with it, or goes wrong, is said in one line."""
    name, _, rest = text[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None and name.startswith(chat_servers.PREFIX):
        command = Command("", "", partial(_prompt, name))
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists them"
        desk.printer.line(f"There is no command /{sanitise(name)} ({hint}).", "yellow")
        return
    try:
        await command.run(desk, rest.strip())
    except UsageFault as fault:
        desk.printer.line(f"/{name}: {sanitise(str(fault))}", "yellow")
    except SandboxAgentError as fault:
        desk.printer.line(f"/{name}: {sanitise(str(fault))}", "red")
