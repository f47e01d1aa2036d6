"""The few commands and the few bits of shell that `sandboxes.fake` understands, in place of real programs.

The shell knows words with quotes, `;` `&` `&&` `||`, `>&2` and `exit`. A program is a function from a `ProgramCall`
to a `ProgramOutput`; tests register their own beside these (or instead of them).
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

import anyio
import anyio.lowlevel

from sandbox_agent.sandboxes.fake_files import FakeFiles

NOT_FOUND = 127
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a program printed and how it ended."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """What a program gets: arguments with its own name first, input, folder, environment, and the files."""

    argv: tuple[str, ...]
    stdin: bytes
    cwd: str
    env: Mapping[str, str]
    files: FakeFiles

    def path(self, name: str) -> str:
        return posixpath.normpath(posixpath.join(self.cwd, name))


Program = Callable[[ProgramCall], "ProgramOutput | Awaitable[ProgramOutput]"]


@dataclass(slots=True)
class Printed:
    """What came out so far, in order, so that a call that is cut short keeps it. Stream 1 is stdout, 2 stderr."""

    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    leftovers: int = 0
    listener: Callable[[int, bytes], None] | None = None

    def add(self, number: int, data: bytes) -> None:
        """Something came out of a stream."""
        if data:
            self.chunks.append((number, data))
            if self.listener is not None:
                self.listener(number, data)


class LiveFile:
    """What `live_path` asks for, not bounded. `path` is None where a file was there."""

    def __init__(self, files: FakeFiles, path: str, merge_stderr: bool) -> None:
        self.path = path if files.node(path) is None else None
        self.size_bytes = 0
        self._files = files
        self._merge_stderr = merge_stderr
        if self.path is not None:
            files.put(path, b"", 0o600)

    def take(self, number: int, data: bytes) -> None:
        if self.path is not None and (number == 1 or self._merge_stderr):
            self._files.put(self.path, self._files.data(self.path) + data, 0o600)
            self.size_bytes += len(data)


async def run_program(call: ProgramCall, programs: Mapping[str, Program], printed: Printed) -> int:
    """Run one command to its end and return its exit code; `sh` and `bash` with `-c` run their text."""
    name = posixpath.basename(call.argv[0])
    if name in ("sh", "bash") and name not in programs:
        return await _shell(call, programs, printed)
    program = programs.get(name)
    if program is None:
        printed.add(2, f"{call.argv[0]}: command not found\n".encode())
        return NOT_FOUND
    output = program(call)
    if not isinstance(output, ProgramOutput):
        output = await output
    printed.add(1, output.stdout)
    printed.add(2, output.stderr)
    return output.exit_code


async def _shell(call: ProgramCall, programs: Mapping[str, Program], printed: Printed) -> int:
    if "-c" not in call.argv:
        return await _script(call.stdin.decode(), replace(call, stdin=b""), programs, printed)
    return await _script(call.argv[call.argv.index("-c") + 1], call, programs, printed)


async def _script(text: str, call: ProgramCall, programs: Mapping[str, Program], printed: Printed) -> int:
    code = 0
    skip = False
    for words, separator in _commands(text):
        if not skip:
            if words[0] == "exit":
                return int(words[1]) if len(words) > 1 else code
            code = await _simple(words, separator, call, programs, printed)
        skip = (separator == "&&" and code != 0) or (separator == "||" and code == 0)
    return code


async def _simple(
    words: list[str], separator: str, call: ProgramCall, programs: Mapping[str, Program], printed: Printed
) -> int:
    to_stderr = words[-1] == ">&2"
    argv = tuple(words[:-1] if to_stderr else words)
    if separator == "&" and argv[0] == "sleep":
        printed.leftovers += 1
        return 0
    mine = Printed(listener=lambda number, data: printed.add(2 if to_stderr else number, data))
    code = await run_program(replace(call, argv=argv), programs, mine)
    printed.leftovers += mine.leftovers
    return code


def _commands(text: str) -> list[tuple[list[str], str]]:
    """The simple commands of a text, each with the separator behind it."""
    lexer = shlex.shlex(text.replace(">&2", " '>&2' "), posix=True, punctuation_chars=";&|\n")
    lexer.whitespace = " \t"
    lexer.commenters = ""
    commands: list[tuple[list[str], str]] = []
    words: list[str] = []
    for token in [*lexer, ";"]:
        if token.strip(";&|\n"):
            words.append(token)
        elif words:
            commands.append((words, token.strip("\n") or ";"))
            words = []
    return commands


def _echo(call: ProgramCall) -> ProgramOutput:
    return ProgramOutput(" ".join(call.argv[1:]).encode("utf-8", "surrogateescape") + b"\n")


def _printf(call: ProgramCall) -> ProgramOutput:
    """The format alone, with backslash escapes and octal bytes; `%s` takes the arguments in order."""
    out = bytearray()
    text, arguments, position = call.argv[1], list(call.argv[2:]), 0
    while position < len(text):
        if text.startswith("%s", position):
            out += (arguments.pop(0) if arguments else "").encode("utf-8", "surrogateescape")
            position += 2
        elif text[position] == "\\":
            octal = text[position + 1 : position + 4]
            if octal[:1] in _ESCAPES:
                out += _ESCAPES[octal[0]]
                position += 2
            else:
                out.append(int(octal, 8))
                position += 4
        else:
            out += text[position].encode("utf-8", "surrogateescape")
            position += 1
    return ProgramOutput(bytes(out))


def _cat(call: ProgramCall) -> ProgramOutput:
    if len(call.argv) == 1:
        return ProgramOutput(call.stdin)
    return ProgramOutput(b"".join(call.files.data(call.path(name)) for name in call.argv[1:]))


async def _sleep(call: ProgramCall) -> ProgramOutput:
    await anyio.sleep(float(call.argv[1]))
    return ProgramOutput()


async def _true(_: ProgramCall) -> ProgramOutput:
    await anyio.lowlevel.checkpoint()
    return ProgramOutput()


def _env(call: ProgramCall) -> ProgramOutput:
    return ProgramOutput("".join(f"{key}={value}\n" for key, value in call.env.items()).encode())


def _head(call: ProgramCall) -> ProgramOutput:
    """`head -c N FILE`, and of /dev/zero as many NULs."""
    count = int(call.argv[2])
    if call.argv[3] == "/dev/zero":
        return ProgramOutput(bytes(count))
    return ProgramOutput(call.files.data(call.path(call.argv[3]))[:count])


def _ln(call: ProgramCall) -> ProgramOutput:
    *_, target, name = call.argv
    if "-s" in call.argv:
        call.files.symlink(call.path(name), target)
    else:
        call.files.hard_link(call.path(name), call.path(target))
    return ProgramOutput()


def _each(change: Callable[[FakeFiles, str], None]) -> Program:
    """A program that changes every path it is given (options aside) and prints nothing."""

    def program(call: ProgramCall) -> ProgramOutput:
        for name in call.argv[1:]:
            if not name.startswith("-"):
                change(call.files, call.path(name))
        return ProgramOutput()

    return program


def _chmod(call: ProgramCall) -> ProgramOutput:
    for name in call.argv[2:]:
        call.files.chmod(call.path(name), int(call.argv[1], 8))
    return ProgramOutput()


def builtin_programs() -> dict[str, Program]:
    """The programs every fake sandbox has."""
    return {
        "cat": _cat,
        "chmod": _chmod,
        "echo": _echo,
        "env": _env,
        "false": lambda _: ProgramOutput(exit_code=1),
        "head": _head,
        "ln": _ln,
        "mkdir": _each(FakeFiles.mkdir),
        "mkfifo": _each(FakeFiles.fifo),
        "printf": _printf,
        "pwd": lambda call: ProgramOutput(call.cwd.encode() + b"\n"),
        "rm": _each(FakeFiles.remove),
        "sleep": _sleep,
        "true": _true,
    }
