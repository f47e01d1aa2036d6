"""What happens in a session around its tool calls: start, turns, limits, checkpoints, review, end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from sandbox_agent.events.base import Event
from sandbox_agent.types import JsonObject, Usage

RECORD_VERSION = 1
"""Of the records that this program writes. One without a version is of version 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted(Event):
    """Written before anything else: what the run is made of. A fork names the session and the step it is of.

    `record_version` is the form of the record itself: it grows when older programs could not read it rightly.
    `mcp_servers` has {"name", "place"} of each that is to start; what comes of it is told by McpServerChanged.
    `sandbox` has the container's runtime and limits, see `engine.container.facts_of`.
    """

    type: ClassVar[str] = "session_started"
    session_id: str
    model: str
    workspace: str
    workspace_mode: str
    image: str
    policy: str
    mode: str
    tools: tuple[str, ...]
    version: str
    record_version: int = RECORD_VERSION
    resumed_from: str | None = None
    forked_from: str | None = None
    forked_step: int | None = None
    sandbox: JsonObject = field(default_factory=dict)
    mcp_servers: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxReady(Event):
    """The container answers. `isolation` is one line for people, `transport` is "runner" or "exec"."""

    type: ClassVar[str] = "sandbox_ready"
    container_id: str
    isolation: str
    transport: str
    start_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage(Event):
    """A user turn that is not tool results: the task, or a queued message."""

    type: ClassVar[str] = "user_message"
    content: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectInstructions(UserMessage):
    """What the folder says to agents (AGENTS.md, CLAUDE.md), exactly as the model is given it, before the task.

    `files` has the files that are in it as {"path", "size_bytes", "given_bytes", "sha256", "note"}: of the whole file,
    and of its text in the message; `note` says what of it was left out or changed, None if nothing was.
    """

    type: ClassVar[str] = "project_instructions"
    files: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStarted(Event):
    """A model request goes out. `turn` counts from 1."""

    type: ClassVar[str] = "request_started"
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(Event):
    """A piece of the answer as it streams. Live only."""

    type: ClassVar[str] = "text_delta"
    recorded: ClassVar[bool] = False
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta(Event):
    """A piece of the model's visible thinking as it streams. Live only."""

    type: ClassVar[str] = "thinking_delta"
    recorded: ClassVar[bool] = False
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetrying(Event):
    """The request failed in a passing way and is sent again; what streamed so far is void."""

    type: ClassVar[str] = "model_retrying"
    attempt: int
    wait_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSwitched(Event):
    """The rest of the run asks the fallback: what `before` has streamed for this request is void.

    `reason` is why, in words for the person. Where it refused, `discarded` has its answer, which is no part of the
    conversation, and `usage` what that used.
    """

    type: ClassVar[str] = "model_switched"
    model: str
    before: str
    reason: str
    discarded: tuple[JsonObject, ...] = ()
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage(Event):
    """One whole answer, blocks exactly as they came (and as they go back).

    `cost_usd` is what this request cost; None where it is not known, or nothing was used.
    """

    type: ClassVar[str] = "assistant_message"
    content: tuple[JsonObject, ...]
    stop_reason: str
    model: str
    usage: Usage
    message_id: str | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Event):
    """A line for the person: `level` is "info" or "warning"."""

    type: ClassVar[str] = "notice"
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached(Event):
    """A limit of the run was hit. `limit` is its name in the policy, `value` what was allowed."""

    type: ClassVar[str] = "limit_reached"
    limit: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewReady(Event):
    """What the run changed in its copy of the folder: one entry a file, see `workspaces.base.Change.as_json`.

    `commits` are git's folders with commits or branches that only the session has.
    """

    type: ClassVar[str] = "review_ready"
    changes: tuple[JsonObject, ...]
    commits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderDrifted(Event):
    """Somebody else than the session changed the user's folder while it ran; told once for a path and its state.

    `changed` has them as {"path", "kind", "state"}, see `workspaces.base.Drift`, the first 1,000 of `changed_count`.
    What lies in a git folder counts as that folder.
    """

    type: ClassVar[str] = "folder_drifted"
    changed: tuple[JsonObject, ...]
    changed_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTaken(Event):
    """The tree of the workspace was kept as a step that `undo` and `fork` can name; step 0 is before the first tool.

    `origin` says why, see `workspaces.steps.Step`. `call_ids` are the calls since the step before, `changed` the paths
    that differ from it, as {"path", "kind"}, the first 1,000 of `changed_count`. `restored` is the step whose tree was
    brought back, None where none was. `lost` names paths whose content could not be kept.
    """

    type: ClassVar[str] = "checkpoint_taken"
    step: int
    origin: str
    call_ids: tuple[str, ...]
    changed: tuple[JsonObject, ...]
    changed_count: int
    tree_sha256: str
    duration_s: float
    restored: int | None = None
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRewound(Event):
    """What was said after entry `to_seq` of this record belongs to the conversation no longer; it stays recorded."""

    type: ClassVar[str] = "conversation_rewound"
    to_seq: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsTrimmed(Event):
    """What these old calls gave is in the conversation no longer, to make room; it stays recorded.

    `tokens_before` and `tokens_after` are how long the conversation was and is, `window_tokens` how long it may be.
    """

    type: ClassVar[str] = "results_trimmed"
    tool_use_ids: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    window_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCompacted(Event):
    """The conversation is from now on `messages`, in which a summary stands for most of what was; that stays recorded.

    `reason` is "full", "overflow" (the model took no more), or "asked". `tokens_before` and `tokens_after` are how long
    it was and is, `window_tokens` how long it may be. `model` and `usage` are of the summary.
    """

    type: ClassVar[str] = "conversation_compacted"
    messages: tuple[JsonObject, ...]
    reason: str
    tokens_before: int
    tokens_after: int
    window_tokens: int
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesApplied(Event):
    """Which files went to the user's folder, which did not, and why not (path to reason): those in `conflicts` cannot
    go, those in `withheld` only when their own path is named. Of `partial` some hunks went; they are in `unapplied`,
    too.
    """

    type: ClassVar[str] = "changes_applied"
    applied: tuple[str, ...]
    unapplied: tuple[str, ...]
    conflicts: dict[str, str] = field(default_factory=dict)
    partial: tuple[str, ...] = ()
    withheld: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(Event):
    """The end. `status` is one of done, denied, failed, limit, sandbox_error, model_error, interrupted.

    `usage` is of all agents together, `model_usage` the same by the model's name. `cost_usd` is None where it is not
    known, or where nothing was used. `api_status` is the HTTP status of a model error, None where there was none.
    `structured_output` is the answer in the form that was asked for, None where none was, or where it was not given,
    which is then `answer_missing` and makes a task that came to its end a failed one.
    """

    type: ClassVar[str] = "run_finished"
    status: str
    text: str
    turns: int
    usage: Usage
    duration_s: float
    denials: tuple[JsonObject, ...] = ()
    error: str | None = None
    cost_usd: float | None = None
    model_usage: dict[str, Usage] = field(default_factory=dict)
    api_status: int | None = None
    structured_output: JsonObject | None = None
    answer_missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRan(Event):
    """A hook came to its end. `event` is what it was for, `place` "container", "host" or "program", `exit_code` None
    where it had none (it timed out, or is a function of the embedding program).

    `decision` is "deny", "ask" or "allow" where it said so, `reason` what it said of that or as feedback, `fault` why
    its answer cannot be used. With a call: its id, its tool, and the digest of the input that the hook was shown.
    `rewritten` is the input that it put in place of that, `rewritten_sha256` its digest; both None where it did not.
    """

    type: ClassVar[str] = "hook_ran"
    hook: str
    event: str
    place: str
    exit_code: int | None
    duration_s: float
    decision: str | None = None
    reason: str | None = None
    fault: str | None = None
    location: str | None = None
    call_id: str | None = None
    tool: str | None = None
    input_sha256: str | None = None
    rewritten: JsonObject | None = None
    rewritten_sha256: str | None = None
