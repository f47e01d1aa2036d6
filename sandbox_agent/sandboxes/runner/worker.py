"""What a forked process does for one call: a program, or a file too large for the runner's own process.

Runs in the container (see the package).
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
from typing import Any

from sandbox_agent.sandboxes.runner import files, processes, wire
from sandbox_agent.sandboxes.runner.capture import OomCounter
from sandbox_agent.sandboxes.runner.link import Link
from sandbox_agent.sandboxes.runner.spawn import encode
from sandbox_agent.sandboxes.runner.supervisor import Supervisor

REQUEST_SIZE = wire.COUNT
"""A request is the length of its JSON text, the text, and bytes (stdin or file content)."""


def unpack(body: bytes) -> tuple[dict[str, Any], bytes]:
    """The request's fields and the bytes behind them."""
    size = REQUEST_SIZE.unpack_from(body)[0]
    end = REQUEST_SIZE.size + size
    return json.loads(body[REQUEST_SIZE.size : end]), body[end:]


def serve(control: socket.socket, env: dict[str, str], oom: OomCounter) -> None:
    """Serve calls, one after the other, until the runner has no more. In a session of its own."""
    os.setsid()
    processes.become_subreaper()
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    link = Link(control)
    while True:
        body = _request(link)
        if body is None or not _serve_one(link, *unpack(body), env, oom, wake):
            return


def _serve_one(
    link: Link, request: dict[str, Any], data: bytes, env: dict[str, str], oom: OomCounter, wake: int
) -> bool:
    """Serve a call; False when this process should not serve another."""
    if request["op"] in ("exec", "open"):
        supervisor = Supervisor(link, request, data, oom)
        supervisor.run(request, env, wake)
        return supervisor.clean
    whole = _whole(link, request, data)
    if whole is None:
        return False
    link.send_together(file_frames(link.call, request, whole, files.MAX_HASHED_BYTES))
    return True


def _request(link: Link) -> bytes | None:
    """The next request, None when there will be none. Whatever else comes is late for the call before."""
    parts: list[bytes] = []
    while True:
        message = link.receive()
        if message is None:
            return None
        if message[0] in (wire.REQUEST_PART, wire.REQUEST):
            parts.append(message[1])
        if message[0] == wire.REQUEST:
            return b"".join(parts)


def _whole(link: Link, request: dict[str, Any], data: bytes) -> bytes | None:
    """The content that came with the request and after it; None if the call was ended first."""
    parts = [data]
    ended = request["eof"]
    while not ended:
        message = link.receive()
        if message is None or message[0] == wire.KILL:
            return None
        if message[0] == wire.STDIN:
            parts.append(message[1])
            link.send(wire.ACK, wire.COUNT.pack(len(message[1])))
        ended = message[0] == wire.STDIN_EOF
    return b"".join(parts)


def file_frames(call: int, request: dict[str, Any], data: bytes, most: int) -> list[bytes]:
    """Do a read or a replace and answer with the frames that say how it went.

    Raises:
        TooLargeHereError: the file has more than `most` bytes, and `most` is not the last word.
    """
    path = encode(request["path"])
    resolved = None if request["resolved"] is None else encode(request["resolved"])
    try:
        if request["op"] == "read":
            content = files.read(path, request["offset"], request["limit"], resolved, most)
        else:
            expected = None if request["expected"] is None else bytes.fromhex(request["expected"])
            content = files.replace(path, data, expected, resolved, most)
        return content.frames(call)
    except files.TooLargeHereError:
        if most < files.MAX_HASHED_BYTES:
            raise
        text = f"the file has more than {files.MAX_HASHED_BYTES} bytes"
        return [wire.fail(call, wire.FAIL_TOO_LARGE, errno.EFBIG, text)]
    except files.RefusedError as exc:
        return [wire.fail(call, exc.why, exc.number, str(exc))]
    except OSError as exc:
        return [wire.fail(call, wire.FAIL_OS, exc.errno or 0, exc.strerror or str(exc))]
