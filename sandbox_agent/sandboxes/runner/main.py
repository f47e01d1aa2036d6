"""The runner's loop: frames from the host come in on stdin, are served here or handed to a forked process, and go out.

Runs in the container (see the package). One thread, one poll; nothing here waits for a command or a large file.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import select
import signal
import socket
import sys

from sandbox_agent.sandboxes.runner import files, processes, spawn, wire, worker
from sandbox_agent.sandboxes.runner.capture import OomCounter
from sandbox_agent.sandboxes.runner.hand import Hand
from sandbox_agent.sandboxes.runner.outgoing import Outgoing

_FIRST_SPARES = 2
"""Forked beforehand: one for the next call, one for the call beside it."""

_MOST_SPARES = 10
"""As many as run at once are kept for the next calls; beyond, those that have finished are let go."""

_FORK_AGAIN_MS = 50.0
"""How soon a fork is tried again that the process limit refused."""

_OUT_BYTES = 1024 * 1024
"""With more than this still to be written, the forked processes are not listened to: they wait, and we stay small."""


class Runner:
    """Everything the loop knows."""

    def __init__(self) -> None:
        self.env = dict(os.environ)
        self.oom = OomCounter()
        self.spares: list[Hand] = []
        self.wanted_spares = _FIRST_SPARES
        self.hands: dict[int, Hand] = {}
        self.calls: dict[int, Hand] = {}
        self.requests: dict[int, list[bytes]] = {}
        self.replacing: int | None = None
        self.replaces: dict[int, list[bytes]] = {}
        self.fork_failed = False
        self.input = bytearray()
        self.output = Outgoing(wire.CHUNK_BYTES)
        self.wake, waker = os.pipe()
        for fd in (self.wake, waker):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def loop(self) -> None:
        """Serve until the host closes our stdin; whatever still runs is killed then."""
        os.set_blocking(1, False)
        self.send(wire.frame(wire.HELLO, 0, ".".join(map(str, sys.version_info[:3])).encode()))
        gc.freeze()
        while self._turn():
            pass
        processes.kill_all(os.getpid())

    def _turn(self) -> bool:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        if self.output.size_bytes:
            poll.register(1, select.POLLOUT)
        events = select.POLLIN if self.output.size_bytes < _OUT_BYTES else 0
        for fd, hand in self.hands.items():
            poll.register(fd, events | (select.POLLOUT if hand.waiting else 0))
        for fd, event in poll.poll(self._patience_ms()):
            if fd == 0:
                data = os.read(0, 256 * 1024)
                if not data:
                    return False
                self._take(data)
            elif fd == self.wake:
                os.read(self.wake, 4096)
                self._reap()
            elif fd in self.hands:
                self._serve_hand(self.hands[fd], event)
        self.output.flush()
        if len(self.spares) < self.wanted_spares:
            spare = self._forked()
            self.fork_failed = spare is None
            if spare is not None:
                self.spares.append(spare)
        return True

    def _patience_ms(self) -> float | None:
        if len(self.spares) >= self.wanted_spares:
            return None
        return _FORK_AGAIN_MS if self.fork_failed else 0.0

    def send(self, frame: bytes) -> None:
        """At the end of the turn: what goes out together costs the engine one message instead of several."""
        self.output.add(frame)

    def _take(self, data: bytes) -> None:
        self.input += data
        position = 0
        while len(self.input) - position >= wire.HEADER.size:
            size, kind, call = wire.HEADER.unpack_from(self.input, position)
            end = position + wire.HEADER.size + size
            if end > len(self.input):
                break
            self._obey(kind, call, bytes(self.input[position:end]))
            position = end
        del self.input[:position]

    def _obey(self, kind: int, call: int, frame: bytes) -> None:
        if kind == wire.PING:
            self.send(wire.frame(wire.PONG, call))
        elif kind == wire.REQUEST_PART:
            self.requests.setdefault(call, []).append(frame)
        elif kind == wire.REQUEST:
            self._begin(call, [*self.requests.pop(call, []), frame])
        elif call in self.calls:
            self.calls[call].pass_on(frame)
        elif call in self.replaces and kind == wire.KILL:
            del self.replaces[call]
            self.send(wire.fail(call, wire.FAIL_KILLED, 0, "ended before it began"))
        elif call in self.replaces:
            self.replaces[call].append(frame)

    def _begin(self, call: int, frames: list[bytes]) -> None:
        """Serve a request here if that is quick, else hand it to a process."""
        request, data = worker.unpack(b"".join(frame[wire.HEADER.size :] for frame in frames))
        if request["op"] == "resolve":
            for path in request["paths"]:
                self.send(wire.frame(wire.PATH, call, files.resolve(spawn.encode(path))))
            self.send(wire.frame(wire.DONE, call))
            return
        if request["op"] == "end_all":
            spared = self.calls.get(request["spare"])
            over = processes.kill_others(spared.pid if spared else None)
            self.send(wire.frame(wire.DONE, call) if over else wire.fail(call, wire.FAIL_KILLED, 0, "some live on"))
            return
        if request["op"] == "replace" and self.replacing is not None:
            # One at a time: two that expect the same content must not both find it.
            self.replaces[call] = frames
            return
        if request["op"] in ("read", "replace") and request["eof"]:
            try:
                for answer in worker.file_frames(call, request, data, files.INLINE_BYTES):
                    self.send(answer)
                return
            except files.TooLargeHereError:
                pass  # a process of its own does it
        hand = self.spares.pop() if self.spares else self._forked()
        if hand is None:
            text = "no process could be started: the process limit of the sandbox is reached"
            self.send(wire.fail(call, wire.FAIL_NO_PROCESS, errno.EAGAIN, text))
            return
        if request["op"] == "replace":
            self.replacing = call
        hand.call = call
        self.calls[call] = hand
        for frame in frames:
            hand.pass_on(frame)

    def _ended(self, call: int) -> None:
        """The call has had its last frame; the next replace in line begins."""
        self.calls.pop(call, None)
        if call == self.replacing:
            self.replacing = None
            while self.replaces and self.replacing is None:
                following = next(iter(self.replaces))
                self._begin(following, self.replaces.pop(following))

    def _forked(self) -> Hand | None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            return None
        if pid == 0:
            self._become_hand(theirs)
        theirs.close()
        hand = Hand(pid, ours)
        self.hands[ours.fileno()] = hand
        return hand

    def _become_hand(self, control: socket.socket) -> None:
        """The forked side: keep nothing of the runner's but the one socket, serve, and never return."""
        status = 1
        try:
            null = os.open("/dev/null", os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            keep = {0, 1, 2, control.fileno(), self.oom.fileno()}
            signal.set_wakeup_fd(-1)
            for name in os.listdir("/proc/self/fd"):
                if int(name) not in keep:
                    with contextlib.suppress(OSError):  # the listing's own descriptor is in the list
                        os.close(int(name))
            worker.serve(control, self.env, self.oom)
            status = 0
        finally:
            if status:
                sys.excepthook(*sys.exc_info())
            os._exit(status)

    def _serve_hand(self, hand: Hand, event: int) -> None:
        if event & select.POLLOUT:
            hand.flush()
        if not event & (select.POLLIN | select.POLLHUP | select.POLLERR):
            return
        try:
            message = hand.control.recv(wire.MAX_MESSAGE_BYTES)
        except ConnectionResetError:
            message = b""
        if not message:
            self._part_with(hand)
            return
        self.send(message)
        position = 0
        while position < len(message):
            size, kind, call = wire.HEADER.unpack_from(message, position)
            position += wire.HEADER.size + size
            if kind in wire.FINAL_KINDS:
                hand.call = None
                self._take_back(hand)
                self._ended(call)

    def _take_back(self, hand: Hand) -> None:
        """Its call is over: keep it for the next, or let it go."""
        if len(self.spares) < _MOST_SPARES:
            self.spares.append(hand)
        else:
            hand.control.shutdown(socket.SHUT_WR)

    def _part_with(self, hand: Hand) -> None:
        """A forked process has ended. If it had a call it was killed, and what it kept is among our children now."""
        del self.hands[hand.control.fileno()]
        hand.control.close()
        if hand in self.spares:
            self.spares.remove(hand)
        if hand.call is None:
            return
        self._kill_strays()
        self.send(wire.fail(hand.call, wire.FAIL_KILLED, 0, "the process that ran this call was killed"))
        self._ended(hand.call)

    def _kill_strays(self) -> None:
        ours: set[int] = {hand.pid for hand in self.hands.values()}
        for _ in range(100):
            strays = processes.children_of(os.getpid()) - ours
            if not strays:
                return
            processes.signal_all(sorted(strays), signal.SIGSTOP)
            for pid in strays:
                processes.kill_all(pid)
            processes.signal_all(sorted(strays), signal.SIGKILL)
            self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                # Whoever stops the keeper of a call means it to hang: end it, its call gets an error.
                processes.signal_all([pid], signal.SIGKILL)


def main() -> None:
    """Protect the process, then serve."""
    os.umask(0o022)
    os.chdir("/")  # nothing of ours keeps the workspace busy
    spawn.shield()
    processes.protect_self()
    processes.become_subreaper()
    Runner().loop()
