"""Our tools for any MCP client: what a client asks of us, and what it is told. The work is the desk's."""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server import Server, ServerRequestContext

from sandbox_agent import __version__
from sandbox_agent.errors import SandboxAgentError, ToolError
from sandbox_agent.mcp.desk import Desk
from sandbox_agent.mcp.errands import SESSION_ID, carry_out, errands, text_of
from sandbox_agent.prompts import prompt
from sandbox_agent.types import JsonObject, ToolResult

MAX_QUESTION_CHARS = 20_000
"""A call with more to it cannot be asked about: nobody would read it."""

PROGRESS_S = 5.0
"""Between two words to a client whose call still runs: many give a call up that says nothing for a minute."""

MAX_OPEN_QUESTIONS = 100

_READ_ONLY = ("Read", "Grep", "Glob", "TaskOutput", "SessionList", "SessionDiff")
_ANSWER: JsonObject = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "title": "May this run?",
            "enum": ["no", "once", "session"],
            "enumNames": ["No", "Yes, once", "Yes, and calls like it for this session"],
            "default": "no",
        }
    },
    "required": ["answer"],
}


Answered = Callable[[str | None, str | None], Any]
"""Makes the desk's answer of what the person chose ("once", "session", None for no), and why not."""

Context = ServerRequestContext[Any, Any]


class Service:
    """The server of one desk, for any number of connections.

    Args:
        desk: does the work.
        answered: makes an answer of what a person said.
        shown: takes out of a text what could deceive whoever looks at it.
    """

    def __init__(self, desk: Desk, answered: Answered, shown: Callable[[str], str]) -> None:
        self._desk = desk
        self._answered = answered
        self._shown = shown
        self._definitions = {str(one["name"]): one for one in desk.definitions()}
        self._errands = errands(desk, shown)
        self._asked: OrderedDict[str, Any] = OrderedDict()
        """Calls that wait for the answer of a person, by the state that the client brings back with it."""
        self.server: Server[Any] = Server(
            "sandbox-agent",
            version=__version__,
            title="Hardened sandbox",
            instructions=prompt("served/instructions"),
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def _list(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = [_tool(_with_session(one)) for one in self._definitions.values()]
        return types.ListToolsResult(tools=[*tools, *(_tool(one) for one, _ in self._errands.values())])

    async def _call(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        given: JsonObject = dict(params.arguments or {})
        try:
            if params.name in self._errands:
                return _told(await carry_out(self._errands[params.name], given))
            if params.name not in self._definitions:
                raise MCPError(types.INVALID_PARAMS, f"there is no tool {self._shown(params.name)[:100]!r}")
            session_id = text_of(given.pop("session_id", None), "session_id")
            if params.request_state is not None:
                call = self._asked.pop(params.request_state, None)
                if call is None:
                    raise ToolError("the question that this answers is not open any more; make the call again")
                if call.question is not None:
                    call.answer(self._answer_of((params.input_responses or {}).get("answer")))
            else:
                call = await self._desk.submit(params.name, given, session_id, can_ask=_can_ask(ctx))
            return await self._followed(ctx, call)
        except SandboxAgentError as exc:
            return _told(str(exc), is_error=True)

    async def _followed(self, ctx: Context, call: Any) -> types.CallToolResult | types.InputRequiredResult:
        """A call to its end, or to a question that the client has to come back with the answer of."""
        kept = False
        try:
            while True:
                await _news(ctx, call)
                if call.result is not None:
                    return _result(call.result)
                text = self._question(call)
                if text is None:
                    call.answer(self._answered(None, f"it has more than {MAX_QUESTION_CHARS:,} characters to look at"))
                elif ctx.session.can_send_request:
                    call.answer(await self._elicited(ctx, text))
                else:
                    kept = True
                    return self._to_be_answered(call, text)
        finally:
            if call.result is None and not kept:
                self._desk.withdraw(call)

    async def _elicited(self, ctx: Context, text: str) -> Any:
        try:
            return self._answer_of(await ctx.session.elicit_form(text, _ANSWER, ctx.request_id))
        except MCPError as exc:
            return self._answered(None, f"the client cannot ask: {self._shown(exc.message)[:200]}")

    def _to_be_answered(self, call: Any, text: str) -> types.InputRequiredResult:
        state = secrets.token_urlsafe(24)
        self._asked[state] = call
        while len(self._asked) > MAX_OPEN_QUESTIONS:
            self._desk.withdraw(self._asked.popitem(last=False)[1])
        params = types.ElicitRequestFormParams(message=text, requested_schema=_ANSWER)
        return types.InputRequiredResult(
            input_requests={"answer": types.ElicitRequest(params=params)}, request_state=state
        )

    def _question(self, call: Any) -> str | None:
        """What exactly would run, None where that is too long to be looked at."""
        request = call.question
        given = json.dumps(request.input, ensure_ascii=False, indent=1, default=str)
        what = request.subject.command if request.subject.command is not None else given
        text = f"{request.tool} would run in the sandbox:\n\n{what}\n\n{request.decision.reason}"
        if request.suggested_rules:
            text += f"\nFor the session means: {', '.join(request.suggested_rules)}"
        text = self._shown(text)
        return text if len(text) <= MAX_QUESTION_CHARS else None

    def _answer_of(self, found: Any) -> Any:
        content = found.content if isinstance(found, types.ElicitResult) and found.action == "accept" else None
        chosen = (content or {}).get("answer")
        return self._answered(chosen if chosen in ("once", "session") else None, None)


async def _news(ctx: Context, call: Any) -> None:
    """Wait for the call's question or result. A client that wants to know is told that it still runs."""
    began_s = anyio.current_time()
    while call.result is None and call.question is None:
        with anyio.move_on_after(PROGRESS_S) as waiting:
            await call.news()
        if waiting.cancelled_caught:
            seconds = anyio.current_time() - began_s
            await ctx.session.report_progress(seconds, message=f"running for {seconds:.0f} s")


def _can_ask(ctx: Context) -> bool:
    """Whether the client shows forms to its person. One that says only "elicitation" means these."""
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _with_session(definition: JsonObject) -> JsonObject:
    schema = definition["input_schema"]
    properties = {**schema.get("properties", {}), "session_id": SESSION_ID}
    return {**definition, "input_schema": {**schema, "properties": properties}}


def _tool(definition: JsonObject) -> types.Tool:
    name = str(definition["name"])
    only_reads = name in _READ_ONLY
    return types.Tool(
        name=name,
        description=str(definition["description"]),
        input_schema=definition["input_schema"],
        annotations=types.ToolAnnotations(
            read_only_hint=only_reads, destructive_hint=False if only_reads else None, open_world_hint=False
        ),
    )


def _result(result: ToolResult) -> types.CallToolResult:
    content = result.content if not isinstance(result.content, str) else ({"type": "text", "text": result.content},)
    return types.CallToolResult(content=[_block(block) for block in content], is_error=result.is_error)


def _block(block: Mapping[str, Any]) -> types.ContentBlock:
    source = block.get("source")
    if block.get("type") == "image" and isinstance(source, dict):
        return types.ImageContent(type="image", data=str(source["data"]), mime_type=str(source["media_type"]))
    if block.get("type") == "document" and isinstance(source, dict):
        whole = types.BlobResourceContents(
            uri="sandbox:document", mime_type=str(source["media_type"]), blob=str(source["data"])
        )
        return types.EmbeddedResource(type="resource", resource=whole)
    return types.TextContent(type="text", text=str(block.get("text", "")))


def _told(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)
