"""A session of the installed command that was killed: listed, shown, exported, gone on with, removed."""

from __future__ import annotations

import json

import pytest
from program import DONE, WRITE, Program, use

pytestmark = pytest.mark.docker


def test_a_killed_session_goes_on_and_goes(program: Program) -> None:
    """With its changes and its own model; nothing is applied twice, and nothing of it is left in the end."""
    process = program.sleeping(WRITE)
    process.kill()
    process.communicate()
    name = program.session().name
    row = json.loads(program.call("sessions", "list", "--json", "--folder", ".").stdout)
    more = {"text": "More.", "tools": [use("Write", file_path="/workspace/more.txt", content="more\n")]}
    program.script([more, DONE])  # the file that the session's own model is read from
    gone_on = program.call("resume", name, "-p", "--mode", "acceptEdits", "--apply", "always")
    told = program.call("sessions", "export", "last", "-", "--format", "json")

    assert (row["session_id"], row["status"], row["task"]) == (name, "unfinished", "x")
    assert (gone_on.code, gone_on.stdout) == (0, "All done.\n"), gone_on.stderr
    assert gone_on.stderr.count("the record of the session was not whole") == 1
    assert {path.name for path in program.folder.iterdir()} == {"a.txt", "new.txt", "more.txt"}
    document = json.loads(told.stdout)
    assert sorted(document["applied"]) == ["more.txt", "new.txt"]
    assert [run["status"] for run in document["runs"]] == ["unfinished", "done"]
    said = [one["content"][0].get("text") for one in document["record"]["entries"] if one["type"] == "user_message"]
    assert said == ["x", "Go on where you stopped."]
    removed = program.call("sessions", "rm", name)
    assert (removed.code, program.call("sessions", "list").stdout) == (0, "")
