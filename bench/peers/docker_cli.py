"""What a shell script would do: `docker run -d`, `docker exec` for every command, `docker rm -f`; no hardening."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from bench.peers.protocol import Blocking, Finished, serve

IMAGE = "sandbox-agent/base:latest"
LABEL = "sandbox-agent-bench"


class DockerCli(Blocking):
    """The docker command line, one process a command."""

    container = ""

    def start_now(self) -> None:
        """Done when `docker run -d` returns."""
        mount = f"{self.host_data}:/workspace:ro"
        argv = ["docker", "run", "-d", "--label", LABEL, "-v", mount, IMAGE, "sleep", "14400"]
        self.container = subprocess.run(argv, capture_output=True, check=True, text=True).stdout.strip()

    def stop_now(self) -> None:
        """Removed by force, as nobody waits for a `docker stop`."""
        subprocess.run(["docker", "rm", "-f", self.container], capture_output=True, check=True)

    def run_now(self, argv: Sequence[str]) -> Finished:
        """One command."""
        whole = ["docker", "exec", self.container, *argv]
        done = subprocess.run(whole, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return Finished(done.returncode, done.stdout)


if __name__ == "__main__":
    serve(DockerCli)
