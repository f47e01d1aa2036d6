"""What calls are about, as far as it takes I/O: where the paths that they name lead in the container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sandbox_agent.engine.scheduler import Call
from sandbox_agent.engine.session import Session
from sandbox_agent.types import Decision, Subject, Verdict

RESOLVE_ATTEMPTS = 2


def subject_of(session: Session, call: Call) -> Subject | Decision | None:
    """What a call is about; the denial of one that the policy hides or that cannot say it, None for no valid call."""
    if call.tool is None and call.refused is None:
        return session.policy.hiding(call.use.name)
    if call.tool is None or call.input is None:
        return None
    try:
        return call.tool.subject(call.input, session.ctx)
    except Exception as exc:  # noqa: BLE001 - a tool author's code; what cannot say its subject is not run
        return Decision(Verdict.DENY, f"{call.tool.name} could not say what it would touch ({exc}).")


async def resolve(session: Session, subjects: Sequence[Subject | Decision | None]) -> list[Subject | Decision | None]:
    """The same with where their paths lead, found out in one round trip.

    Raises:
        SandboxError: the sandbox is gone.
    """
    paths = paths_of(subjects)
    if not paths:
        return list(subjects)
    found = await leads(session, paths)
    session.ctx.resolved = found
    return [led(subject, found) if isinstance(subject, Subject) else subject for subject in subjects]


def paths_of(subjects: Sequence[Subject | Decision | None]) -> list[str]:
    """All paths that they name, each once."""
    return sorted({access.path for subject in subjects if isinstance(subject, Subject) for access in subject.paths})


def led(subject: Subject, found: Mapping[str, str]) -> Subject:
    """The subject with where its paths lead."""
    return replace(subject, paths=tuple(replace(access, resolved=found.get(access.path)) for access in subject.paths))


async def leads(session: Session, paths: Sequence[str]) -> dict[str, str]:
    """Where paths lead; {} if what would tell was killed each time, and a policy allows little of what is not known."""
    if session.proof is not None and (recorded := await session.proof.leads(session, paths)) is not None:
        return recorded
    for _ in range(RESOLVE_ATTEMPTS):
        try:
            found = {info.path: info.resolved for info in await session.sandbox.resolve(paths)}
            if session.proof is not None:
                session.proof.led(session, found)
            return found
        except OSError:  # what a command left behind got at the runner; the sandbox has another one by now
            continue
    return {}
