"""The forwarder: takes connections of the tools at a port of the container's loopback and carries their bytes over its
stdin and stdout. It knows no rules, looks at nothing, and reaches nothing but the engine.

Runs in the container (see the package), as another user than the tools: they can neither end it nor take its port.
One thread, one poll.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable

from sandbox_agent.sandboxes.egress import wire
from sandbox_agent.sandboxes.runner.outgoing import Outgoing

FOLDER = "/run/sandbox-agent"
_OUT_BYTES = 1024 * 1024
"""With more than this still to be written to the engine, the tools are not read from."""

_DELIVER_S = 30.0
"""How long a client may take to read what was sent before the end."""

_LINGER_S = 2.0
"""How long a client may take to close after the last byte. Closing at once would reset the connection where it still
sends, and the reset would take away what it has not read yet: the text that says why it was refused."""


class Carried:
    """One connection of a tool."""

    def __init__(self, number: int, client: socket.socket) -> None:
        self.number = number
        self.client = client
        self.credit = wire.WINDOW_BYTES
        self.waiting: deque[bytes] = deque()
        self.ending = False
        self.closing = False
        self.sent_all = False
        self.ended = False
        self.deadline_s = 0.0

    def events(self, may_read: bool) -> int:
        """What to wait for."""
        reads = not self.ended and (self.sent_all or (may_read and self.credit > 0))
        return (select.POLLIN if reads else 0) | (select.POLLOUT if self.waiting else 0)


class Forwarder:
    """Everything the loop knows."""

    def __init__(self) -> None:
        self.input = bytearray()
        self.output = Outgoing(wire.CHUNK_BYTES)
        self.listener: socket.socket | None = None
        self.carried: dict[int, Carried] = {}
        self.by_fd: dict[int, Carried] = {}
        self.numbers = 0
        self.made: set[bytes] = set()
        self.failed = False

    def loop(self) -> None:
        """Serve until the engine closes our stdin, or nothing can be served."""
        os.set_blocking(1, False)
        while self._turn():
            pass

    def send(self, kind: int, connection: int, body: bytes = b"") -> None:
        self.output.add(wire.frame(kind, connection, body))

    def _turn(self) -> bool:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        if self.output.size_bytes:
            poll.register(1, select.POLLOUT)
        elif self.failed:
            return False
        if self.listener is not None and len(self.carried) < wire.MAX_CONNECTIONS:
            poll.register(self.listener, select.POLLIN)
        may_read = self.output.size_bytes < _OUT_BYTES
        for fd, carried in self.by_fd.items():
            poll.register(fd, carried.events(may_read))
        lingers = any(carried.closing for carried in self.carried.values())
        for fd, event in poll.poll(_LINGER_S * 200 if lingers else None):
            if fd == 0:
                data = os.read(0, 256 * 1024)
                if not data:
                    return False
                self._take(data)
            elif self.listener is not None and fd == self.listener.fileno():
                self._accept(self.listener)
            elif fd in self.by_fd:
                self._serve(self.by_fd[fd], event)
        now_s = time.monotonic()
        for carried in [one for one in self.carried.values() if one.closing and one.deadline_s < now_s]:
            self._drop(carried)
        return self._flush()

    def _flush(self) -> bool:
        try:
            self.output.flush()
        except BrokenPipeError:
            return False
        return True

    def _take(self, data: bytes) -> None:
        self.input += data
        position = 0
        while len(self.input) - position >= wire.HEADER.size:
            size, kind, number = wire.HEADER.unpack_from(self.input, position)
            start = position + wire.HEADER.size
            if start + size > len(self.input):
                break
            position = start + size
            self._obey(kind, number, bytes(self.input[start:position]))
        del self.input[:position]

    def _obey(self, kind: int, number: int, body: bytes) -> None:
        if kind == wire.FILE:
            self._guarded(self._write, body)
        elif kind == wire.LISTEN and not self.failed:
            self._guarded(self._listen, body)
        carried = self.carried.get(number)
        if carried is None:
            return
        if kind == wire.DATA:
            carried.waiting.append(body)
        elif kind == wire.CREDIT:
            carried.credit += wire.COUNT.unpack(body)[0]
        elif kind == wire.EOF:
            carried.ending = True
        elif kind == wire.CLOSE:
            carried.closing = True
            carried.deadline_s = time.monotonic() + _DELIVER_S
        self._deliver(carried)

    def _guarded(self, act: Callable[[bytes], None], body: bytes) -> None:
        try:
            act(body)
        except OSError as exc:
            self.failed = True
            self.send(wire.FAILED, 0, str(exc).encode()[: wire.MAX_TEXT_BYTES])

    def _write(self, body: bytes) -> None:
        """Add to a file of ours, which may be there from a forwarder before; somebody else's folder is refused."""
        name, _, data = body.partition(b"\0")
        status = os.lstat(FOLDER)
        if status.st_uid != os.getuid() or status.st_mode & 0o170022 != 0o040000:
            raise PermissionError(f"{FOLDER} is not the forwarder's own")
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        flags |= os.O_APPEND if name in self.made else os.O_TRUNC
        self.made.add(name)
        fd = os.open(os.path.join(FOLDER.encode(), name), flags, 0o644)
        try:
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def _listen(self, body: bytes) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", wire.COUNT.unpack(body)[0]))
        listener.listen(wire.MAX_CONNECTIONS)
        listener.setblocking(False)
        self.listener = listener
        self.send(wire.READY, 0)

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # it went away again
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.numbers += 1
        carried = Carried(self.numbers, client)
        self.carried[carried.number] = self.by_fd[client.fileno()] = carried
        self.send(wire.OPEN, carried.number)

    def _serve(self, carried: Carried, event: int) -> None:
        if event & select.POLLOUT:
            self._deliver(carried)
        if carried.number not in self.carried or not event & (select.POLLIN | select.POLLHUP | select.POLLERR):
            return
        if carried.ended:  # both directions are over for the client
            self._drop(carried)
            return
        size = wire.CHUNK_BYTES if carried.sent_all else min(carried.credit, wire.CHUNK_BYTES)
        if not size:  # it hung up while the engine does not take any more
            self._drop(carried)
            return
        try:
            data = carried.client.recv(size)
        except BlockingIOError:
            return
        except OSError:
            self._drop(carried)
            return
        if not data:
            carried.ended = True
            if carried.sent_all:
                self._drop(carried)
            else:
                self.send(wire.EOF, carried.number)
        elif not carried.sent_all:
            carried.credit -= len(data)
            self.send(wire.DATA, carried.number, data)

    def _deliver(self, carried: Carried) -> None:
        """Write what waits; when all is written, end as the engine asked."""
        delivered = 0
        try:
            while carried.waiting:
                data = carried.waiting.popleft()
                written = carried.client.send(data)
                delivered += written
                if written < len(data):
                    carried.waiting.appendleft(data[written:])
                    break
        except BlockingIOError:
            carried.waiting.appendleft(data)
        except OSError:
            self._drop(carried)
            return
        if delivered:
            self.send(wire.CREDIT, carried.number, wire.COUNT.pack(delivered))
        if carried.waiting:
            return
        if (carried.ending or carried.closing) and not carried.sent_all:
            try:
                carried.client.shutdown(socket.SHUT_WR)
            except OSError:
                self._drop(carried)
                return
            carried.ending = False
        if carried.closing and not carried.sent_all:
            carried.sent_all = True
            carried.deadline_s = time.monotonic() + _LINGER_S
            if carried.ended:
                self._drop(carried)

    def _drop(self, carried: Carried) -> None:
        del self.carried[carried.number], self.by_fd[carried.client.fileno()]
        carried.client.close()
        self.send(wire.CLOSE, carried.number)


def main() -> None:
    """Serve, holding on to no folder."""
    os.umask(0o022)
    os.chdir("/")
    Forwarder().loop()
