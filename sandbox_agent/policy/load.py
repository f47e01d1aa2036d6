"""From names, files and options to a `Policy`. `run_policy` is what a run goes by; the others are about one policy.

Raises `PolicyError` with file:line for everything that is wrong; nothing is guessed and nothing half-loaded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sandbox_agent.config import config_dir
from sandbox_agent.errors import PolicyError
from sandbox_agent.policy import saved
from sandbox_agent.policy.extend import Reader
from sandbox_agent.policy.layers import CommandLine, Layer, layer_of_command_line, layer_of_saved
from sandbox_agent.policy.merge import merge
from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.source import parse_document
from sandbox_agent.policy.trust import require_administrators, require_outside, require_own
from sandbox_agent.types import Mode

DEFAULT_POLICY = "default"
OWN_POLICY_FILE = "policy.yaml"
SAVED_RULES_FILE = "allowed.yaml"
"""In the user's configuration folder: their own policy, and the rules they answered "always" with."""
ADMINISTRATORS_FILE = Path("/etc/sandbox-agent/policy.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where policies are looked for. Only a program says otherwise: no variable and no option moves the
    administrator's file, or its user could."""

    own_folder: Path
    administrators: Path = ADMINISTRATORS_FILE
    administrators_uid: int = 0


def run_policy(named: str | None, options: CommandLine | None = None, *, places: Places | None = None) -> Policy:
    """The policy of a run: every layer, merged.

    Args:
        named: what `--policy` says; None is the user's own policy, else the shipped `default`.
        options: what the other options say.
        places: where the user's and the administrator's files are; None is where they always are.

    Raises:
        PolicyError: there is no such policy, something in any layer is wrong, or a layer loosens what another locks.
    """
    places = places or Places(own_folder=config_dir())
    own = _reader("user", places)
    own_file = places.own_folder / OWN_POLICY_FILE
    own_chain = own.chain(str(own_file)) if os.path.lexists(own_file) else []
    locked = _administrators(places)
    if named is not None:
        chosen = _reader("policy", places).chain(named)
        # What is the user's own either way is not there twice.
        own_chain = [layer.restrictions() for layer in own_chain if not _is_among(layer, chosen)]
        chain = [*own_chain, *chosen]
    else:
        chain = own_chain or _behind(locked, own.chain(DEFAULT_POLICY))
    saved_file = places.own_folder / SAVED_RULES_FILE
    kept = layer_of_saved(_saved_lines(saved_file), saved_file)
    return merge([*locked, *chain, kept, layer_of_command_line(options or CommandLine())], chain[-1])


def administrators_policy(places: Places | None = None) -> Policy | None:
    """What the administrator's file says by itself; None where there is none.

    Raises:
        PolicyError: it is not safe, or not right.
    """
    layers = _administrators(places or Places(own_folder=config_dir()))
    return merge(layers, layers[-1]) if layers else None


def load_policy(
    name_or_path: str | None,
    *,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    ask: Sequence[str] = (),
    mode: Mode | None = None,
) -> Policy:
    """One policy with what it extends, and with rules and a mode on top; no other layer.

    Args:
        name_or_path: a bare name is a shipped policy, everything else a file; None is the shipped `default`.
        allow, deny, ask: further rules; a deny of the file still beats an `allow` given here.
        mode: replaces the file's mode.

    Raises:
        PolicyError: there is no such policy, or anything in it or in the rules is wrong.
    """
    named = DEFAULT_POLICY if name_or_path is None else name_or_path
    chain = _reader("policy", Places(own_folder=config_dir())).chain(named)
    options = CommandLine(allow=allow, deny=deny, ask=ask, mode=mode)
    return merge([*chain, layer_of_command_line(options)], chain[-1])


def parse_policy(text: str, name: str = "policy") -> Policy:
    """The policy in a YAML text; `name` is what messages call it. It can extend shipped policies only.

    Raises:
        PolicyError: anything in it is wrong.
    """
    reader = _reader("policy", Places(own_folder=config_dir()))
    chain = reader.chain_of(parse_document(text, name), "policy")
    return merge(chain, chain[-1])


def check_policy(name_or_path: str, *, places: Places | None = None) -> list[PolicyError]:
    """Everything that is wrong in a policy and in what it extends, examples of shipped rules included; [] if it is
    right."""
    places = places or Places(own_folder=config_dir())
    faults: list[PolicyError] = []
    own_kind = _administrators_reader if _is_administrators(name_or_path, places) else partial(_reader, "policy")
    reader = replace(own_kind(places), examples=True, faults=faults)
    try:
        chain = reader.chain(name_or_path)
        if not faults:
            merge(chain, chain[-1])
    except PolicyError as exc:
        faults.append(exc)
    return faults


def check_outside_workspace(policy: Policy, workspace: Path) -> None:
    """Refuse a policy one of whose files lies in the workspace: the agent could write its own permissions.

    Raises:
        PolicyError: it does, by its path or by where links lead.
    """
    require_outside(policy.files, workspace)


def _reader(kind: str, places: Places) -> Reader:
    own_folder = Path(os.path.abspath(places.own_folder))
    return Reader("user" if kind == "user" else "policy", require_own, own_folder=own_folder)


def _administrators(places: Places) -> list[Layer]:
    """The layers of the administrator's file; none if there is no file. One that cannot be read stops the run."""
    file = places.administrators
    if not os.path.lexists(file):
        return []
    return _administrators_reader(places).chain(str(file))


def _administrators_reader(places: Places) -> Reader:
    trusted = partial(require_administrators, owner=places.administrators_uid)
    return Reader("administrator", trusted, own_folder=Path(os.path.abspath(places.administrators.parent)))


def _is_administrators(name_or_path: str, places: Places) -> bool:
    return os.path.abspath(name_or_path) == str(places.administrators)


def _behind(locked: Sequence[Layer], default: Sequence[Layer]) -> list[Layer]:
    """The shipped default where nobody chose a policy: an administrator's setting is the nearer one then."""
    given = {key for layer in locked for key in layer.settings}
    return [
        replace(layer, settings={key: one for key, one in layer.settings.items() if key not in given})
        for layer in default
    ]


def _is_among(layer: Layer, chain: Sequence[Layer]) -> bool:
    return any(layer.location == other.location and layer.path == other.path for other in chain)


def _saved_lines(file: Path) -> list[tuple[int, str]]:
    lines = saved.read_saved(file)
    if lines:
        require_own(file, str(file))
    return lines
