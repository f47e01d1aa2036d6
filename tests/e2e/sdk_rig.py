"""claude-agent-sdk, as it comes from PyPI, with our console script as its CLI."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, SystemMessage
from program import Program

CLI = Path(shutil.which("sandbox-agent-sdk", path=str(Path(os.sys.executable).parent)) or "sandbox-agent-sdk")  # type: ignore[attr-defined]
NAME = "claude-test"

During = Callable[[Any], Awaitable[None]]


def options(program: Program, *, base_url: str | None = None, **more: Any) -> ClaudeAgentOptions:
    """Options for a session on the program's folder; with `base_url` the model is the API's there."""
    env = {"XDG_STATE_HOME": str(program.home / "state"), "XDG_CONFIG_HOME": str(program.home / "config")}
    if base_url is not None:
        env |= {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "k"}
        more.setdefault("model", NAME)
    return ClaudeAgentOptions(cli_path=CLI, cwd=program.folder, env={**env, **more.pop("env", {})}, **more)


class Talk:
    """A client and all that it was told. `init` and `result` are of the last turn."""

    def __init__(self, client: ClaudeSDKClient) -> None:
        self.client = client
        self.messages: list[Any] = []

    async def turn(self, text: str | AsyncIterator[dict[str, Any]], during: During | None = None) -> ResultMessage:
        """One prompt to its result; `during` sees each message on its way."""
        self.messages = []
        await self.client.query(text)
        async for message in self.client.receive_response():
            self.messages.append(message)
            if during is not None:
                await during(message)
        result = self.messages[-1]
        assert isinstance(result, ResultMessage)
        return result

    def of(self, kind: type[Any]) -> list[Any]:
        """The messages of one type."""
        return [message for message in self.messages if isinstance(message, kind)]

    @property
    def init(self) -> dict[str, Any]:
        found = [one for one in self.of(SystemMessage) if one.subtype == "init"]
        assert len(found) == 1
        data: dict[str, Any] = found[0].data
        return data

    def results(self) -> list[tuple[str, bool]]:
        """The tool results, and whether each is an error."""
        blocks = [block for message in self.messages for block in _blocks(message)]
        return [(str(block.content), bool(block.is_error)) for block in blocks if hasattr(block, "tool_use_id")]


def _blocks(message: Any) -> Sequence[Any]:
    content = getattr(message, "content", None)
    return content if isinstance(content, list) else ()


@asynccontextmanager
async def talking(made: ClaudeAgentOptions) -> AsyncIterator[Talk]:
    """A connected client, to be used in here only."""
    async with ClaudeSDKClient(made) as client:
        yield Talk(client)
