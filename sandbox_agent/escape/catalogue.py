"""The probes as they are written in `probes/*.yaml`: read, checked, chosen from."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sandbox_agent.errors import ConfigError

Shape = Literal["plain", "privileged", "host", "shared", "secrets"]
"""The weakened containers in which a probe can be shown to fail; see `sandboxes.weakened`."""

SHAPES: tuple[Shape, ...] = ("plain", "privileged", "host", "shared", "secrets")


class Probe(BaseModel):
    """One attempt to do what must not be possible. Just one of `sh` and `python` is its program."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: str
    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    proves: str
    """What holds when it is closed: one sentence."""
    sh: str | None = None
    python: str | None = None
    before: str | None = None
    """A Python program that a call of its own runs first."""
    control: Shape | None = None
    """The weakened container in which this probe must find an open way."""
    control_note: str | None = None
    """What that depends on besides."""
    no_control: str | None = None
    """Why there is none."""
    residual: str | None = None
    """Known to be open, and why it is left so; does not count."""
    gvisor: Literal["closed", "emulated"] = "closed"
    """`emulated`: under gVisor this works on the emulated kernel only, and does not count there."""
    serial: bool = False
    """Runs alone: others would disturb it, or it them."""
    survive: bool = False
    """An attack on the session: closed means that the next call works and nothing is left. Runs alone."""
    unbounded: bool = False
    """Never run where nothing would stop it."""
    killed_is_closed: bool = False
    """The program's own death by a signal is a refusal."""
    timeout_s: float = 30.0
    within_s: float = 5.0
    """For `survive`: how soon the next call must work."""

    @model_validator(mode="after")
    def _one_program(self) -> Probe:
        if (self.sh is None) == (self.python is None):
            raise ValueError("has either `sh` or `python`")
        if (self.control is None) == (self.no_control is None):
            raise ValueError("has either `control` or `no_control`")
        return self

    @property
    def alone(self) -> bool:
        return self.serial or self.survive


def load_catalogue() -> tuple[Probe, ...]:
    """Every probe, in the order of the groups below.

    Raises:
        ConfigError: a file of ours is damaged.
    """
    folder = resources.files(__package__) / "probes"
    files = {place.name: place.read_text("utf-8") for place in folder.iterdir() if place.name.endswith(".yaml")}
    probes = [probe for name in _ORDER for probe in _read(name, files.pop(name))]
    if files:
        raise ConfigError(f"escape/probes: {', '.join(files)} is in no order")
    twice = {probe.id for probe in probes if [one.id for one in probes].count(probe.id) > 1}
    if twice:
        raise ConfigError(f"escape/probes: {', '.join(sorted(twice))} is there twice")
    return tuple(probes)


_ORDER = (
    "identity.yaml", "namespaces.yaml", "mounts.yaml", "kernel.yaml", "processes.yaml", "files.yaml", "devices.yaml",
    "proc.yaml", "network.yaml", "secrets.yaml", "limits.yaml", "survival.yaml",
)  # fmt: skip


def _read(name: str, text: str) -> list[Probe]:
    try:
        document = yaml.safe_load(text)
        group = document["group"]
        return [Probe.model_validate({"group": group, **fields}) for fields in document["probes"]]
    except (yaml.YAMLError, LookupError, TypeError) as exc:
        raise ConfigError(f"escape/probes/{name}: cannot be read: {exc}") from exc
    except ValidationError as exc:
        raise ConfigError(f"escape/probes/{name}: {exc}") from exc


def choose(probes: Sequence[Probe], wanted: Iterable[str]) -> tuple[Probe, ...]:
    """The probes of these groups and with these IDs, in the catalogue's order; all where nothing is named.

    Raises:
        ConfigError: there is no such group or probe.
    """
    names = list(wanted)
    if not names:
        return tuple(probes)
    known = {probe.group for probe in probes} | {probe.id for probe in probes}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else "see: sandbox-agent escape-test --list"
            raise ConfigError(f"--only {name!r}: no such group or probe ({hint})")
    return tuple(probe for probe in probes if probe.group in names or probe.id in names)
