"""What Tab offers in a chat."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from sandbox_agent.frontends.chat_complete import MOST_OFFERED, ChatCompleter
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.snapshot import Node

FOLDERS = ("", "src", "src/deep", "a")
FILES = ("src/main.py", "src/map.py", "src/deep/x.py", "src-old", "README.md", "a/b", "a b", "ev\x1bil", "ev\u202eil")
NODES = {path: Node(Kind.DIRECTORY, 0o755) for path in FOLDERS} | {path: Node(Kind.FILE, 0o644) for path in FILES}


def completed(text: str, *, tab: bool = True) -> list[str]:
    """The line after each of what is offered."""
    completer = ChatCompleter(
        {"mode": "Mode.", "model": "Model.", "quit": "Leave."},
        lambda name: ["plan", "default"] if name == "mode" else [],
        lambda: NODES,
    )
    offered = completer.get_completions(Document(text), CompleteEvent(completion_requested=tab))
    return [text[: len(text) + one.start_position] + one.text for one in offered]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/mo", ["/mode", "/model"]),
        ("/mode p", ["/mode plan"]),
        ("look at src/ma", ["look at src/main.py", "look at src/map.py"]),
        ("look at sr", ["look at src/", "look at src-old"]),
        ("src/", ["src/deep/", "src/main.py", "src/map.py"]),
        ("@./src/d", ["@./src/deep/"]),
        ("/workspace/READ", ["/workspace/README.md"]),
        ("/diff src/de", ["/diff src/deep/"]),
        ("", ["README.md", "a/", "src/", "src-old"]),
        ("x ", ["x README.md", "x a/", "x src/", "x src-old"]),
        ("ev", []),
        ("/etc/pas", []),
        ("../", []),
    ],
)
def test_commands_and_the_entries_of_one_folder_are_offered(text: str, wanted: list[str]) -> None:
    """Names with blanks, or that a terminal would not show as they are, are not; nothing outside the workspace is."""
    assert sorted(completed(text)) == sorted(wanted)


def test_paths_are_offered_only_when_asked_for() -> None:
    """Commands come up while they are written."""
    assert completed("src/ma", tab=False) == []
    assert completed("/qu", tab=False) == ["/quit"]


def test_a_folder_with_very_many_entries_is_offered_in_part() -> None:
    """And what lies below its folders is passed over at once."""
    nodes = {f"f/{number:05}": Node(Kind.FILE, 0o644) for number in range(MOST_OFFERED * 3)}
    nodes |= {f"d/{number:05}": Node(Kind.FILE, 0o644) for number in range(50_000)} | {"e": Node(Kind.FILE, 0o644)}
    completer = ChatCompleter({}, lambda name: [], lambda: nodes)
    asked = CompleteEvent(completion_requested=True)

    assert len(list(completer.get_completions(Document("f/"), asked))) == MOST_OFFERED
    assert [one.text for one in completer.get_completions(Document(""), asked)] == ["e"]
