"""From a name or a file to a `Policy`: the schema, the rules with their examples, and what the command line adds.

Raises `PolicyError` with file:line for everything that is wrong; nothing is guessed and nothing half-loaded.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pydantic

from sandbox_agent.config import config_dir
from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.examples import check_examples
from sandbox_agent.policy.hooks import HookEntry, parse_hooks
from sandbox_agent.policy.policy import Policy, SandboxSettings
from sandbox_agent.policy.rules import Rule, RuleSet, parse_rule
from sandbox_agent.policy.schema import NOT_SUPPORTED, PolicyFile, RuleEntry
from sandbox_agent.policy.source import Document, KeyPath, parse_document, read_document, shipped_dir, shipped_names
from sandbox_agent.types import Limits, Mode, Verdict

DEFAULT_POLICY = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def load_policy(
    name_or_path: str | None,
    *,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    ask: Sequence[str] = (),
    mode: Mode | None = None,
) -> Policy:
    """The policy of a run: a shipped one by name, or a file, with the command line's rules and mode on top.

    Args:
        name_or_path: a bare name is a shipped policy, everything else a file; None is the shipped `default`.
        allow, deny, ask: further rules; a deny of the file still beats an `allow` given here.
        mode: replaces the file's mode.

    Raises:
        PolicyError: there is no such policy, or anything in it or in the rules is wrong.
    """
    document, shipped = _find(name_or_path or DEFAULT_POLICY)
    # A hundred examples cost a third of a second, one parser process each; those of shipped files never change, and
    # the tests hold them.
    policy = _from_document(document, examples=not shipped)
    rules = replace(
        policy.rules,
        deny=(*policy.rules.deny, *_given(deny, Verdict.DENY, "--deny")),
        ask=(*policy.rules.ask, *_given(ask, Verdict.ASK, "--ask")),
        allow=(*policy.rules.allow, *_given(allow, Verdict.ALLOW, "--allow")),
    )
    return _with_denied_masked(replace(policy, rules=rules, mode=mode or policy.mode))


def parse_policy(text: str, name: str = "policy") -> Policy:
    """The policy in a YAML text; `name` is what messages call it.

    Raises:
        PolicyError: anything in it is wrong.
    """
    return _from_document(parse_document(text, name), examples=True)


def check_outside_workspace(policy: Policy, workspace: Path) -> None:
    """Refuse a policy file that lies in the workspace: the agent could write its own permissions.

    Raises:
        PolicyError: it does, by its path or by where links lead.
    """
    file = Path(policy.location)
    root = workspace.resolve()
    if policy.location in shipped_locations() or not file.exists():
        return
    if file.absolute().is_relative_to(workspace.absolute()) or file.resolve().is_relative_to(root):
        raise PolicyError(
            "a policy must not lie in the workspace, where the agent could change it; move it out", location=str(file)
        )


def shipped_locations() -> frozenset[str]:
    """What `Policy.location` says for the shipped policies."""
    return frozenset(f"policies/{name}.yaml" for name in shipped_names())


def _find(name_or_path: str) -> tuple[Document, bool]:
    """The document, and whether it is a shipped one."""
    if not _NAME.fullmatch(name_or_path):
        path = Path(name_or_path).expanduser()
        return read_document(path, str(path)), False
    if name_or_path in shipped_names():
        return read_document(shipped_dir() / f"{name_or_path}.yaml", f"policies/{name_or_path}.yaml"), True
    there = ", ".join(shipped_names())
    as_file = f"; for the file write ./{name_or_path}" if Path(name_or_path).exists() else ""
    raise PolicyError(f"there is no policy named {name_or_path!r}; there are {there}{as_file}")


def _from_document(document: Document, *, examples: bool) -> Policy:
    file = _validated(document)
    box = file.sandbox
    rules = {
        kind: _rules(document, kind, entries, examples=examples)
        for kind, entries in (("deny", file.rules.deny), ("ask", file.rules.ask), ("allow", file.rules.allow))
    }
    policy = Policy(
        name=file.name or Path(document.name).stem,
        mode=file.mode,
        rules=RuleSet(
            deny=rules["deny"],
            ask=rules["ask"],
            allow=rules["allow"],
            read_only_commands=file.read_only_commands == "allow",
        ),
        sandbox=SandboxSettings(
            image=box.image,
            runtime=box.runtime,
            network=box.network,
            memory_bytes=box.memory,
            cpus=box.cpus,
            pids=box.pids,
            disk_bytes=box.disk,
            masks=_masks(document, box.masks),
        ),
        limits=Limits(turns=file.limits.turns, wall_s=file.limits.wall_s),
        location=document.name,
        hooks=parse_hooks(file.hooks, document.location, host_folder=_own_folder(document)),
    )
    return _with_denied_masked(policy)


def _own_folder(document: Document) -> str | None:
    """The folder of a file that is the user's own, None for any other."""
    path = Path(os.path.normpath(Path(document.name).absolute()))
    return str(path.parent) if path.is_relative_to(config_dir()) else None


def _with_denied_masked(policy: Policy) -> Policy:
    """Files of the workspace that a rule keeps from being read are masked: a program reads what no rule can see."""
    patterns = [rule.path for rule in policy.rules.deny if rule.path is not None and rule.is_about_files(write=False)]
    lines = [line for pattern in patterns if (line := pattern.workspace_line) is not None]
    masks = tuple(dict.fromkeys((*policy.sandbox.masks, *lines)))
    return replace(policy, sandbox=replace(policy.sandbox, masks=masks))


def _validated(document: Document) -> PolicyFile:
    try:
        return PolicyFile.model_validate(_without_unsupported(document))
    except pydantic.ValidationError as exc:
        fault = exc.errors()[0]
        path = tuple(fault["loc"])
        message = _fault_text(fault["type"], fault["msg"], path, fault["input"])
        raise PolicyError(message, location=document.location(path)) from exc


def _without_unsupported(document: Document) -> dict[str, Any]:
    present = {key: value for key, value in document.data.items() if value is not None}
    data = {key: dict(value) if isinstance(value, dict) else value for key, value in present.items()}
    for path, advice in NOT_SUPPORTED.items():
        parent: Any = data if len(path) == 1 else data.get(path[0])
        if not isinstance(parent, dict) or path[-1] not in parent:
            continue
        if _says_something(parent.pop(path[-1])):
            raise PolicyError(f"{'.'.join(path)} is not supported yet: {advice}", location=document.location(path))
    return data


def _says_something(value: Any) -> bool:
    """False for null, and for mappings and lists with nothing in them at any depth."""
    if isinstance(value, dict):
        return any(_says_something(item) for item in value.values())
    return value is not None and value != []


def _fault_text(kind: str, message: str, path: KeyPath, given: Any) -> str:
    key = ".".join(str(part) for part in path)
    if kind == "extra_forbidden":
        names = _known_keys(path[:-1])
        near = difflib.get_close_matches(str(path[-1]), names, n=1)
        return f"unknown key {key!r}; " + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}")
    message = message.removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{key}: must be {message}, not {given!r}" if not isinstance(given, dict | list) else f"{key}: {message}"


def _known_keys(path: Iterable[str | int]) -> list[str]:
    sections: dict[str, type[pydantic.BaseModel]] = {
        name: field.annotation
        for name, field in PolicyFile.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, pydantic.BaseModel)
    }
    names = [str(part) for part in path]
    if not names:
        supported = [*PolicyFile.model_fields]
    elif len(names) > 2 and names[0] == "hooks":
        supported = [*HookEntry.model_fields]
    elif len(names) > 1:
        supported = [*RuleEntry.model_fields]
    else:
        supported = [*sections[names[0]].model_fields]
    return supported + [key[-1] for key in NOT_SUPPORTED if list(key[:-1]) == names]


def _rules(document: Document, kind: str, entries: Sequence[RuleEntry], *, examples: bool) -> tuple[Rule, ...]:
    rules = []
    verdict = Verdict[kind.upper()]
    for index, entry in enumerate(entries):
        location = document.location(("rules", kind, index))
        rule = parse_rule(entry.rule, verdict, reason=entry.reason, id=entry.id, location=location)
        if examples:
            check_examples(rule, matches=entry.matches, not_matches=entry.not_matches)
        rules.append(rule)
    return tuple(rules)


def _given(texts: Sequence[str], verdict: Verdict, option: str) -> tuple[Rule, ...]:
    return tuple(parse_rule(text, verdict, location=option) for text in texts)


def _masks(document: Document, masks: Sequence[str]) -> tuple[str, ...]:
    for index, mask in enumerate(masks):
        if not mask.strip() or mask.startswith(("#", "!")) or "\n" in mask:
            location = document.location(("sandbox", "masks", index))
            raise PolicyError(f"mask {mask!r}: write a gitignore pattern such as .env or secrets/", location=location)
    return tuple(masks)
