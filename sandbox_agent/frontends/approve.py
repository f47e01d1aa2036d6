"""Asks the person whether a call may run. Shows exactly what would run; a yes to something not wholly shown is not
taken; no answer, no terminal and end of input are a no.
"""

from __future__ import annotations

import anyio
from rich.text import Text

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.frontends import words
from sandbox_agent.frontends.exact_view import ExactView, marked, view
from sandbox_agent.frontends.sanitise import exact, sanitise
from sandbox_agent.frontends.terminal import Asker

_SCOPES = {"y": "once", "yes": "once", "once": "once", "s": "session", "session": "session"}
_ALWAYS = ("a", "always")
_NO = ("n", "no")
_VIEW = ("v", "view", "show")


class ConsoleApprover:
    """The approver of an interactive run: `await approver(request)`. Questions of parallel agents come one by one."""

    def __init__(self, terminal: Asker) -> None:
        self._terminal = terminal
        self._printer = terminal.printer
        self._one_at_a_time = anyio.Lock()

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask, and come back with the answer; asks again until it is one."""
        async with self._one_at_a_time:
            shown = view(request.input, width=self._printer.console.width)
            await self._terminal.attention()
            self._show(request, shown)
            whole = not shown.long
            while True:
                typed = await self._terminal.ask(f"  [{_letters(request)}] > " if whole else "  [v/n] > ")
                if typed is None:
                    return ApprovalAnswer(False, reason="nobody answered (end of input)", by="person")
                word, _, rest = typed.partition(" ")
                word = word.lower()
                if word in _NO:
                    return await self._refused(rest.strip())
                if word in _VIEW:
                    whole = True
                    self._show_whole(shown)
                    self._choices(request)
                    continue
                scope = self._scope(word, request)
                if rest or scope is None:
                    self._printer.line("  Answer with one of the letters above.", style="yellow")
                elif not whole:
                    self._printer.line("  Parts of it are not on the screen yet: v shows all of it.", style="yellow")
                else:
                    return ApprovalAnswer(True, scope, by="person")

    def _scope(self, word: str, request: ApprovalRequest) -> str | None:
        if word in _ALWAYS:
            return "always" if request.suggested_rules else None
        scope = _SCOPES.get(word)
        return None if scope == "session" and request.subject.needs_person is not None else scope

    async def _refused(self, reason: str) -> ApprovalAnswer:
        if not reason:
            reason = (
                await self._terminal.ask("  What should it do instead? (goes to the agent; Enter for nothing) > ") or ""
            )
        return ApprovalAnswer(False, reason=reason or None, by="person")

    def _show(self, request: ApprovalRequest, shown: ExactView) -> None:
        line = self._printer.line
        self._printer.gap()
        who = "" if request.agent_id == "main" else f"[{sanitise(request.agent_id)}] "
        line(f"? {who}{sanitise(request.tool)} wants to run ({shown.size}):", style="bold yellow")
        for text in shown.head_and_tail() if shown.long else shown.lines:
            line(text)
        for warning in (*shown.warnings, *_elsewhere(request)):
            line(f"  ! {warning}", style="bold red")
        decision = request.decision
        where = ", ".join(sanitise(part) for part in (decision.rule, decision.location) if part)
        for text in self._reason(" ".join(sanitise(decision.reason).split()) + (f" ({where})" if where else "")):
            line(text)
        if shown.long:
            line("  v  show all of it (needed before it can be allowed)")
            line("  n  no (n REASON tells the agent why)")
        else:
            self._choices(request)

    def _reason(self, reason: str) -> list[Text]:
        """Reasons quote the command, every part that is not covered. What does not fit on a line is marked as the
        command is, so it cannot wrap into a line that looks like another part."""
        width = self._printer.console.width
        whole = Text(f"  asked because: {reason}")
        return [whole] if whole.cell_len <= width else [Text("  asked because:"), *marked(reason, width)]

    def _show_whole(self, shown: ExactView) -> None:
        for text in shown.lines:
            self._printer.line(text)
        for warning in shown.warnings:
            self._printer.line(f"  ! {warning}", style="bold red")

    def _choices(self, request: ApprovalRequest) -> None:
        line = self._printer.line
        rules = request.suggested_rules
        below = "the rule below" if len(rules) == 1 else f"the {len(rules)} rules below"
        line("  y  yes, once")
        if request.subject.needs_person is not None:
            pass  # it is asked each time
        elif not rules:
            line("  s  yes, and exactly this again during this session")
        else:
            line(f"  s  yes, and during this session whatever fits {below}")
            line(f"  a  always: adds {below} to the allow rules of your policy")
        line("  n  no (n REASON tells the agent why)")
        for rule in rules:
            for text in marked(exact(rule).text, self._printer.console.width):
                line(text)


def _letters(request: ApprovalRequest) -> str:
    return "y/s/a/n" if request.subject.needs_person is None else "y/n"


def _elsewhere(request: ApprovalRequest) -> list[str]:
    """Paths of the call that are links, or below one: what is written there is written where they lead."""
    places = [(a.path, a.resolved) for a in request.subject.paths if a.resolved is not None and a.resolved != a.path]
    return [f"a link: {_short(path)} leads to {_short(resolved)}" for path, resolved in places]


def _short(path: str) -> str:
    return words.shorten(exact(path).text, 300)
