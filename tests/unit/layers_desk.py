"""Files of a user and of an administrator in a folder of their own, and the policies of runs there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.layers import CommandLine
from sandbox_agent.policy.load import Places, run_policy
from sandbox_agent.policy.policy import Policy


class LayersDesk:
    """Files of a user and of an administrator, and runs under them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = folder / "config"
        self.own.mkdir()
        self.admin = folder / "etc" / "policy.yaml"
        self.admin.parent.mkdir()
        for place in (self.own, self.admin.parent):
            place.chmod(0o755)

    def file(self, name: str, text: str) -> str:
        """A policy file below the folder; returns its path."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o644)
        return str(path)

    def run(self, named: str | None = None, **options: object) -> Policy:
        """The policy of a run here."""
        places = Places(own_folder=self.own, administrators=self.admin, administrators_uid=os.geteuid())
        return run_policy(named, CommandLine(**options), places=places)  # type: ignore[arg-type]

    def refusal(self, named: str | None = None, **options: object) -> str:
        """The one line a run is refused with."""
        with pytest.raises(PolicyError) as caught:
            self.run(named, **options)
        return str(caught.value).replace(f"{self.folder}/", "")
