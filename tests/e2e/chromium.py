"""A headless Chromium that a test drives over its debugging protocol."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

_CODES = {"Escape": 27, "Enter": 13}


class Browser:
    """One page. `told` are the events that came so far."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.told: list[dict[str, Any]] = []

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = json.loads((await self._socket.receive()).data)
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
            self.told.append(message)

    async def event(self, method: str) -> None:
        """Wait until this has happened since the last time."""
        while not any(one.get("method") == method for one in self.told):
            self.told.append(json.loads((await self._socket.receive()).data))

    async def value(self, expression: str) -> Any:
        """What an expression gives on the page; a promise is waited for."""
        found = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until this holds on the page."""
        look = f"const look = () => ({expression}) ? done() : requestAnimationFrame(look); look();"
        await self.value(f"new Promise((done) => {{ {look} }})")

    async def press(self, key: str) -> None:
        """One key, as a person presses it."""
        text = {"text": key} if len(key) == 1 else {"windowsVirtualKeyCode": _CODES[key], "code": key}
        await self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def type(self, text: str) -> None:
        for char in text:
            await self.press(char)

    async def open(self, page: Path) -> None:
        """Load a file and wait until it is there."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.ask(f"{domain}.enable")
        self.told.clear()
        await self.ask("Page.navigate", url=page.as_uri())
        await self.event("Page.loadEventFired")


@asynccontextmanager
async def chromium(profile: Path, *, width: int = 1400, height: int = 1000) -> AsyncIterator[Browser]:
    """Start one with a profile of its own; ended at the end."""
    program = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    assert program is not None, "these tests need a Chromium: apt-get install chromium"
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},{height}",
        "--remote-debugging-port=0",
    ]
    process = subprocess.Popen(  # noqa: ASYNC220
        [program, *options, f"--user-data-dir={profile}", "about:blank"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        address = (
            next(line for line in process.stderr if "DevTools listening on" in line).split("ws://")[1].split("/")[0]
        )
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://{address}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            async with http.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page, size = Browser(socket), {"width": width, "height": height}
                await page.ask("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=width < 600)
                yield page
    finally:
        process.terminate()
        process.communicate(timeout=20)
