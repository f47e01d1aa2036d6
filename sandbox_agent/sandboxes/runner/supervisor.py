"""One call: start its program, feed it, keep or pass on what it prints, and end it with everything it started.

Runs in the container (see the package), in a process forked from the runner, which serves one call after the other:
a fresh fork takes some 560 page faults on its first call (5 ms), a used one starts a program in under one.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any

from sandbox_agent.sandboxes.runner import processes, spawn, wire
from sandbox_agent.sandboxes.runner.capture import Capture, OomCounter
from sandbox_agent.sandboxes.runner.link import Link

DRAIN_S = 0.2
"""After the command has ended, how long what it left behind may go on to end by itself (a `tee` at its last lines)."""

_REPEAT_KILL_S = 0.05
_MAX_KILLS = 100
_MAX_REST_READS = 1024
"""Two pipes of 1 MiB, the most an ordinary user may ask for, in pieces as small as 2 KiB."""


class Supervisor:
    """The state of one call while its program runs."""

    def __init__(self, link: Link, request: dict[str, Any], stdin: bytes, oom: OomCounter) -> None:
        self._link = link
        self._streams: bool = request["op"] == "open"
        self._merges: bool = request.get("merge", False)
        self._oom = oom
        self._oom_before = oom.count()
        self._started_s = time.monotonic()
        timeout_s: float | None = request.get("timeout_s")
        self._deadline_s = None if timeout_s is None else self._started_s + timeout_s
        self._grace_s: float = request.get("grace_s", 0.0)
        self._kill_at_s: float | None = None
        self._kills = 0
        self._killed: set[int] = set()
        self._cpu_s = 0.0
        self._max_rss_bytes = 0
        self._timed_out = False
        self._abandoned = False
        self._credit = wire.WINDOW_BYTES
        self._stdin = bytearray(stdin)
        self._stdin_ends: bool = request["eof"]
        spill = request.get("spill_path")
        maximum: int = request.get("max_output_bytes", 0)
        self._out = Capture(maximum, None if spill is None else spawn.encode(spill))
        self._err = Capture(maximum, None)
        self._readers: dict[int, Capture] = {}
        self._stdin_fd: int | None = None
        self._main = -1
        self._exit_code: int | None = None
        self._alone = False
        self._rest_reads = 0

    def run(self, request: dict[str, Any], env: dict[str, str], wake: int) -> None:
        """Serve the call to its end and report it."""
        try:
            os.chdir(spawn.encode(request["cwd"]))
        except OSError as exc:
            number = exc.errno or 0
            self._link.send_frame(wire.fail(self._link.call, wire.FAIL_OS, number, exc.strerror or ""))
            self._alone = True
            return
        if request.get("live_path") is not None:
            self._out.write_live(spawn.encode(request["live_path"]))
        try:
            self._start(request["argv"], {**env, **request["env"]})
        except spawn.CannotStartError as exc:
            (self._out if self._merges else self._err).add(f"{exc}\n".encode("utf-8", "surrogateescape"))
            self._exit_code = exc.exit_code
            self._alone = True
        if self._streams:
            self._link.send(wire.STARTED)
        try:
            while not self._finished():
                self._step(wake)
        finally:
            self._close()
        if not self._abandoned:
            self._report()

    @property
    def clean(self) -> bool:
        """Nothing of this call is left, so that another may be served by the same process."""
        return self._alone and not self._abandoned

    def _close(self) -> None:
        self._out.close()
        for fd in self._readers:
            os.close(fd)
        if self._stdin_fd is not None:
            os.close(self._stdin_fd)
        os.chdir("/")

    def _start(self, argv: list[str], env: dict[str, str]) -> None:
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        out_read, out_write = os.pipe()
        err_read, err_write = (-1, null) if self._streams else (-1, out_write) if self._merges else os.pipe()
        needs_stdin = bool(self._stdin) or not self._stdin_ends
        in_read, in_write = os.pipe() if needs_stdin else (null, -1)
        try:
            self._main = spawn.start(argv, env, in_read, out_write, err_write)
        finally:
            for fd in {null, out_write, err_write, in_read}:
                os.close(fd)
            for fd, capture in ((out_read, self._out), (err_read, self._err)):
                if fd >= 0:
                    os.set_blocking(fd, False)
                    self._readers[fd] = capture
            if in_write >= 0:
                os.set_blocking(in_write, False)
                self._stdin_fd = in_write

    def _finished(self) -> bool:
        if self._abandoned or self._kills > _MAX_KILLS:
            return True
        return self._exit_code is not None and self._alone and not self._readers

    def _step(self, wake: int) -> None:
        """Wait for the next thing to happen and do it."""
        poll = select.poll()
        poll.register(self._link.control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        if not self._streams or self._credit > 0:
            for fd in self._readers:
                poll.register(fd, select.POLLIN)
        if self._stdin_fd is not None:
            if not self._stdin and self._stdin_ends:
                self._close_stdin()
            elif self._stdin:
                poll.register(self._stdin_fd, select.POLLOUT)
            else:
                poll.register(self._stdin_fd, 0)  # POLLERR comes unasked: the reader is gone
        for fd, _ in poll.poll(self._wait_ms()):
            if fd == wake:
                os.read(wake, 4096)
                self._reap()
            elif fd == self._link.control.fileno():
                self._obey()
            elif fd == self._stdin_fd:
                self._feed(fd)
            elif fd in self._readers:
                self._read(fd)
        if self._alone:
            self._read_rest()
        self._mind_the_time()

    def _wait_ms(self) -> float | None:
        times = [at for at in (self._deadline_s, self._kill_at_s) if at is not None]
        return max(0.0, (min(times) - time.monotonic()) * 1000 + 1) if times else None

    def _mind_the_time(self) -> None:
        now_s = time.monotonic()
        if self._deadline_s is not None and now_s >= self._deadline_s:
            self._deadline_s = None
            if not self._alone:
                self._timed_out = self._exit_code is None
                processes.terminate_all(os.getpid())
                self._kill_at_s = now_s + self._grace_s
        if self._kill_at_s is not None and now_s >= self._kill_at_s and not self._alone:
            self._kill()

    def _kill(self) -> None:
        """Kill everything; again shortly, until nothing is left to wait for."""
        killed = processes.kill_all(os.getpid())
        if self._exit_code is not None:
            self._killed |= killed
        self._kills += 1
        self._kill_at_s = time.monotonic() + _REPEAT_KILL_S

    def _reap(self) -> None:
        """Take the end of the program and of every orphan that came to us."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self._alone = True
                self._kill_at_s = None
                return
            if pid == 0:
                return
            self._cpu_s += used.ru_utime + used.ru_stime
            self._max_rss_bytes = max(self._max_rss_bytes, used.ru_maxrss * 1024)
            if pid == self._main:
                code = os.waitstatus_to_exitcode(status)
                self._exit_code = code if code >= 0 else 128 - code
                if self._kill_at_s is None:
                    self._kill_at_s = time.monotonic() + DRAIN_S

    def _obey(self) -> None:
        message = self._link.receive()
        if message is None:
            self._abandoned = True
            processes.kill_all(os.getpid())
            return
        kind, body = message
        if kind == wire.STDIN:
            if self._stdin_fd is None:
                self._link.send(wire.ACK, wire.COUNT.pack(len(body)))
            else:
                self._stdin += body
        elif kind == wire.STDIN_EOF:
            self._stdin_ends = True
        elif kind == wire.CREDIT:
            self._credit += wire.COUNT.unpack(body)[0]
        elif kind == wire.KILL:
            while self._readers:
                os.close(self._readers.popitem()[0])
            if not self._alone:
                self._kill()

    def _feed(self, fd: int) -> None:
        try:
            written = os.write(fd, memoryview(self._stdin)[: wire.CHUNK_BYTES]) if self._stdin else 0
            if not self._stdin:
                raise BrokenPipeError
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._close_stdin()
            return
        del self._stdin[:written]
        self._link.send(wire.ACK, wire.COUNT.pack(written))

    def _close_stdin(self) -> None:
        if self._stdin_fd is not None:
            os.close(self._stdin_fd)
            self._stdin_fd = None
            self._link.send(wire.STDIN_CLOSED)
            self._stdin.clear()

    def _read(self, fd: int) -> bool:
        """Take one piece of output; False when there is nothing more now."""
        size = min(wire.CHUNK_BYTES, self._credit) if self._streams else wire.CHUNK_BYTES
        try:
            data = os.read(fd, size) if size else None
        except BlockingIOError:
            return False
        if data is None:
            return False
        if not data:
            os.close(fd)
            del self._readers[fd]
            return False
        if self._streams:
            self._credit -= len(data)
            self._link.send(wire.STDOUT, data)
        else:
            self._readers[fd].add(data)
        return True

    def _read_rest(self) -> None:
        """Nobody of this call is left to write: take what lies in the pipes and be done with them.

        Waiting for the end of file instead would wait for whoever was handed the other end by a socket; and that one
        may write for ever, so no more is taken than a pipe can hold.
        """
        for fd in list(self._readers):
            while self._rest_reads < _MAX_REST_READS and self._read(fd):
                self._rest_reads += 1
            waits = self._streams and self._credit == 0 and self._rest_reads < _MAX_REST_READS
            if fd in self._readers and not waits:
                os.close(fd)
                del self._readers[fd]

    def _report(self) -> None:
        frames: list[bytes] = []
        if not self._streams:
            frames += wire.pieces(wire.STDOUT, self._link.call, self._out.kept.value())
            frames += wire.pieces(wire.STDERR, self._link.call, self._err.kept.value())
        flags = wire.TIMED_OUT if self._timed_out else 0
        flags |= wire.OOM_KILLED if self._oom.count() > self._oom_before else 0
        flags |= wire.SPILLED if self._out.spilled else 0
        body = wire.RESULT_BODY.pack(
            128 + signal.SIGKILL if self._exit_code is None else self._exit_code,
            flags,
            self._out.kept.total_bytes,
            self._err.kept.total_bytes,
            time.monotonic() - self._started_s,
            len(self._killed),
            self._out.spill_bytes,
            self._cpu_s,
            self._max_rss_bytes,
        )
        self._link.send_together([*frames, wire.frame(wire.RESULT, self._link.call, body)])
