"""SWE-ReX's DockerDeployment: an HTTP server in the container. Its server is preinstalled in the image."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence

from swerex.deployment.docker import DockerDeployment
from swerex.runtime.abstract import Command, ReadFileRequest

from bench.peers.protocol import Contender, Finished, serve

IMAGE = "sandbox-agent-bench/swerex:latest"


class SweRex(Contender):
    """`execute` for commands, its own call for files; root and the bridge network, as its defaults are."""

    deployment: DockerDeployment

    async def start(self) -> None:
        """Done when it says that its runtime is alive."""
        mount = ["-v", f"{self.host_data}:/workspace:ro"]
        self.deployment = DockerDeployment(image=IMAGE, pull="never", python_standalone_dir=None, docker_args=mount)
        await self.deployment.start()

    async def stop(self) -> None:
        """Done when its own stop returns."""
        await self.deployment.stop()

    async def run(self, argv: Sequence[str]) -> Finished:
        """One command."""
        done = await self.deployment.runtime.execute(Command(command=shlex.join(argv), shell=True))
        return Finished(done.exit_code or 0, done.stdout.encode())

    async def read(self, path: str) -> bytes:
        """One file."""
        return (await self.deployment.runtime.read_file(ReadFileRequest(path=path))).content.encode()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    serve(SweRex)
