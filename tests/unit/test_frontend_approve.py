"""Questions to a person before a call runs, at a real pseudo-terminal."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import anyio
import pytest
from frontend_person import END_OF_INPUT, person

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.frontends.approve import ConsoleApprover
from sandbox_agent.frontends.terminal import Terminal
from sandbox_agent.types import Decision, JsonObject, PathAccess, Subject, Verdict


def request(tool: str = "Bash", rule: str | None = "Bash(make:*)", **given: object) -> ApprovalRequest:
    """A question about a call with this input."""
    value: JsonObject = given or {"command": "make all"}
    decision = Decision(Verdict.ASK, "no rule allows make.", rule="ask-all", location="default.yaml:3")
    return ApprovalRequest("t1", tool, Subject("unused"), value, decision, (rule,) if rule else ())


WHOLE_QUESTION = """\
? Bash wants to run (8 characters):
  | make all
  asked because:
  | no rule allows make. (ask-all, default.yaml:3)
  y  yes, once
  s  yes, and during this session whatever fits the rule below
  a  always: adds the rule below to the allow rules of your policy
  n  no (n REASON tells the agent why)
  | Bash(make:*)
  [y/s/a/n] > """


async def test_the_question_shows_what_runs_why_it_asks_and_the_rule_that_would_be_kept() -> None:
    """The whole screen of a short command."""
    with person("y") as (terminal, screen):
        answer = await ConsoleApprover(terminal)(request())

    assert screen.getvalue() == WHOLE_QUESTION
    assert answer == ApprovalAnswer(True, "once")


async def test_the_question_of_a_sub_agent_says_so() -> None:
    """One answers otherwise to what one has not asked for oneself."""
    with person("y") as (terminal, screen):
        await ConsoleApprover(terminal)(replace(request(), agent_id="agent-1.2"))

    assert screen.getvalue().startswith("? [agent-1.2] Bash wants to run (8 characters):\n")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["y"], ApprovalAnswer(True, "once")),
        (["YES"], ApprovalAnswer(True, "once")),
        (["s"], ApprovalAnswer(True, "session")),
        (["a"], ApprovalAnswer(True, "always")),
        (["n use ninja instead"], ApprovalAnswer(False, reason="use ninja instead")),
        (["n", "because"], ApprovalAnswer(False, reason="because")),
        (["n", ""], ApprovalAnswer(False)),
        (["", "x", "yes please", "y"], ApprovalAnswer(True, "once")),
        ([END_OF_INPUT], ApprovalAnswer(False, reason="nobody answered (end of input)")),
    ],
)
async def test_each_answer_means_one_thing_and_anything_else_is_asked_again(
    typed: list[str], answer: ApprovalAnswer
) -> None:
    """Only clear answers count; the end of input is a no."""
    with person(*typed) as (terminal, screen):
        assert await ConsoleApprover(terminal)(request()) == answer

    assert screen.answers == []


async def test_a_path_that_is_a_link_is_shown_with_where_it_leads() -> None:
    """Else a yes to a harmless name would write a file of another."""
    link = PathAccess("/workspace/notes.txt", write=True, resolved="/workspace/.git/hooks/\x1bpre-commit")
    plain = PathAccess("/workspace/a.txt", write=True, resolved="/workspace/a.txt")
    asked = replace(request("Write"), subject=Subject("unused", paths=(link, plain)))
    with person("n", "") as (terminal, screen):
        await ConsoleApprover(terminal)(asked)

    assert "  ! a link: /workspace/notes.txt leads to /workspace/.git/hooks/\\x1bpre-commit\n" in screen.getvalue()
    assert "a.txt leads" not in screen.getvalue()


async def test_always_is_neither_offered_nor_taken_without_a_rule() -> None:
    """Where no rule fits, the session answer is about this exact call."""
    with person("a", "s") as (terminal, screen):
        answer = await ConsoleApprover(terminal)(request(rule=None))

    assert answer == ApprovalAnswer(True, "session")
    assert "always" not in screen.getvalue()
    assert "exactly this again" in screen.getvalue()


async def test_what_was_typed_before_the_question_is_not_an_answer() -> None:
    """Type-ahead cannot approve something that was not on the screen."""
    with person("n no", typed_before="y\ny\n") as (terminal, _):
        assert await ConsoleApprover(terminal)(request()) == ApprovalAnswer(False, reason="no")


async def test_a_terminal_that_hangs_up_is_a_no() -> None:
    """The person closed the window."""
    keyboard, tty = os.openpty()
    os.close(keyboard)
    with person() as (terminal, _):
        answer = await ConsoleApprover(Terminal(terminal.printer, tty))(request())
    os.close(tty)

    assert answer.allow is False


async def test_a_long_command_is_not_allowed_before_all_of_it_was_shown() -> None:
    """Head, tail and size come first; y is refused until v has shown the middle."""
    command = "\n".join(f"echo {n}" for n in range(100))
    with person("y", "v", "y") as (terminal, screen):
        answer = await ConsoleApprover(terminal)(request(command=command))
    before, _, after = screen.getvalue().partition("not on the screen yet")

    assert answer == ApprovalAnswer(True, "once")
    assert "| echo 0\n" in before
    assert "... 70 lines not shown ..." in before
    assert "| echo 99\n" in before
    assert "| echo 50\n" not in before
    assert "| echo 50\n" in after


@pytest.mark.parametrize(
    "command",
    [
        "ls\r\x1b[1A\x1b[2Krm -rf ~",
        "ls\n" * 3 + "\n" * 30 + "rm -rf ~",
        "ls " + " " * 500 + "; rm -rf ~",
        "x\n  y  yes, once\n  [y/s/a/n] > y",
        "x" + " " * 53 + "  y  yes, once",
        "漢" * 100 + "\u202e",
    ],
)
async def test_nothing_in_a_command_can_look_like_our_own_words(command: str) -> None:
    """All lines of the command have a mark at the left edge and fit the screen; joined they are the command."""
    with person("v", "n no") as (terminal, screen):
        await ConsoleApprover(terminal)(request(command=command))
    lines = screen.getvalue().partition("n] > ")[2].split("\n")
    marked = [line[2:] for line in lines if re.match(r"  [|:] ", line)]
    ours = [line for line in lines if not re.match(r"  [|:] ", line)]

    assert all(len(line.encode("utf-16-le")) // 2 <= 56 for line in marked)
    assert not any("rm -rf" in line or "[y/s/a/n] > y" in line for line in ours)
    text = "".join(("\n" if line.startswith("|") else "") + line[2:] for line in marked)
    assert text.count("rm -rf ~") == command.count("rm -rf ~")
    assert not set(screen.getvalue()) & set("\x1b\r\u202e")


async def test_neither_reason_nor_rule_can_wrap_into_a_line_of_ours() -> None:
    """Both quote the command: the reason is squeezed to one line, the rule is marked like the command."""
    sly = "x" + " " * 70 + "  | ls"
    decision = Decision(Verdict.ASK, f"no rule covers {sly}")
    question = ApprovalRequest("t1", "Bash", Subject("x"), {"command": sly}, decision, (f"Bash({sly})",))
    with person("n no") as (terminal, screen):
        await ConsoleApprover(terminal)(question)
    lines = screen.getvalue().split("\n")

    assert "  asked because: no rule covers x | ls" in lines
    assert max(len(line) for line in lines if line.startswith(("  | ", "  : "))) <= 60
    assert len([line for line in lines if line.startswith("  : ")]) == 2


async def test_every_part_that_is_not_covered_is_named_and_gets_a_rule() -> None:
    """A long reason is shown whole, behind marks; one answer keeps all the rules."""
    parts = [f"`make a-rather-long-target-{n}`" for n in range(5)]
    decision = Decision(Verdict.ASK, f"not covered by any allow rule: {', '.join(parts)}.")
    rules = tuple(f"Bash({part.strip('`')})" for part in parts)
    with person("a") as (terminal, screen):
        asked = ApprovalRequest("t1", "Bash", Subject("x"), {"command": "..."}, decision, rules)
        answer = await ConsoleApprover(terminal)(asked)
    lines = screen.getvalue().split("\n")
    reason = lines[lines.index("  asked because:") + 1 : lines.index("  y  yes, once")]

    assert answer == ApprovalAnswer(True, "always")
    assert "".join(line[4:] for line in reason) == decision.reason
    assert all(line.startswith(("  | ", "  : ")) and len(line) <= 60 for line in reason)
    assert "  a  always: adds the 5 rules below to the allow rules of your policy" in lines
    assert [f"  | {rule}" for rule in rules] == lines[-6:-1]


async def test_hidden_characters_and_lookalike_letters_are_pointed_out() -> None:
    """The person is warned of what the eye misses."""
    with person("n no") as (terminal, screen):
        await ConsoleApprover(terminal)(request(command="c\u0430t a\u200bb \\n"))

    assert "  | c\u0430t a\\u200bb \\\\n\n" in screen.getvalue()
    assert "! 1 character that a terminal hides or obeys" in screen.getvalue()
    assert "! letters that can look like others: U+0430 CYRILLIC SMALL LETTER A" in screen.getvalue()


async def test_every_field_of_the_input_is_shown() -> None:
    """An edit shows its path, both texts whole, and its flags."""
    with person("n no") as (terminal, screen):
        question = request("Edit", None, old_string="a\nb", new_string="", file_path="/workspace/x", replace_all=True)
        await ConsoleApprover(terminal)(question)

    assert screen.getvalue().startswith(
        "? Edit wants to run (19 characters):\n"
        "  file_path (12 characters):\n  | /workspace/x\n"
        "  old_string (3 characters):\n  | a\n  | b\n"
        "  new_string (0 characters):\n  | \n"
        "  replace_all (4 characters):\n  | true\n"
    )


async def test_questions_of_parallel_agents_come_one_after_the_other() -> None:
    """A second question waits until the first is answered."""
    answers: list[ApprovalAnswer] = []

    async def ask(command: str) -> None:
        answers.append(await approver(request(command=command)))

    with person("y", "n no") as (terminal, screen):
        approver = ConsoleApprover(terminal)
        async with anyio.create_task_group() as group:
            group.start_soon(ask, "first")
            group.start_soon(ask, "second")

    assert [answer.allow for answer in answers] == [True, False]
    assert screen.getvalue().index("[y/s/a/n] > ") < screen.getvalue().index("| second")


async def test_cancelling_ends_an_open_question_at_once() -> None:
    """Ctrl-C does not leave a reader of the terminal behind."""
    with person() as (terminal, _):
        with anyio.move_on_after(0) as scope:
            await ConsoleApprover(terminal)(request())

        assert scope.cancelled_caught


async def test_what_needs_a_person_is_offered_for_once_only() -> None:
    """A yes for longer is no answer to it; a plan is shown line by line."""
    question = ApprovalRequest(
        "t1",
        "ExitPlanMode",
        Subject("a plan", needs_person="It needs a yes."),
        {"plan": "1. look\n2. mend"},
        Decision(Verdict.ASK, "It needs a yes."),
    )
    with person("s", "y") as (terminal, screen):
        answer = await ConsoleApprover(terminal)(question)

    assert answer == ApprovalAnswer(True, "once")
    assert screen.getvalue() == (
        "? ExitPlanMode wants to run (15 characters):\n"
        "  plan (15 characters):\n"
        "  | 1. look\n"
        "  | 2. mend\n"
        "  asked because: It needs a yes.\n"
        "  y  yes, once\n"
        "  n  no (n REASON tells the agent why)\n"
        "  [y/n] > "
        "  Answer with one of the letters above.\n"
        "  [y/n] > "
    )
