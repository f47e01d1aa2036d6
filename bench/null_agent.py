"""The floor of the loop part: streams each answer, runs nothing, says "ok" to every tool_use. Standard library only."""

from __future__ import annotations

import http.client
import json
import os
import sys
import urllib.parse
from typing import Any

HEADERS = {"content-type": "application/json", "x-api-key": "none", "anthropic-version": "2023-06-01"}
TOOLS = [{"name": name, "description": "", "input_schema": {"type": "object"}} for name in ("Read", "Bash", "Grep")]


def answer_of(lines: http.client.HTTPResponse) -> list[dict[str, Any]]:
    """The content blocks of a streamed answer."""
    blocks: list[dict[str, Any]] = []
    inputs: dict[int, str] = {}
    for line in lines:
        if not line.startswith(b"data: "):
            continue
        event = json.loads(line[6:])
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            inputs[event["index"]] = inputs.get(event["index"], "") + event["delta"]["partial_json"]
        elif event["type"] == "content_block_delta":
            blocks[event["index"]]["text"] += event["delta"]["text"]
        elif event["type"] == "content_block_stop" and blocks[event["index"]]["type"] == "tool_use":
            blocks[event["index"]]["input"] = json.loads(inputs[event["index"]])
    return blocks


def main() -> None:
    """Talk until an answer has no tool_use."""
    url = urllib.parse.urlsplit(os.environ["ANTHROPIC_BASE_URL"])
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    messages: list[dict[str, Any]] = [{"role": "user", "content": sys.argv[1]}]
    while True:
        body = {"model": "null", "max_tokens": 1000, "stream": True, "messages": messages, "tools": TOOLS}
        connection.request("POST", "/v1/messages", json.dumps(body), HEADERS)
        blocks = answer_of(connection.getresponse())
        ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if not ids:
            return
        messages.append({"role": "assistant", "content": blocks})
        results = [{"type": "tool_result", "tool_use_id": call_id, "content": "ok"} for call_id in ids]
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    main()
