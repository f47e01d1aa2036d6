"""Several tasks in one container, a word in between, and then a look at what was changed before some of it is applied.

    python examples/python/conversation.py

Needs a Docker Engine and no key: the model is a script.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import sandbox_agent
from sandbox_agent.events import ToolStarted, UserMessage

MODEL = f"script:{Path(__file__).with_suffix('.yaml')}"


async def main(folder: str) -> int:
    async with sandbox_agent.Session(workspace=folder, model=MODEL, mode="acceptEdits") as session:
        first = await session.ask("Write a haiku about rivers into haiku.txt.")
        print(f"{first.status}: {first.text}")

        async for event in session.run("And one about hills into hills.txt."):
            match event:
                case ToolStarted(summary=summary):
                    print(f"* {summary}")
                    session.send("Keep a copy in /workspace/backup.txt, too.")
                case UserMessage(content=[{"text": text}, *_]):
                    print(f"> {text}")
        print(f"{session.result.status}: {session.result.text}")

        for change in await session.changes():
            print(f"{change.kind} {change.path}")
        outcome = await session.apply(["haiku.txt", "hills.txt"])
        print(f"applied: {', '.join(outcome.applied)}")
        print(f"kept for `sandbox-agent apply {session.id}`: {', '.join(outcome.unapplied)}")
        return 0 if session.result.ok else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        code = asyncio.run(main(folder))
        print(f"in the folder: {', '.join(sorted(path.name for path in Path(folder).iterdir()))}")
    sys.exit(code)
