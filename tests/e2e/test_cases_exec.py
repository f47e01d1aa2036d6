"""The cases of running commands (exec): deadlines, floods, input, exit codes, encodings; in one real container."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator

import anyio
import pytest
from case_rig import Desk, bash, started

from sandbox_agent.sandboxes.base import KILL_GRACE_S, MIB
from sandbox_agent.tools.bash import TOOL as BASH
from sandbox_agent.tools.shell_output import INLINE_CHARS

pytestmark = pytest.mark.docker

GRACE_S = KILL_GRACE_S + 3
"""From the limit to the result, at most: TERM, the time to obey it, KILL, and a slow machine."""


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("EDITOR", "VISUAL", "GIT_EDITOR", "PAGER"):
            patch.setenv(name, "vi")
        async with started(tmp_path_factory.mktemp("exec")) as desk:
            yield desk


@pytest.mark.parametrize(
    ("command", "limit_s"),
    [
        ("bash -c 'exec -a spin_d01 sleep 300'", 2),
        ("setsid bash -c 'exec -a spin_d01 sleep 300'", 0.6),
        ("bash -c 'trap \"\" TERM INT HUP; while :; do exec -a spin_d01 sleep 300; done'", 0.6),
        ("bash -c 'exec -a spin_d01 sleep 300' & kill -STOP $!; wait", 0.6),
        ("python3 -c 'import time\nwhile 1: time.sleep(1)' spin_d01", 0.6),
        ("bash -c 'while :; do :; done' spin_d01", 0.6),
    ],
)
async def test_dev_01_a_timeout_leaves_nothing_of_the_command_alive(desk: Desk, command: str, limit_s: float) -> None:
    """The result comes soon after the limit, is marked as timed out, and no process of the command is left."""
    ended, look = await desk.calls(bash(command, timeout_s=limit_s), bash("pgrep -fc '[s]pin_d01' || true"))
    assert limit_s <= ended.duration_s < limit_s + GRACE_S
    assert (ended.is_error, ended.meta["timed_out"]) == (True, True)
    assert look.text == "0\nExit code: 0"


@pytest.mark.parametrize(
    ("command", "limit_s"),
    [
        ("for i in 1 2 3; do bash -c 'exec -a orphan_d02 sleep 300' & done; sleep 300", 2),
        ("(setsid bash -c 'exec -a orphan_d02 sleep 300' &); (setsid setsid sleep 301 &); sleep 300", 0.6),
        ("nohup bash -c 'trap \"\" TERM; exec -a orphan_d02 sleep 300' & disown; sleep 300", 0.6),
        ('bash -c \'bash -c "exec -a orphan_d02 sleep 300" & bash -c "exec -a orphan_d02 sleep 301"\' | cat', 0.6),
        ("env -i setsid bash -c 'exec -a orphan_d02 sleep 300' </dev/null >/dev/null 2>&1 & sleep 300", 0.6),
    ],
)
async def test_dev_02_children_in_the_background_do_not_survive_a_timeout(
    desk: Desk, command: str, limit_s: float
) -> None:
    """Whatever session, environment or parent they gave themselves."""
    ended, look = await desk.calls(
        bash(command, timeout_s=limit_s), bash("pgrep -fc '[o]rphan_d02'; pgrep -u $(id -u) -c sleep; true")
    )
    assert (ended.is_error, ended.meta["timed_out"]) == (True, True)
    assert ended.duration_s < limit_s + GRACE_S
    assert look.text == "0\n0\nExit code: 0"


@pytest.mark.parametrize(
    ("command", "limit_s"),
    [
        ("echo before; sleep 60; echo after", 2),
        ("echo before >&2; sleep 60; echo after >&2", 0.6),
        ("trap '' TERM; echo before; sleep 60; echo after", 0.6),
        ("python3 -c \"import time; print('before', flush=True); time.sleep(60); print('after')\"", 0.6),
    ],
)
async def test_dev_03_a_timeout_keeps_what_was_printed_and_names_the_limit(
    desk: Desk, command: str, limit_s: float
) -> None:
    """Partial output, an error, the limit in seconds, and that everything was killed."""
    ended = await desk.bash(command, timeout_s=limit_s)
    assert ended.text.startswith("before\n")
    assert "after" not in ended.text.split("Exit code")[0]
    assert (ended.is_error, ended.meta["timed_out"]) == (True, True)
    assert f"the limit of {limit_s:g} s was reached, and the command was killed" in ended.text


@pytest.mark.parametrize(
    "command",
    [
        "yes flood_d05",
        "yes flood_d05 >&2",
        "cat /dev/zero",
        "yes '' | tr '\\n' x",
    ],
)
async def test_dev_05_a_flood_in_the_foreground_is_bounded_and_counted(desk: Desk, command: str) -> None:
    """Inline a bounded excerpt, in the container one bounded file, on the host next to nothing; the size is said."""
    played = await desk.play(
        bash(command, timeout_s=0.8), bash("du -sb /tmp/sandbox-agent | cut -f1; rm -r /tmp/sandbox-agent")
    )
    ended, stored = played.results
    assert ended.meta["timed_out"] is True
    assert len(ended.text) < INLINE_CHARS + 1000
    assert ended.meta["output_bytes"] > 5 * MIB
    assert f"{ended.meta['output_bytes']:,} bytes of output in all" in ended.text
    assert int(stored.text.split()[0]) <= 64 * MIB * 1.1
    assert played.record.stat().st_size < 2 * MIB


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_dev_06_the_cap_cuts_exactly_what_is_beyond_it(desk: Desk, stream: str) -> None:
    """Of 9,999, 10,000 and 10,001 bytes only the last is cut, with its true size and both its ends; exit code 0."""
    found = []
    for size in (9_999, 10_000, 10_001):
        script = f"import sys; sys.{stream}.write('a' + 'x' * {size - 2} + 'z')"
        ended = await desk.sandbox.exec(["python3", "-c", script], max_output_bytes=10_000)
        kept = ended.stdout if stream == "stdout" else ended.stderr
        total = ended.stdout_bytes if stream == "stdout" else ended.stderr_bytes
        found.append((ended.exit_code, ended.truncated, total, len(kept), kept[:1], kept[-1:]))
    assert found == [
        (0, False, 9_999, 9_999, b"a", b"z"),
        (0, False, 10_000, 10_000, b"a", b"z"),
        (0, True, 10_001, 10_000, b"a", b"z"),
    ]


@pytest.mark.parametrize(
    ("letter", "size", "cut"),
    [
        ("x", INLINE_CHARS - 1, False),
        ("x", INLINE_CHARS, False),
        ("x", INLINE_CHARS + 1, True),
        ("\u4e2d", INLINE_CHARS, False),
        ("\u4e2d", INLINE_CHARS + 1, True),
        ("\U0001f600", 100_000, True),
    ],
)
async def test_dev_06_the_model_is_told_when_its_result_was_cut(desk: Desk, letter: str, size: int, cut: bool) -> None:
    """The flag, the true size, which part was kept and where the rest is; the exit code stays 0."""
    ended = await desk.bash(f"python3 -c \"print('{letter}' * {size}, end='')\"")
    assert (ended.meta["truncated"], ended.meta["exit_code"], ended.is_error) == (cut, 0, False)
    assert ended.meta["output_bytes"] == size * len(letter.encode())
    if cut:
        head, mark, tail = ended.text.split("\n")[:3]
        assert (head, tail) == (letter * (INLINE_CHARS // 2),) * 2
        assert f"{size * len(letter.encode()):,} bytes of output in all; the middle is not shown" in mark
        assert ended.meta["output_file"] in mark
    else:
        assert ended.text == letter * size + "\nExit code: 0"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ('read -r x; echo "got:[$x]"; cat; echo end', "got:[]\nend"),
        ("cat; wc -c; echo end", "0\nend"),
        ("python3 -c \"input('name? ')\" 2>/dev/null; echo end", "name? end"),
        ("bash -s; sh; python3; echo end", "end"),
        ("git init -q i; cd i; touch f; git add f; git add -p; git clean -i; echo end", "end"),
        ("bash -c 'read -r y; echo \"inner:[$y]\"' | cat; echo end", "inner:[]\nend"),
        ("xargs -r echo none; sort; echo end", "end"),
    ],
)
async def test_dev_07_standard_input_is_at_its_end(desk: Desk, command: str, text: str) -> None:
    """What reads it goes on at once; nothing waits for a person."""
    ended = await desk.bash(f"cd $(mktemp -d); {command}", timeout_s=20)
    assert ended.duration_s < 3
    assert ended.meta["timed_out"] is False
    assert ended.text.split("\nExit code")[0].endswith(text)


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c \"open('/dev/tty').read()\"; echo rc=$?",
        'python3 -c "import getpass; getpass.getpass()" </dev/tty; echo rc=$?',
        'python3 -c "import getpass; print(getpass.getpass(), 1/0)"; echo rc=$?',
        "read -r x </dev/tty; echo rc=$?",
        "stty -a; echo rc=$?",
        "tty; echo rc=$?",
        "setsid -c bash -c 'read x </dev/tty'; echo rc=$?",
        "git ls-remote https://user@localhost:1/x; echo rc=$?",
    ],
)
async def test_dev_08_there_is_no_terminal_to_ask_on(desk: Desk, command: str) -> None:
    """A program that opens it fails at once."""
    ended = await desk.bash(command, timeout_s=20)
    assert ended.duration_s < 3
    assert "rc=" in ended.text
    assert "rc=0" not in ended.text


COMMITS = "git init -q . && for i in 1 2 3; do echo $i > f && git add f && git commit -qm m$i; done"
NAMED = "git config user.name a; git config user.email a@b.c"


@pytest.mark.parametrize(
    "command",
    [
        "git rebase -i HEAD~2",
        "git rebase -i --root",
        "git -c sequence.editor= rebase -i HEAD~1",
        "git rebase --edit-todo",
    ],
)
async def test_dev_09_an_interactive_rebase_fails_and_changes_nothing(desk: Desk, command: str) -> None:
    """Not run with the list as it is: a non-zero code, the same HEAD, no rebase under way."""
    await desk.make(f"cd $(mktemp -d); ln -sfn $PWD /tmp/d09; git init -q .; {NAMED}; {COMMITS}; echo new > g")
    rebase, state = await desk.calls(
        bash(
            f"cd /tmp/d09; before=$(git rev-parse HEAD); {command}; echo rc=$?; [ $before = $(git rev-parse HEAD) ] && "
            "echo same; git status | head -3",
            timeout_s=15,
        ),
        bash("ls .git | grep -c rebase; git log --format=%s"),
    )
    assert rebase.duration_s < 5
    assert "rc=0" not in rebase.text
    assert "\nsame\n" in rebase.text
    assert "interactive rebase in progress" not in rebase.text
    assert state.text.split("\nExit")[0] == "0\nm3\nm2\nm1"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("git commit --amend", 0),
        ("git -c core.editor=vi commit --amend", 0),
        ("git config core.editor vi; git commit --amend", 0),
        ("git config --edit", 0),
        ("git commit --allow-empty", 1),
        ("git tag -a v1", None),
        ("git merge --no-ff -e side", None),
        ("git revert HEAD", None),
    ],
)
async def test_dev_09_no_command_waits_for_an_editor(desk: Desk, command: str, code: int | None) -> None:
    """An amend keeps its message, and what needs a text that nobody wrote ends."""
    await desk.make(
        f"cd $(mktemp -d); ln -sfn $PWD /tmp/d09; git init -q .; {NAMED}; {COMMITS}; git branch side HEAD~1"
    )
    ended, log = await desk.calls(
        bash(f"cd /tmp/d09; {command}; echo rc=$?", timeout_s=15), bash("git log -1 --format=%s")
    )
    assert ended.duration_s < 5
    assert "rc=" in ended.text
    if code is not None:
        assert f"rc={code}" in ended.text
        assert log.text.startswith("m3\n")


@pytest.mark.parametrize(
    ("command", "stages"),
    [
        ("sh -c 'echo \"2 failed, 10 passed\"; exit 1' | tail -5", "1, 0"),
        ("false | cat", "1, 0"),
        ("sh -c 'exit 3' 2>&1 | tee log | tail -1", "3, 0, 0"),
        ("cd /tmp && sh -c 'exit 2' | head -3", "2, 0"),
        ("set -o pipefail; set +o pipefail; nosuch 2>&1 | sed s/x/y/", "127, 0"),
        ("true\nfalse |\n  grep -v x | cat", "1, 1, 0"),
    ],
)
async def test_dev_10_a_failure_in_front_of_a_pipe_is_seen(desk: Desk, command: str, stages: str) -> None:
    """The code 0 is said to be the last command's, and the codes of all are listed."""
    ended = await desk.bash(command)
    assert f"Exit code: 0 (of the last command of the pipeline; all its commands in order: {stages})" in ended.text
    assert "succe" not in ended.text.lower()


@pytest.mark.parametrize(
    "command",
    [
        "git add -A",
        "true",
        "",
        "cd .",
        "export X=1",
        "mkdir -p made",
        "printf ''",
        "echo",
        "(exit 0)",
        "true | true; :",
    ],
)
async def test_dev_11_a_command_without_output_says_so(desk: Desk, command: str) -> None:
    """Exit code 0, no error, and a text that is not empty."""
    await desk.make("cd /workspace; git init -q .")
    ended = await desk.bash(command)
    assert (ended.text.startswith("(no output)\nExit code: 0"), ended.is_error) == (True, False)


@pytest.mark.parametrize(
    ("command", "text", "raw"),
    [
        (r"printf 'ok \377\376 end\n'", "ok \ufffd\ufffd end", b"ok \xff\xfe end\n"),
        (r"printf 'ok \377\376 end\n' >&2", "ok \ufffd\ufffd end", b"ok \xff\xfe end\n"),
        (r"printf 'ok caf\351 end'", "ok caf\ufffd end", b"ok caf\xe9 end"),
        (r"printf 'ok \355\240\200 end'", "ok \ufffd\ufffd\ufffd end", b"ok \xed\xa0\x80 end"),
        (r"printf 'ok \000 end'", "ok \0 end", None),
        (r"printf 'ok \342\202'; printf '\254 end'", "ok \u20ac end", None),
        (r"printf 'ok \033[31m\r\010 end'", "ok \x1b[31m\r\x08 end", None),
    ],
)
async def test_dev_12_bytes_that_are_no_utf8_are_replaced_and_kept(
    desk: Desk, command: str, text: str, raw: bytes | None
) -> None:
    """The model sees stand-ins; the record is JSON and gives back the very bytes."""
    played = await desk.play(bash(command))
    assert (played.results[0].text, played.results[0].is_error) == (f"{text}\nExit code: 0", False)
    for line in played.record.read_text(encoding="utf-8").splitlines():
        json.loads(line)
    [recorded] = played.finished()
    kept = recorded.meta.get("stdout_base64")
    assert (None if kept is None else base64.b64decode(kept)) == raw


async def test_dev_12_bytes_beyond_what_is_shown_are_in_the_file(desk: Desk) -> None:
    """A long output of bad bytes: the file that the result names has every one of them."""
    ended = await desk.bash("head -c 300000 /dev/zero | tr '\\0' '\\377'")
    again = await desk.bash(f"tr -d '\\377' < {ended.meta['output_file']} | wc -c; wc -c < {ended.meta['output_file']}")
    assert "300,000 bytes of output in all" in ended.text
    assert again.text.startswith("0\n300000\n")


@pytest.mark.parametrize("text", ["hello", "  two\n\nlines ", "caf\u00e9 \u4e2d", "x" * 20_000])
async def test_dev_15_every_one_of_many_results_is_exact(desk: Desk, text: str) -> None:
    """200 calls in a row (20 of each variant) and 50 with 8 at once: none empty, none short, none of another call."""
    command = f"printf '%s\\n' '{text}'"
    said = []
    for _ in range(200 if text == "hello" else 20):
        said.append(await _say(desk, command))
    lanes = anyio.CapacityLimiter(8)

    async def one() -> None:
        async with lanes:
            said.append(await _say(desk, command))

    async with anyio.create_task_group() as group:
        for _ in range(50 if text == "hello" else 16):
            group.start_soon(one)
    assert set(said) == {(f"{text}\nExit code: 0", False)}


async def _say(desk: Desk, command: str) -> tuple[object, bool]:
    from sandbox_agent.testing.tool_calls import call, context

    result = await call(BASH, context(desk.sandbox), {"command": command})
    return result.content, result.is_error


@pytest.mark.parametrize(
    "command",
    [
        "for i in $(seq 20); do (sleep 0.2 & ); done; sleep 1",
        "for i in $(seq 20); do (setsid sh -c 'sleep 0.1; exit 3' & ); done; sleep 0.5",
        'python3 -c \'import os\nfor i in range(20): os.fork() or os._exit(1)\nos.execlp("sleep", "sleep", "0.3")\'',
        "for i in $(seq 20); do (sleep 60 & ) ; done",
    ],
)
async def test_dev_17_ended_processes_are_reaped(desk: Desk, command: str) -> None:
    """No zombie after it, and the first process is an init that reaps."""
    _, look = await desk.calls(bash(command), bash("ps -eo stat= | grep -c '^Z'; cat /proc/1/comm"))
    assert look.text == "0\ndocker-init\nExit code: 0"


async def test_dev_17_a_call_sees_no_zombie_of_its_own(desk: Desk) -> None:
    """As the case has it: orphans that end during the call are reaped during the call."""
    ended = await desk.bash(
        "for i in $(seq 20); do (sleep 0.2 & ); done; sleep 1; ps -eo stat= | grep -c '^Z' || true; cat /proc/1/comm"
    )
    assert ended.text == "0\ndocker-init\nExit code: 0"


async def test_dev_17_many_calls_leave_no_process(desk: Desk) -> None:
    """The count of processes after many calls is the count after one."""
    count = "ps -eo pid= | wc -l"
    first = await desk.bash(count)
    began_s = time.monotonic()
    for _ in range(30):
        await _say(desk, "(sleep 0.01 &); true")
    assert (await desk.bash(count)).text == first.text
    assert time.monotonic() - began_s < 20
