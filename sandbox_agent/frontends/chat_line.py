"""The input line of a chat as prompt_toolkit draws it: what is shown around it, and how what was typed is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition, has_completions
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.formatted_text.utils import fragment_list_len
from prompt_toolkit.layout import ConditionalContainer, Container, Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl, UIControl
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput, Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments

from sandbox_agent.frontends.sanitise import sanitise

PROMPT = "> "
TAIL_ROWS = 8
INPUT_ROWS = 12
COMPLETION_ROWS = 6


class Sanitised(Processor):
    """Shows what a terminal would hide or obey as escapes; what was typed or pasted stays as it is."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """See prompt_toolkit."""
        shown: StyleAndTextTuples = []
        starts = [0]
        for style, char, *_ in explode_text_fragments(transformation_input.fragments):
            text = sanitise(char, tabs=True)
            shown.append((style, text))
            starts.append(starts[-1] + len(text))
        if starts[-1] == len(starts) - 1:
            return Transformation(shown)
        return Transformation(
            shown,
            source_to_display=lambda source: starts[min(source, len(starts) - 1)],
            display_to_source=lambda display: sum(start <= display for start in starts[1:]),
        )


def make_layout(
    *,
    message: Buffer,
    answer: Buffer,
    tail: Callable[[], str],
    above: Callable[[], Sequence[str]],
    status: Callable[[], str],
    question: Callable[[], str | None],
) -> Layout:
    """The rows from top to bottom: the line that is growing, notes, the input, completions, the status.

    Args:
        message: what is written to the agent.
        answer: what is written in answer to a question, which takes the message's place while there is one.
        tail: the growing line, with its colours.
        above: notes, a line each, sanitised.
        status: one sanitised line.
        question: what stands before an answer, None while nothing is asked.
    """
    asked = Condition(lambda: question() is not None)
    writing = _input(message, lambda: PROMPT)
    answering = _input(answer, lambda: question() or "")
    rows: list[Container] = [
        _when(lambda: bool(tail()), _tail(tail)),
        _when(lambda: bool(above()), _text(lambda: [("", "\n".join(above()))])),
        ConditionalContainer(writing, ~asked),
        ConditionalContainer(answering, asked),
        ConditionalContainer(CompletionsMenu(max_height=COMPLETION_ROWS, scroll_offset=1), has_completions & ~asked),
        _text(lambda: [("class:status", status())], height=1),
    ]
    return Layout(HSplit(rows), focused_element=writing)


def _when(holds: Callable[[], bool], container: Container) -> Container:
    return ConditionalContainer(container, Condition(holds))


def _text(content: Callable[[], StyleAndTextTuples], height: int | None = None) -> Window:
    control: UIControl = FormattedTextControl(content)
    return Window(control, height=height, dont_extend_height=True, wrap_lines=height is None)


def _tail(tail: Callable[[], str]) -> Window:
    def at_end() -> Point:
        return Point(x=max(fragment_list_len(to_formatted_text(ANSI(tail()))) - 1, 0), y=0)

    control = FormattedTextControl(lambda: ANSI(tail()), get_cursor_position=at_end, show_cursor=False)
    return Window(control, height=Dimension(max=TAIL_ROWS), dont_extend_height=True, wrap_lines=True)


def _input(buffer: Buffer, prompt: Callable[[], str]) -> Window:
    def indent(line: int, wrapped: int) -> StyleAndTextTuples:
        return [("", " " * len(PROMPT))] if line and not wrapped else []

    control = BufferControl(
        buffer,
        # The prompt is ours: only what stands behind it is made safe.
        input_processors=[Sanitised(), BeforeInput(lambda: [("class:prompt", prompt())])],
        include_default_input_processors=False,
    )
    return Window(
        control, height=Dimension(max=INPUT_ROWS), dont_extend_height=True, wrap_lines=True, get_line_prefix=indent
    )
