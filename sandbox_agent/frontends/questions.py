"""Puts the model's own questions to the person at a terminal: by the numbers of what is offered, or in their words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sandbox_agent.frontends.exact_view import marked
from sandbox_agent.frontends.sanitise import exact, sanitise
from sandbox_agent.frontends.terminal import Asker
from sandbox_agent.tools.questions import Question, Reply

_NUMBERS = re.compile(r"[0-9]{1,3}(?:[ ,]+[0-9]{1,3})*")


class ConsoleQuestions:
    """The `Ask` of an interactive run. The engine sees to it that nobody else asks meanwhile."""

    def __init__(self, terminal: Asker) -> None:
        self._terminal = terminal
        self._printer = terminal.printer

    async def __call__(self, questions: Sequence[Question], *, agent_id: str) -> Sequence[Reply] | None:
        """Ask one after the other; None at end of input."""
        replies: list[Reply] = []
        await self._terminal.attention()
        for number, question in enumerate(questions, start=1):
            agent = "the agent" if agent_id == "main" else f"the agent {sanitise(agent_id)}"
            who = sanitise(question.asker) or agent
            place = f" ({number} of {len(questions)})" if len(questions) > 1 else ""
            self._show(question, f"? {who} asks{place}: {sanitise(question.header)}")
            reply = await self._answer(question)
            if reply is None:
                return None
            replies.append(reply)
        return replies

    async def _answer(self, question: Question) -> Reply | None:
        last = len(question.choices)
        if not last:
            typed = await self._terminal.ask("  [in your own words; nothing is no answer] > ")
            return None if typed is None else Reply(text=typed or None)
        while True:
            typed = await self._terminal.ask(f"  [1-{last}, or in your own words] > ")
            if typed is None:
                return None
            if _NUMBERS.fullmatch(typed) is None:
                return Reply(text=typed or None)
            chosen = sorted({int(part) for part in re.findall("[0-9]+", typed)})
            if not 1 <= chosen[0] <= chosen[-1] <= last:
                self._printer.line(f"  There are answers from 1 to {last}.", style="yellow")
            elif len(chosen) > 1 and not question.several:
                self._printer.line("  Only one of them can be taken.", style="yellow")
            else:
                return Reply(tuple(question.choices[number - 1].label for number in chosen))

    def _show(self, question: Question, title: str) -> None:
        line, width = self._printer.line, self._printer.console.width
        self._printer.gap()
        line(title, style="bold yellow")
        self._exact(question.question)
        for number, choice in enumerate(question.choices, start=1):
            text = f"{number}  {choice.label}" + (f": {choice.description}" if choice.description else "")
            for piece in marked(exact(text).text, width):
                line(piece)
        if question.several:
            line("  Several can be taken, as in 1,2.")

    def _exact(self, text: str) -> None:
        for part in exact(text, newlines=True).text.split("\n"):
            for piece in marked(part, self._printer.console.width):
                self._printer.line(piece)
