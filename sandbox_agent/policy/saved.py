"""The rules a person saved by answering "always": a file of their own, beside nothing else, read at every start.

It is a list under `allow:` that a person can read and edit; removing a line means being asked again.
"""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.editing import scalar
from sandbox_agent.policy.source import read_bytes

_HEAD = """\
# Rules saved by answering "always". They hold in every folder. Remove a line to be asked again.
allow:
"""


def save(path: Path, rule: str) -> None:
    """Add a rule; once is enough. The file is made 0600 in a 0700 folder.

    Raises:
        PolicyError: the file cannot be read or written.
    """
    if any(saved == rule for _, saved in read_saved(path)):
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "a", encoding="utf-8") as file:
            if file.tell() == 0:
                file.write(_HEAD)
            file.write(f"  - {scalar(rule)}\n")
    except OSError as exc:
        raise PolicyError(f"the rule could not be saved: {exc.strerror}", location=str(path)) from exc


def read_saved(path: Path) -> list[tuple[int, str]]:
    """Line numbers and rules, in order; none where the file is not there.

    Raises:
        PolicyError: the file cannot be read, or is not one list of rules under `allow:`.
    """
    if not os.path.lexists(path):
        return []
    try:
        text = read_bytes(path, str(path)).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise PolicyError(f"the saved rules cannot be read: {exc}", location=str(path)) from exc
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as exc:
        raise PolicyError(f"the saved rules are not YAML: {exc}", location=str(path)) from exc
    if root is None:
        return []
    if isinstance(root, yaml.MappingNode) and len(root.value) == 1:
        [(key, rules)] = root.value
        if key.value == "allow" and isinstance(rules, yaml.SequenceNode):
            entries = rules.value
            if all(isinstance(entry, yaml.ScalarNode) for entry in entries):
                return [(entry.start_mark.line + 1, entry.value) for entry in entries]
        if key.value == "allow" and isinstance(rules, yaml.ScalarNode) and not rules.value:
            return []
    raise PolicyError("saved rules are one list under `allow:`; mend or remove the file", location=str(path))
