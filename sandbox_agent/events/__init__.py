"""Everything that happens in a run, as frozen values; front ends and records consume nothing else.

The conversation *is* the fold of these events (`engine.history.fold`). `TextDelta` and `ThinkingDelta` are for
live output only and are not recorded: the whole text follows in `AssistantMessage`. A new event is a class in
`agents`, `calls`, `checks`, `jobs`, `mcp`, `network`, `session` or `steering`, and its name here.
"""

from sandbox_agent.events.agents import AgentFinished, AgentStarted
from sandbox_agent.events.base import Event
from sandbox_agent.events.calls import (
    CallDiscarded,
    CallEffects,
    PermissionAsked,
    PermissionDecided,
    ToolFinished,
    ToolResultsMessage,
    ToolStarted,
)
from sandbox_agent.events.checks import CheckFinished, CheckStarted
from sandbox_agent.events.codec import EVENT_TYPES, decode, encode
from sandbox_agent.events.jobs import JobFinished, JobStarted
from sandbox_agent.events.mcp import McpServerChanged, ToolProgress, ToolsOffered
from sandbox_agent.events.network import EgressDecided, EgressEnded
from sandbox_agent.events.session import (
    RECORD_VERSION,
    AssistantMessage,
    ChangesApplied,
    CheckpointTaken,
    ConversationCompacted,
    ConversationRewound,
    FolderDrifted,
    HookRan,
    LimitReached,
    ModelRetrying,
    ModelSwitched,
    Notice,
    ProjectInstructions,
    RequestStarted,
    ResultsTrimmed,
    ReviewReady,
    RunFinished,
    SandboxReady,
    SessionStarted,
    TextDelta,
    ThinkingDelta,
    UserMessage,
)
from sandbox_agent.events.steering import ConversationCleared, ModeChanged, ModelChanged

__all__ = [
    "EVENT_TYPES",
    "RECORD_VERSION",
    "AgentFinished",
    "AgentStarted",
    "AssistantMessage",
    "CallDiscarded",
    "CallEffects",
    "ChangesApplied",
    "CheckFinished",
    "CheckStarted",
    "CheckpointTaken",
    "ConversationCleared",
    "ConversationCompacted",
    "ConversationRewound",
    "EgressDecided",
    "EgressEnded",
    "Event",
    "FolderDrifted",
    "HookRan",
    "JobFinished",
    "JobStarted",
    "LimitReached",
    "McpServerChanged",
    "ModeChanged",
    "ModelChanged",
    "ModelRetrying",
    "ModelSwitched",
    "Notice",
    "PermissionAsked",
    "PermissionDecided",
    "ProjectInstructions",
    "RequestStarted",
    "ResultsTrimmed",
    "ReviewReady",
    "RunFinished",
    "SandboxReady",
    "SessionStarted",
    "TextDelta",
    "ThinkingDelta",
    "ToolFinished",
    "ToolProgress",
    "ToolResultsMessage",
    "ToolStarted",
    "ToolsOffered",
    "UserMessage",
    "decode",
    "encode",
]
