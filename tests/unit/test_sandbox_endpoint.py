"""Which engine is used, and the one line for everything that can be wrong with it. Real sockets, no engine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from sandbox_agent.errors import SandboxUnavailableError
from sandbox_agent.sandboxes.endpoint import DEFAULT_URL, PING_S, Endpoint, TlsFiles, ping, resolve_endpoint

PONG = b"HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\nOK"


@contextmanager
def engine(path: Path, answer: bytes | None, *, pause_s: float = 0) -> Iterator[Endpoint]:
    """A socket that answers each request with these bytes, None is never, one by one where there is a pause."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = Thread(target=_serve, args=(listener, answer, pause_s), daemon=True)
        thread.start()
        yield Endpoint(f"unix://{path}", "DOCKER_HOST")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _serve(listener: socket.socket, answer: bytes | None, pause_s: float) -> None:
    held = []
    while True:
        try:
            channel, _ = listener.accept()
        except OSError:
            break
        if answer is None:
            held.append(channel)
            continue
        with channel:
            channel.recv(4096)
            pieces = [answer[at : at + 1] for at in range(len(answer))] if pause_s else [answer]
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for piece in pieces:
                    channel.sendall(piece)
                    time.sleep(pause_s)
    for channel in held:
        channel.close()


def refusal(endpoint: Endpoint, within_s: float = PING_S) -> str:
    """The one line a ping ends with, in time."""
    started_s = time.monotonic()
    with pytest.raises(SandboxUnavailableError) as caught:
        ping(endpoint, within_s=within_s)
    assert time.monotonic() - started_s < within_s + 3
    text = str(caught.value)
    assert "\n" not in text
    return text


def context(folder: Path, name: str, settings: object) -> None:
    """A Docker context as the command line writes it."""
    place = folder / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    place.mkdir(parents=True)
    (place / "meta.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"currentContext": name}))


def test_an_engine_says_its_version(tmp_path: Path) -> None:
    """The ping's answer carries it."""
    with engine(tmp_path / "s", PONG) as endpoint:
        assert ping(endpoint) == "1.41"


def test_a_hung_engine_is_named(tmp_path: Path) -> None:
    """The socket accepts and never answers."""
    with engine(tmp_path / "s", None) as endpoint:
        assert refusal(endpoint, within_s=0.2) == (
            f"the engine at unix://{tmp_path}/s (from DOCKER_HOST) accepts connections but does not respond within "
            "0.2 s; restart it"
        )
    assert PING_S <= 5


def test_an_engine_that_drips_is_hung(tmp_path: Path) -> None:
    """The time is for everything together, not for each byte."""
    with engine(tmp_path / "s", b"H" * 2000, pause_s=0.02) as endpoint:
        assert "does not respond within 0.2 s" in refusal(endpoint, within_s=0.2)


def test_a_missing_engine_is_named(tmp_path: Path) -> None:
    """No socket at the default place; a socket that nobody listens to."""
    assert refusal(Endpoint(f"unix://{tmp_path}/none", "default")) == (
        f"no Docker Engine is running: unix://{tmp_path}/none: No such file or directory; start it (`make setup`, or "
        "systemctl start docker), or set DOCKER_HOST"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
    assert "Connection refused; start it" in refusal(Endpoint(f"unix://{tmp_path}/s", "default"))


def test_a_wrong_docker_host_is_named_and_nothing_else_tried(tmp_path: Path) -> None:
    """The line names the variable and its value."""
    endpoint = resolve_endpoint({"DOCKER_HOST": f"unix://{tmp_path}/none"})

    assert refusal(endpoint) == (
        f"DOCKER_HOST names unix://{tmp_path}/none, where no engine answers: No such file or directory; correct or "
        "unset it (no other engine was tried)"
    )


def test_a_socket_without_permission_is_named(tmp_path: Path) -> None:
    """With the group to join; asked as an ordinary user, because the superuser may do everything."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and len(parent.parts) > 2:
            parent.chmod(0o755)
    with engine(tmp_path / "s", PONG) as endpoint:
        (tmp_path / "s").chmod(0o600)
        text = _as_nobody(endpoint) if os.getuid() == 0 else refusal(endpoint)

    assert text == (
        f"permission denied on the engine's socket {tmp_path}/s (from DOCKER_HOST): add your user to its group "
        "(sudo usermod -aG docker $USER, then log in again)"
    )


def _as_nobody(endpoint: Endpoint) -> str:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
            ping(endpoint)
        except SandboxUnavailableError as exc:
            os.write(writer, str(exc).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with open(reader, "rb") as file:
        return file.read().decode()


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9\r\n\r\n", b"HTTP/1.0 404 Not Found\r\n\r\n", b"", b"\xff\r\n\r\n"]
)
def test_something_else_at_the_address_is_named(tmp_path: Path, answer: bytes) -> None:
    """Whatever it says is quoted, not obeyed."""
    with engine(tmp_path / "s", answer) as endpoint:
        assert "answers, but not as a Docker Engine does" in refusal(endpoint)


def test_an_endless_answer_ends(tmp_path: Path) -> None:
    """A head that never stops is not read for ever."""
    with engine(tmp_path / "s", b"x" * 100_000) as endpoint:
        assert "not as a Docker Engine does" in refusal(endpoint)


def test_docker_host_wins() -> None:
    """Over a context that is there as well."""
    environ = {"DOCKER_HOST": "tcp://10.0.0.1:2375", "DOCKER_CONTEXT": "other"}

    assert resolve_endpoint(environ) == Endpoint("tcp://10.0.0.1:2375", "DOCKER_HOST")


def test_docker_host_over_tls_uses_the_certificates_named() -> None:
    """DOCKER_TLS_VERIFY switches it on, DOCKER_CERT_PATH says where they are."""
    environ = {"DOCKER_HOST": "tcp://h:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/c"}

    assert resolve_endpoint(environ).tls == TlsFiles("/c/ca.pem", "/c/cert.pem", "/c/key.pem")


def test_the_active_context_is_next(tmp_path: Path) -> None:
    """As the command line has it, with its name as the source."""
    context(tmp_path, "remote", {"Endpoints": {"docker": {"Host": "unix:///elsewhere.sock"}}})

    assert resolve_endpoint({"DOCKER_CONFIG": str(tmp_path)}) == Endpoint(
        "unix:///elsewhere.sock", "Docker context remote"
    )


def test_without_either_it_is_the_default_socket(tmp_path: Path) -> None:
    """Also where the configuration is empty, or names the default context."""
    assert resolve_endpoint({"HOME": str(tmp_path)}) == Endpoint(DEFAULT_URL, "default")
    (tmp_path / "config.json").write_text('{"currentContext": "default"}')
    assert resolve_endpoint({"DOCKER_CONFIG": str(tmp_path)}) == Endpoint(DEFAULT_URL, "default")


@pytest.mark.parametrize("settings", [{}, [], {"Endpoints": {"docker": {}}}, {"Endpoints": None}])
def test_a_context_that_cannot_be_read_is_not_passed_over(tmp_path: Path, settings: object) -> None:
    """It was chosen: another engine would be a surprise."""
    context(tmp_path, "broken", settings)
    with pytest.raises(SandboxUnavailableError, match="active Docker context 'broken' cannot be read"):
        resolve_endpoint({"DOCKER_CONFIG": str(tmp_path)})


def test_a_context_that_is_not_there_is_not_passed_over(tmp_path: Path) -> None:
    """The same for a name in DOCKER_CONTEXT; the place is named once."""
    told = r"active Docker context 'none' cannot be read \(.*/meta.json\): No such file or directory; see `docker"
    with pytest.raises(SandboxUnavailableError, match=told):
        resolve_endpoint({"DOCKER_CONFIG": str(tmp_path), "DOCKER_CONTEXT": "none"})


@pytest.mark.parametrize(
    "url", ["/var/run/docker.sock", "unix://", "http://h:1", "tcp://", "unix://relative", "npipe:////./x"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    """With the forms there are."""
    with pytest.raises(SandboxUnavailableError, match=r"\(from DOCKER_HOST\) is not an engine's address; write unix:"):
        resolve_endpoint({"DOCKER_HOST": url})


def test_ssh_is_refused_with_the_way_out() -> None:
    """Forward the socket."""
    with pytest.raises(SandboxUnavailableError, match="over ssh are not supported; forward its socket"):
        resolve_endpoint({"DOCKER_HOST": "ssh://user@host"})
