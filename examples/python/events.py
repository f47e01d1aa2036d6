"""Give an agent a task, show what it does as it happens, and say how it ended.

    python examples/python/events.py

Needs a Docker Engine and no key: the model is a script. MODEL = "anthropic:claude-sonnet-5-5" asks a real one, with the
key from ANTHROPIC_API_KEY.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import sandbox_agent
from sandbox_agent.events import Notice, TextDelta, ToolFinished, ToolStarted

MODEL = f"script:{Path(__file__).with_suffix('.yaml')}"


async def main(folder: str) -> int:
    run = sandbox_agent.run(
        "Make the greeting friendlier.",
        workspace=folder,
        model=MODEL,
        mode="acceptEdits",
        apply="always",
    )
    async for event in run:
        match event:
            case Notice(text=text):
                print(f"- {text}")
            case TextDelta(text=text):
                print(text, end="", flush=True)
            case ToolStarted(tool=tool, summary=summary):
                print(f"\n* {tool} {summary}")
            case ToolFinished(is_error=True, content=content):
                print(f"  failed: {content}")
    result = run.result
    print(f"\n{result.status} after {result.turns} turns, applied: {', '.join(result.applied)}")
    return 0 if result.ok else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        greeting = Path(folder, "greeting.txt")
        greeting.write_text("Hello\n")
        code = asyncio.run(main(folder))
        print(f"greeting.txt: {greeting.read_text()}", end="")
    sys.exit(code)
