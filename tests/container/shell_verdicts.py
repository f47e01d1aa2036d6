"""Runs shell forms for real and holds the judge against what happened. Not a test file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import shell_forms_program
from shell_forms import Form

from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.rules import RuleSet, parse_rule
from sandbox_agent.policy.shell import analyse
from sandbox_agent.policy.shell.model import SimpleCommand
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.types import Decision, Mode, PermissionRequest, Subject, Verdict

PROGRAM = Path(shell_forms_program.__file__).read_text()
BATCH_TIMEOUT_S = 170
LIMIT_S = 1.0
"""For one form."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a form really did: the arguments of each run of the marker, and names in its folder that changed."""

    runs: tuple[tuple[str, ...], ...]
    changed: tuple[str, ...]


def rules(*, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> Policy:
    return Policy(
        "forms",
        rules=RuleSet(
            deny=tuple(parse_rule(text, Verdict.DENY) for text in deny),
            allow=tuple(parse_rule(text, Verdict.ALLOW) for text in allow),
        ),
    )


DENYING = rules(allow=["Bash(*)"], deny=["Bash(mark:*)"])
LISTED = rules()
EXACT = rules(allow=["Bash(mark ok)"])
NAMED = rules(
    allow=[
        f"Bash({name}:*)"
        for name in (
            *("awk", "bash", "cd", "dash", "echo", "env", "eval", "exec", "find", "flock", "git", "nice", "perl"),
            *("printf", "python3", "rg", "sed", "sh", "sort", "split", "tar", "test", "timeout", "trap", "xargs"),
        )
    ]
)


async def outcomes(sandbox: Sandbox, texts: Sequence[str], *, limit_s: float = LIMIT_S) -> list[Outcome]:
    """Run the forms one after the other in the sandbox."""
    stdin = json.dumps({"forms": list(texts), "limit_s": limit_s}).encode("utf-8", "surrogatepass")
    ended = await sandbox.exec(
        ["python3", "-c", PROGRAM], stdin=stdin, cwd="/workspace", timeout_s=BATCH_TIMEOUT_S, max_output_bytes=1 << 24
    )
    assert ended.exit_code == 0, ended.stderr.decode("utf-8", "replace")
    found = json.loads(ended.stdout)["outcomes"]
    return [Outcome(tuple(tuple(run) for run in one["runs"]), tuple(one["changed"])) for one in found]


def faults(form: Form, outcome: Outcome) -> list[str]:
    """What the judge got wrong about the form; [] if nothing."""
    found = []
    ran = bool(outcome.runs)
    for name, policy in (("denied", DENYING), ("listed", LISTED), ("named", NAMED)):
        if ran and judged(policy, form.text).verdict is Verdict.ALLOW:
            found.append(f"ran, and allowed where the marker is {name}")
    if ran and not form.data and analyse(form.text).problem is None:
        if judged(DENYING, form.text, Mode.BYPASS).verdict is not Verdict.DENY:
            found.append("ran, and not denied: " + judged(DENYING, form.text).reason)
        if any("plain sh" in concern.why for concern in analyse(form.text).concerns):
            return found  # never allowed; how sh reads its words is not known
        parts = (*analyse(form.text).commands, *analyse(form.text).guesses)
        found += [f"unseen run {run}" for run in outcome.runs if not any(_fits(part, run) for part in parts)]
    if judged(EXACT, form.text).verdict is Verdict.ALLOW and any(run != ("ok",) for run in outcome.runs):
        found.append(f"allowed by an exact rule, and ran {outcome.runs}")
    if outcome.changed and judged(LISTED, form.text).verdict is Verdict.ALLOW:
        found.append(f"allowed as reading only, and changed {outcome.changed}")
    return found


def judged(policy: Policy, command: str, mode: Mode = Mode.DEFAULT) -> Decision:
    subject = Subject(command, command=command)
    return policy.decide(PermissionRequest("Bash", subject, input_sha256=""), mode)


def _fits(part: SimpleCommand, run: Sequence[str]) -> bool:
    """The command can have made this run: static words are its arguments in order, any other word is any number."""
    if part.program != "mark":
        return False
    reached = {0}
    for word in part.words[1:]:
        if word.static:
            reached = {at + 1 for at in reached if at < len(run) and run[at] == word.text}
        else:
            reached = set(range(min(reached), len(run) + 1)) if reached else set()
    return len(run) in reached
