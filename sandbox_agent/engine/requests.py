"""What the gate and the hooks ask about a call: the facts of it as a `PermissionRequest`, bound to its exact input."""

from __future__ import annotations

import hashlib
import json

from sandbox_agent.engine.scheduler import Call, holds
from sandbox_agent.engine.session import Session
from sandbox_agent.types import JsonObject, PermissionRequest, Subject


def digest(name: str, value: JsonObject) -> str:
    """SHA-256 of a call's exact input; binds a decision to the bytes that run."""
    text = json.dumps([name, value], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def binding(call: Call) -> str:
    """SHA-256 of all that a call would run with: what the model sent, and what it was parsed to. Taken before a call is
    judged and compared just before it runs, so that nothing else runs than what was judged and shown."""
    return digest(call.use.name, {"given": call.use.input, "parsed": repr(call.input)})


def request_of(session: Session, call: Call, subject: Subject) -> PermissionRequest:
    """The request of a call that is valid."""
    assert call.tool is not None
    return PermissionRequest(
        tool=call.tool.name,
        subject=subject,
        input_sha256=digest(call.use.name, call.use.input),
        read_only=holds(call.tool.read_only, call.input),
        edits=holds(call.tool.edits, call.input),
        source=call.tool.source,
        agent_id=session.agent_id,
    )
