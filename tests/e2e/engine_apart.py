"""A second Docker Engine with files, containers and a network of its own, reached over TCP only: as on another machine.

It takes root, and about ten seconds. Never without a network namespace: a second engine would take the first one's
bridge away.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IMAGE = "sandbox-agent/base:latest"
ADDRESS = "tcp://127.0.0.1:2375"
LOOKS = 300


@contextmanager
def engine_apart(*, hiding: Path) -> Iterator[int]:
    """Start one that has our image and sees nothing of a folder; yields its process, in whose network `ADDRESS` is.

    From here it is reached by `socket_of`.
    """
    home = Path(tempfile.mkdtemp(prefix="sandbox-agent-engine-"))
    options = f"--bridge=none --iptables=false --ip6tables=false --data-root {home}/data --exec-root /run/docker"
    listening = f"--pidfile /run/docker.pid -H unix:///run/docker.sock -H {ADDRESS} --tls=false"
    # /run hides the first engine's containerd, which this one would use otherwise.
    steps = ["ip link set lo up", "mount -t tmpfs none /run", f"mount -t tmpfs none {shlex.quote(str(hiding))}"]
    script = " && ".join([*steps, f"exec dockerd {options} {listening}"])
    command = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script]
    with (home / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait(process, home / "log")
            _load(socket_of(process.pid))
            yield process.pid
        finally:
            process.terminate()
    shutil.rmtree(home)


def socket_of(engine: int) -> str:
    """DOCKER_HOST of an engine for us, who are in another network."""
    return f"unix:///proc/{engine}/root/run/docker.sock"


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(LOOKS):
        assert process.poll() is None, log.read_text()
        # The client itself waits a moment for an answer; there is nothing that tells when an engine listens.
        if subprocess.run(["docker", "-H", socket_of(process.pid), "version"], capture_output=True).returncode == 0:
            return
    raise AssertionError(log.read_text())


def _load(address: str) -> None:
    with subprocess.Popen(["docker", "save", IMAGE], stdout=subprocess.PIPE) as saving:
        subprocess.run(
            ["docker", "-H", address, "load", "--quiet"], stdin=saving.stdout, check=True, capture_output=True
        )
