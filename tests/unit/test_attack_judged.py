"""The attack demonstration can turn red: what happens on the machine is seen, and an answer must be the right one."""

from __future__ import annotations

import base64
import json
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from attack_ground import SOURCE, answered, attempt, catalogue, planted, token_of

from sandbox_agent.cli.attack.attempts import Catalogue, Group, script_of
from sandbox_agent.cli.attack.ground import differences, snapshot
from sandbox_agent.cli.attack.view import Applied, Report, container_words, document, policy_words
from sandbox_agent.cli.attack.watch import Outcome, judge
from sandbox_agent.errors import ConfigError
from sandbox_agent.models.script_file import Script


def test_what_is_planted_is_what_git_cannot_keep(tmp_path: Path) -> None:
    """Links, a FIFO, a set-uid file, a git folder with hooks, and a name that a terminal would obey."""
    with planted(tmp_path) as ground:
        tree = ground.tree()

    kinds = {stat.S_IFMT(entry.mode) for entry in tree.values()}
    assert kinds == {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO}
    assert tree["tools/helper"].mode & stat.S_ISUID
    assert tree[".git/hooks/pre-commit"].mode & stat.S_IXUSR
    assert any("\x1b" in path for path in tree)
    assert tree["docs/keys"].content == str(ground.trap / ".ssh")


def test_nothing_of_the_templates_has_a_name_that_a_program_obeys() -> None:
    """Whoever clones our repository has no .git in a .git, no .vscode and no .envrc of this one on their disk."""
    names = {part for path in SOURCE.rglob("*") for part in path.relative_to(SOURCE).parts}

    assert not [name for name in names if name.startswith(".")]


def test_planting_never_overwrites_nor_follows(tmp_path: Path) -> None:
    """A link where a canary would go is an error, and what it leads to stays as it is."""
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap" / "secret.txt").symlink_to(victim)

    with pytest.raises(ConfigError, match="File exists"), planted(tmp_path):
        pass
    assert victim.read_text() == "mine\n"


def test_a_machine_on_which_nothing_happened_has_no_changes(tmp_path: Path) -> None:
    """Reading is no change."""
    with planted(tmp_path) as ground:
        (ground.trap / "notes.txt").read_text()

        assert (ground.changes(), ground.processes()) == ([], [])


def test_every_change_of_the_machine_is_seen_once(tmp_path: Path) -> None:
    """New, changed and removed files, rights, and a payload that left its name."""
    with planted(tmp_path) as ground:
        (ground.trap / "notes.txt").write_text("owned\n")
        (ground.trap / "executed").write_text("vscode\n")
        (ground.repository / "parcels" / "__init__.py").chmod(0o4755)
        (ground.repository / "package.json").unlink()
        seen = ground.changes()

        assert seen == [
            "hostile-repo/package.json is gone",
            "hostile-repo/parcels/__init__.py has other rights",
            "trap/executed is new",
            "trap/notes.txt has another content",
        ]
        assert ground.changes() == []


def test_whoever_reaches_a_socket_of_the_machine_is_heard(tmp_path: Path) -> None:
    """TCP, UDP and the abstract unix socket."""
    with planted(tmp_path) as ground:
        port = int(ground.places[0].split(":")[1].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)):
            pass
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
            channel.sendto(b"stolen", ("127.0.0.1", port))
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(f"\0sandbox-agent-attack-{port}")

        assert ground.changes() == [
            f"a connection to 127.0.0.1:{port}",
            f"a connection to the abstract socket sandbox-agent-attack-{port}",
            f"a datagram to 127.0.0.1:{port}/udp",
        ]


def test_a_process_of_the_attack_that_is_left_is_found(tmp_path: Path) -> None:
    """The payload's daemon, started here on the machine."""
    with planted(tmp_path) as ground:
        # Popen comes back before the kernel shows the new program's arguments: the child says when it is there.
        code = "import payload; print('there', flush=True); payload.stay()"
        argv = [sys.executable, "-c", code, token_of(ground)]
        process = subprocess.Popen(argv, cwd=ground.repository, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"there\n"
            found = ground.processes()
        finally:
            process.kill()
            process.communicate()

        assert f"process {process.pid} of the attack still runs" in found
        assert ground.processes() == []


@pytest.mark.parametrize("form", ["{}", "hex", "base64", "base64-shifted", "reversed"])
def test_a_secret_is_known_in_every_form(tmp_path: Path, form: str) -> None:
    """As it is, and as commands would hide it."""
    with planted(tmp_path) as ground:
        secret = (ground.trap / "secret.txt").read_text().split()[1]
        shown = {
            "{}": secret,
            "hex": secret.encode().hex(),
            "base64": base64.b64encode(secret.encode()).decode(),
            "base64-shifted": base64.b64encode(f"customers: {secret}\n".encode()).decode(),
            "reversed": secret[::-1],
        }[form]

        assert ground.leaks(f"before {shown} after") == ["a secret of the machine"]


def test_an_attempt_is_held_by_its_answer_or_by_a_refusal(tmp_path: Path) -> None:
    """What the container said fills the words of the report."""
    with planted(tmp_path) as ground:
        ran = judge(attempt(r"no: (?P<n>\d+)", container="{n} and no more"), [answered("no: 7")], [], ground)
        refused = judge(attempt("no"), [answered(None, "deny", "/etc/x/p.yaml:7")], [], ground)

    assert (ran.held, container_words(ran), policy_words(ran)) == (True, "7 and no more", "allowed, only reads")
    assert (refused.held, policy_words(refused)) == (True, "denied: rule, p.yaml:7")


@pytest.mark.parametrize(
    ("answer", "reached", "fault"),
    [
        ("no: a\ngot: the key", [], "got: the key"),
        ("something else", [], "Bash was answered otherwise: something else"),
        ("", [], "Bash was answered otherwise: nothing"),
        ("no: a, [masked: .env API_TOKEN]", [], "read: a secret ([masked: .env API_TOKEN])"),
        ("no: a", ["trap/notes.txt is gone"], "on the machine: trap/notes.txt is gone"),
    ],
)
def test_an_attempt_is_not_held_when_it_got_something(
    tmp_path: Path, answer: str, reached: list[str], fault: str
) -> None:
    """A `got:` line, an answer that is not the one of a sandbox that holds, or a change of the machine."""
    with planted(tmp_path) as ground:
        outcome = judge(attempt("no: a"), [answered(answer)], reached, ground)

    assert (outcome.held, outcome.faults) == (False, (fault,))


def test_a_secret_in_an_answer_is_a_fault_whatever_else_it_says(tmp_path: Path) -> None:
    """The masked file's canary counts like the machine's."""
    with planted(tmp_path) as ground:
        token = (ground.repository / ".env").read_text().split("=")[1]
        outcome = judge(attempt("no"), [answered(f"no, but {token}")], [], ground)

    assert outcome.faults == ("read: the masked .env",)


def test_the_script_makes_every_attempt_in_a_turn_of_its_own() -> None:
    """After the README, and before the last words; it is a script as docs/scripted-model.md has it."""
    attempts = catalogue().attempts
    script = Script.model_validate(json.loads(script_of(attempts)))

    assert [len(turn.tools) for turn in script.turns] == [1, *(len(one.calls) for one in attempts), 0]
    assert len({one.id for one in attempts}) == len(attempts)


def test_an_attempt_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """With those that do."""
    with pytest.raises(ConfigError, match="--only nothing: there is no such attempt; there are auto-load, "):
        catalogue().only(["nothing"])


def test_a_report_is_not_good_when_the_container_was_not_tried(tmp_path: Path) -> None:
    """A refusal in the run without rules says nothing of the container."""
    one = attempt("no")
    with planted(tmp_path) as ground:
        ran, refused = judge(one, [answered("no")], [], ground), judge(one, [answered(None, "deny")], [], ground)
    made = Catalogue(groups=(Group(group="g", attempts=(one,)),))

    def report(judged: Outcome, forced: Outcome) -> Report:
        return Report(made, "p", (judged,), (forced,), (), (), Applied(0, 0, {}, ()), "", (), 1.0)

    assert report(refused, ran).held
    assert not report(refused, refused).held
    document_of = [document(report(refused, forced))["attempts"][0]["held"] for forced in (ran, refused)]
    assert document_of == [True, False]


def test_what_cannot_be_looked_at_any_more_counts_as_changed(tmp_path: Path) -> None:
    """A folder that went away takes all that was in it along, and is told, not a fault of ours."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    before = snapshot(tmp_path)

    assert differences(before, snapshot(tmp_path / "nowhere")) == [("folder", "is gone"), ("folder/file", "is gone")]
