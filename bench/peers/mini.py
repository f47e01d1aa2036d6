"""mini-swe-agent's DockerEnvironment: the docker command line with `bash -lc`. It has no call for files."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence

from bench.peers.docker_cli import IMAGE
from bench.peers.protocol import Blocking, Finished, serve

# It reads these when it is imported; without them it greets, and looks for its settings in the user's home.
os.environ["MSWEA_SILENT_STARTUP"] = "1"
os.environ.setdefault("MSWEA_GLOBAL_CONFIG_DIR", os.path.join(os.getcwd(), "mini-config"))

from minisweagent.environments.docker import DockerEnvironment


class Mini(Blocking):
    """As its defaults are, plus the mount of the data."""

    environment: DockerEnvironment

    def start_now(self) -> None:
        """Done when its constructor returns."""
        run_args = ["--rm", "-v", f"{self.host_data}:/workspace:ro"]
        self.environment = DockerEnvironment(image=IMAGE, run_args=run_args)

    def stop_now(self) -> None:
        """It stops in the background; done when the container is gone."""
        container = self.environment.container_id
        self.environment.cleanup()
        self.environment.container_id = None  # else it is stopped once more when the object is collected
        subprocess.run(["docker", "wait", container], capture_output=True, check=False)

    def run_now(self, argv: Sequence[str]) -> Finished:
        """One command."""
        done = self.environment.execute({"command": shlex.join(argv)})
        return Finished(done["returncode"], done["output"].encode())


if __name__ == "__main__":
    serve(Mini)
