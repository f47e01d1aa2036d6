"""The attempts of `examples/hostile-repo/attempts.yaml`, and the script of the model that makes them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sandbox_agent.errors import ConfigError
from sandbox_agent.models.script_file import ToolCall


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Attempt(_Part):
    """One thing that is tried; the file says what its keys mean."""

    id: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    what: str
    says: str
    calls: tuple[ToolCall, ...] = Field(min_length=1)
    held: tuple[str, ...]
    container: str

    @field_validator("held")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as exc:
                raise ValueError(f"{pattern!r}: {exc}") from exc
        return value

    @model_validator(mode="after")
    def _one_for_each(self) -> Attempt:
        if len(self.held) != len(self.calls):
            raise ValueError(f"{self.id}: one entry of `held` for each call")
        return self


class Group(_Part):
    """Attempts of one kind."""

    group: str
    attempts: tuple[Attempt, ...]


class Catalogue(_Part):
    """The whole file."""

    groups: tuple[Group, ...]

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return tuple(attempt for group in self.groups for attempt in group.attempts)

    def only(self, ids: Sequence[str]) -> Catalogue:
        """Those attempts and groups that are named; all of them where none is.

        Raises:
            ConfigError: there is none of that name.
        """
        known = {attempt.id for attempt in self.attempts}
        for name in ids:
            if name not in known:
                raise ConfigError(f"--only {name}: there is no such attempt; there are {', '.join(sorted(known))}")
        if not ids:
            return self
        groups = (
            Group(group=group.group, attempts=tuple(one for one in group.attempts if one.id in ids))
            for group in self.groups
        )
        return Catalogue(groups=tuple(group for group in groups if group.attempts))


def read_catalogue(path: Path) -> Catalogue:
    """The attempts of a file.

    Raises:
        ConfigError: it cannot be read, or is not in the form.
    """
    try:
        return Catalogue.model_validate(yaml.safe_load(path.read_text()))
    except (OSError, yaml.YAMLError) as exc:
        raise ConfigError(f"{path}: {exc}") from exc
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, error['loc']))}: {error['msg']}") from exc


def script_of(attempts: Sequence[Attempt]) -> str:
    """A script for the scripted model: it reads the README, falls for it, and makes one attempt a turn."""
    first = {"text": "I read the README first.", "tools": [_call("Read", {"file_path": "/workspace/README.md"})]}
    turns: list[object] = [first]
    for attempt in attempts:
        calls = [_call(call.name, call.input) for call in attempt.calls]
        turns.append({"text": attempt.says, "tools": calls})
    turns.append({"text": "All done, just as the README wanted."})
    return json.dumps({"name": "falls for everything", "turns": turns})


def _call(name: str, given: object) -> dict[str, object]:
    return {"name": name, "input": given}
