"""What the record of a session proves: its chain, a head that was kept elsewhere, and a decision for every call.

Reads, and changes nothing. What a reviewer wants to see besides is in `findings`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox_agent.engine.findings import Findings, find
from sandbox_agent.engine.past import EVENTS_FILE
from sandbox_agent.events import RECORD_VERSION, SessionStarted
from sandbox_agent.tape import Chain, read_tape, verify
from sandbox_agent.types import JsonObject

SHOWN_BREAKS = 20


@dataclass(frozen=True, slots=True)
class KeptHead:
    """A head that was kept elsewhere, and where it is in the record: the first `entries` are what they were then, and
    `entries_since` came later. None: it is no entry's, so what was written by then was changed, or is gone."""

    head: str
    entries: int | None
    entries_since: int = 0


@dataclass(frozen=True, slots=True)
class Audit:
    """A record as far as it can be read.

    `unreadable` counts entries that are in the chain and are no event that this program knows. `version` is the form
    of the record.
    """

    session_id: str
    path: Path
    chain: Chain
    kept: KeptHead | None
    unreadable: int
    version: int
    findings: Findings

    @property
    def holds(self) -> bool:
        """Whether the record proves what it says."""
        head_holds = self.kept is None or self.kept.entries is not None
        return self.chain.holds and head_holds and not self.findings.unjudged

    @property
    def too_new(self) -> bool:
        """Whether a later program wrote it, in a form that this one may misread."""
        return self.version > RECORD_VERSION

    def as_json(self) -> JsonObject:
        """For machines."""
        chain, found = self.chain, self.findings
        return {
            "session_id": self.session_id,
            "record": str(self.path),
            "ok": self.holds,
            "chain": {
                "holds": chain.holds,
                "lines": chain.lines,
                "entries": len(chain.heads),
                "breaks": [one._asdict() for one in chain.breaks[:SHOWN_BREAKS]],
                "breaks_count": len(chain.breaks),
                "cut_lines": list(chain.cut_lines),
                "head": chain.head,
            },
            "kept_head": None if self.kept is None else asdict(self.kept),
            "record_version": self.version,
            "unreadable_entries": self.unreadable,
            "calls": found.calls,
            "calls_untold": len(found.untold),
            "calls_unjudged": found.unjudged,
            "runs": found.runs,
            "denials": found.denials,
            "questions": found.questions,
            "contradictions": found.contradictions,
            "applied": found.applied,
            "drifted": found.drifted,
            "hooks": found.hooks,
            "saved_rules": found.rules,
            "hosts": list(found.hosts),
        }


def audit(folder: Path, *, head: str | None = None) -> Audit:
    """Verify the record of the session in `folder`, and pick out what matters.

    Args:
        folder: the session's state folder.
        head: a head that was kept elsewhere, as 64 hex digits.

    Raises:
        RecordError: there is no record, or it cannot be read.
    """
    path = folder / EVENTS_FILE
    chain, tape = verify(path), read_tape(path, newer=True)
    versions = [entry.event.record_version for entry in tape.entries if isinstance(entry.event, SessionStarted)]
    return Audit(
        session_id=folder.name,
        path=path,
        chain=chain,
        kept=None if head is None else _kept(chain, head.lower()),
        unreadable=max(0, len(chain.heads) - len(tape.entries)),
        version=max(versions, default=RECORD_VERSION),
        findings=find(tape.entries),
    )


def _kept(chain: Chain, head: str) -> KeptHead:
    if head not in chain.heads:
        return KeptHead(head, None)
    entries = chain.heads.index(head) + 1
    return KeptHead(head, entries, len(chain.heads) - entries)
