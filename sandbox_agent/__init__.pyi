from sandbox_agent import errors as errors
from sandbox_agent import events as events
from sandbox_agent.embedding.own_tools import build_tool as build_tool
from sandbox_agent.embedding.result import Result as Result
from sandbox_agent.embedding.running import Run as Run
from sandbox_agent.embedding.running import run as run
from sandbox_agent.embedding.session import Session as Session
from sandbox_agent.engine.approval import ApprovalAnswer as ApprovalAnswer
from sandbox_agent.engine.approval import ApprovalRequest as ApprovalRequest
from sandbox_agent.engine.hook_answers import HookAnswer as HookAnswer
from sandbox_agent.engine.hooks import ProgramHook as ProgramHook
from sandbox_agent.policy.hooks import HookEvent as HookEvent
from sandbox_agent.policy.hooks import parse_matcher as parse_matcher
from sandbox_agent.tools.base import Tool as Tool
from sandbox_agent.tools.base import ToolContext as ToolContext
from sandbox_agent.tools.base import ToolInput as ToolInput
from sandbox_agent.tools.questions import Question as Question
from sandbox_agent.tools.questions import Reply as Reply
from sandbox_agent.types import ToolResult as ToolResult
from sandbox_agent.types import Verdict as Verdict

__version__: str
