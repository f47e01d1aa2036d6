"""The floor: a subprocess on the host, with no sandbox at all."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from bench.peers.protocol import Blocking, Finished, serve


class Host(Blocking):
    """`subprocess.run`; a session is nothing."""

    def __init__(self, host_data: str) -> None:
        super().__init__(host_data)
        self.data = host_data

    def start_now(self) -> None:
        """Nothing to make."""

    def stop_now(self) -> None:
        """Nothing to end."""

    def run_now(self, argv: Sequence[str]) -> Finished:
        """One command."""
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return Finished(done.returncode, done.stdout)


if __name__ == "__main__":
    serve(Host)
