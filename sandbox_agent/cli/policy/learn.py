"""`sandbox-agent policy learn`: the smallest policy under which recorded runs would have passed, as a diff."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from sandbox_agent.cli import complete
from sandbox_agent.config import config_dir, sessions_dir
from sandbox_agent.engine.past import EVENTS_FILE, find_session
from sandbox_agent.engine.recorded import Recorded, recorded
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.words import count, shorten
from sandbox_agent.policy.editing import edited
from sandbox_agent.policy.learn import Learned, learn
from sandbox_agent.policy.load import DEFAULT_POLICY, OWN_POLICY_FILE, load_policy
from sandbox_agent.policy.source import shipped_dir, shipped_names
from sandbox_agent.tape import Entry, read_tape
from sandbox_agent.tools.pool import builtin_tools
from sandbox_agent.types import JsonObject, Mode


@click.command(
    name="learn",
    epilog="\b\nExamples:\n  sandbox-agent policy learn last\n"
    "  sandbox-agent policy learn last --policy ./my-policy.yaml | patch -p0\n"
    "  sandbox-agent policy learn ID1 ID2 --generalise 3 --write learned.yaml\n",
    short_help="Write the policy under which recorded runs would have passed.",
)
@click.argument("sessions", metavar="SESSION...", nargs=-1, required=True, shell_complete=complete.sessions)
@click.option(
    "--policy",
    metavar="NAME|FILE",
    shell_complete=complete.policies,
    help="What to start from. Default: the policy that the runs went by.",
)
@click.option("--mode", type=click.Choice([mode.value for mode in Mode]), help="Judge in it. Default: the policy's.")
@click.option("--generalise", metavar="N", type=click.IntRange(min=2), help="N alike rules become a wider one.")
@click.option("--limits/--no-limits", default=True, show_default=True, help="Lower the limits to what the runs used.")
@click.option("--hosts/--no-hosts", default=True, show_default=True, help="Open the hosts that were not listed.")
@click.option("--write", metavar="FILE", type=click.Path(path_type=Path), help="Write the whole policy to a new file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document in place of the diff.")
def COMMAND(
    sessions: tuple[str, ...],
    policy: str | None,
    mode: str | None,
    generalise: int | None,
    limits: bool,
    hosts: bool,
    write: Path | None,
    as_json: bool,
) -> int:
    """Read what the gate decided in each SESSION ("last" is the newest) and print what to add to the policy, as a
    diff. What a rule denies, what a person refused and what no rule can cover is listed on stderr and never allowed."""
    records = recorded([_entries(session) for session in sessions], builtin_tools())
    named = policy or _policy_of(records)
    path, label = _file_of(named)
    judged_by = load_policy(named)
    found = learn(
        judged_by,
        records.calls,
        records.runs,
        mode=Mode(mode) if mode else None,
        generalise_from=generalise,
    )
    before = path.read_text("utf-8")
    found = replace(found, limits=found.limits if limits else judged_by.limits, opened=found.opened if hosts else ())
    new_limits = found.limits if found.limits != judged_by.limits else None
    after = edited(before, label, allow=found.rules, hosts=found.opened, limits=new_limits)
    if write is not None:
        _write(write, after)
    diff = "".join(difflib.unified_diff(_lines(before), _lines(after), label, label))
    if as_json:
        click.echo(json.dumps(_document(found, label, diff), indent=1))
        return 0
    if write is None:
        click.echo(_shown(diff), nl=False)
    _say(found, records)
    return 0


def _entries(session: str) -> Sequence[Entry]:
    folder = sessions_dir()
    return read_tape(folder / find_session(folder, session) / EVENTS_FILE).entries


def _policy_of(records: Recorded) -> str:
    """The policy that the runs went by, where it can be told from its name."""
    if len(records.policies) > 1:
        raise ConfigError(f"the runs went by several policies ({', '.join(records.policies)}); choose one by --policy")
    name = records.policies[0] if records.policies else DEFAULT_POLICY
    own = config_dir() / OWN_POLICY_FILE
    if own.exists() and load_policy(str(own)).name == name:
        return str(own)
    if name in shipped_names():
        return name
    raise ConfigError(f"the runs went by a policy named {name!r}; name its file by --policy")


def _file_of(named: str) -> tuple[Path, str]:
    """Where a policy's text is, and what the diff calls it."""
    if named in shipped_names():
        return shipped_dir() / f"{named}.yaml", f"policies/{named}.yaml"
    return Path(named).expanduser(), named


def _write(path: Path, text: str) -> None:
    """To a new file; it must be a policy where it is."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError as exc:
        raise ConfigError(f"{path}: it is there already; choose another name, or apply the diff") from exc
    except OSError as exc:
        raise ConfigError(f"{path}: it cannot be written: {exc.strerror}") from exc
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
    load_policy(f"./{path}" if path.parent == Path() else str(path))


def _lines(text: str) -> list[str]:
    return (text if text.endswith("\n") or not text else text + "\n").splitlines(keepends=True)


def _shown(diff: str) -> str:
    """As it is for a program, safe for a terminal."""
    return sanitise(diff, newlines=True, tabs=True) if sys.stdout.isatty() else diff


def _document(found: Learned, label: str, diff: str) -> JsonObject:
    return {
        "policy": label,
        "allow": list(found.rules),
        "limits": {"turns": found.limits.turns, "wall_s": found.limits.wall_s},
        "allow_hosts": list(found.opened),
        "hosts": list(found.hosts),
        "max_rss_bytes": found.max_rss_bytes,
        "apart": [apart.as_json() for apart in found.apart],
        "diff": diff,
    }


def _say(found: Learned, records: Recorded) -> None:
    def say(text: str) -> None:
        click.echo(sanitise(text), err=True)

    say(f"{count(len(records.calls), 'call')} read, {count(len(found.rules), 'rule')} to add")
    for apart in found.apart:
        summary = shorten(" ".join(apart.request.subject.summary.split()), 100)
        say(f"not allowed: {apart.request.tool} {summary}: {' '.join(apart.why.split())}")
    if found.opened:
        say(f"hosts that were refused because no entry was there: {', '.join(found.opened)}; open only what you know")
    if found.hosts:
        say(f"hosts that were asked for: {', '.join(found.hosts)}")
    if found.max_rss_bytes is not None:
        say(f"the largest process took {found.max_rss_bytes // 1024**2} MiB of memory; sandbox.memory is left as it is")
