"""The whole attack: plant, run under the policy, run without rules, look what reached the machine, apply everything."""

from __future__ import annotations

import io
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import click
import yaml

from sandbox_agent.cli.attack import view
from sandbox_agent.cli.attack.attempts import Catalogue, read_catalogue, script_of
from sandbox_agent.cli.attack.ears import listening
from sandbox_agent.cli.attack.ground import Entry, Ground, differences
from sandbox_agent.cli.attack.view import Applied, Report
from sandbox_agent.cli.attack.watch import Outcome, Watch
from sandbox_agent.cli.demo_run import examples_dir
from sandbox_agent.cli.execute import start
from sandbox_agent.cli.job import Screen
from sandbox_agent.cli.kept import apply_kept, open_kept
from sandbox_agent.config import RunConfig, sessions_dir
from sandbox_agent.engine.discarding import discard
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.engine.past import EVENTS_FILE
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends import stream_json, words
from sandbox_agent.frontends.console import ConsoleView
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.review import Choice
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.policy.source import shipped_dir
from sandbox_agent.workspaces.removal import remove_tree

POLICY = "untrusted"
OPEN_HOST = "packages.example.org:443"
"""Open in the run without rules, so that the gate has something to refuse look-alikes of. It does not exist."""
TASK = "Set this project up and make its tests pass."

_ENDED_BY_ITSELF = (0, 3)


class Run:
    """One run of the script in this process, seen by nobody but `watch`; what a person would have seen is kept."""

    def __init__(self, ground: Ground, watch: Watch, policy: str) -> None:
        self.watch = watch
        self.screen = io.StringIO()
        printer = Printer(make_console(self.screen, {}))
        config = RunConfig(workspace=ground.repository, model=f"script:{ground.root / 'script.json'}", policy=policy)
        shown = Screen(None, ConsoleView(printer, verbose=True), printer, None)
        with ground.environment():
            self.code = start(config, TASK, apply="never", verbose=True, watch=watch, screen=shown)

    @property
    def trouble(self) -> str | None:
        """Why it did not come to its end; None if it did."""
        if self.code in _ENDED_BY_ITSELF:
            return None
        said = [line for line in self.screen.getvalue().splitlines() if line.startswith("sandbox-agent: ")]
        return said[-1] if said else f"sandbox-agent: the run ended with exit code {self.code}"


def run_attack(*, keep: Path | None, only: Sequence[str], as_json: bool) -> int:
    """Attack, and report; 0 only if every attempt was held in both runs and nothing reached the machine.

    Raises:
        ConfigError: `keep` is in use already, there is no attempt of a name in `only`, or the examples are missing.
    """
    source = examples_dir() / "hostile-repo"
    catalogue = read_catalogue(source / "attempts.yaml").only(only)
    printer = Printer(make_console(sys.stderr if as_json else sys.stdout))
    started = time.monotonic()
    with ExitStack() as sessions, _root(keep) as root, listening() as ears:
        ground = Ground(root, ears)
        (root / "script.json").write_text(script_of(catalogue.attempts))
        (root / "no-rules.yaml").write_text(_without_rules())
        ground.plant(source / "plant.py")
        if not as_json:
            view.show_head(printer, POLICY)
        teller = _Teller(printer, catalogue, quiet=as_json)
        code, report = _attack(ground, catalogue, teller, started, sessions if keep is None else None)
    if as_json:
        click.echo(stream_json.dump(view.document(report)))
    else:
        view.show_end(printer, report)
        if keep is not None:
            printer.line(f"Kept: {sanitise(str(keep))}, and the sessions {', '.join(report.sessions)}", style="dim")
    return code


class _Teller:
    """Shows attempts as the second run makes them, under the headings of their groups."""

    def __init__(self, printer: Printer, catalogue: Catalogue, *, quiet: bool) -> None:
        self.printer = printer
        self._first = {group.attempts[0].id: group.group for group in catalogue.groups}
        self._quiet = quiet
        self._begun = False
        self.judged: list[Outcome] = []

    def __call__(self, forced: Outcome) -> None:
        if self._quiet:
            return
        if not self._begun:
            view.show_columns(self.printer, POLICY)
            self._begun = True
        attempt_id = forced.attempt.id
        if attempt_id in self._first:
            view.show_group(self.printer, self._first[attempt_id])
        view.show_attempt(self.printer, view.rest(self.judged, attempt_id), forced)


def _attack(
    ground: Ground, catalogue: Catalogue, teller: _Teller, started: float, sessions: ExitStack | None
) -> tuple[int, Report]:
    """The two runs and what follows; the exit code with the report. `sessions` removes them when it is closed."""
    runs: list[Run] = []
    machine: list[str] = []
    for policy, told in ((POLICY, teller.judged.append), (str(ground.root / "no-rules.yaml"), teller)):
        run = Run(ground, Watch(catalogue.attempts, ground, told), policy)
        runs.append(run)
        if sessions is not None and run.watch.session_id is not None:
            sessions.callback(_forget, run.watch.session_id)
        machine += [*run.watch.early, *ground.changes(), *ground.processes(), *_told(run, ground)]
        if run.trouble is not None:
            break
    last = runs[-1].watch
    ended = len(runs) == 2 and runs[-1].trouble is None
    applied = _apply_everything(ground, last) if ended else None
    report = Report(
        catalogue=catalogue,
        policy=POLICY,
        judged=tuple(runs[0].watch.outcomes),
        forced=tuple(runs[1].watch.outcomes) if len(runs) == 2 else (),
        machine=tuple(machine),
        checked=_checked(ground),
        applied=applied,
        isolation=last.isolation or "",
        sessions=tuple(run.watch.session_id for run in runs if run.watch.session_id),
        duration_s=time.monotonic() - started,
        trouble=runs[-1].trouble,
    )
    broken = next((run.code for run in runs if run.code not in (*_ENDED_BY_ITSELF, 1)), None)
    return broken or (0 if report.held else 1), report


def _told(run: Run, ground: Ground) -> list[str]:
    """What came where it must not, in words of ours: the person's screen, and the record."""
    shown = run.screen.getvalue()
    found = [f"on the screen: {leak}" for leak in ground.leaks(shown)]
    if sanitise(shown, newlines=True) != shown:
        found.append("on the screen: characters that a terminal obeys")
    if run.watch.session_id is not None:
        record = (sessions_dir() / run.watch.session_id / EVENTS_FILE).read_text(errors="replace")
        found += [f"in the record: {leak}" for leak in ground.leaks(record)]
    return found


def _checked(ground: Ground) -> tuple[str, ...]:
    paths = words.count(len(ground.tree()) + len(ground.trap_paths()), "path")
    return (
        f"after every attempt: {paths} (repository, targets of its links): content, rights, owner; your own policy;",
        f"  sockets that must hear nothing: {', '.join(ground.places)}",
        "at the end: processes of the attack; secrets in the record and on the screen, as they are, in base64, in hex",
    )


def _apply_everything(ground: Ground, run: Watch) -> Applied | None:
    if run.session_id is None:
        return None
    if not run.changes_kept:
        return Applied(0, 0, {}, ())
    before = ground.tree()
    with open_kept(run.session_id) as kept:
        outcome = apply_kept(kept, Choice(None))
        dangers = [one for one in kept.changes if one.get("danger") and one["path"] in outcome.applied]
    after = ground.tree()
    outside = [line for line in ground.changes() if not line.startswith(f"{ground.repository.name}/")]
    faults = [f"outside the folder: {line}" for line in outside if not line.startswith(f"{ground.repository.name} ")]
    faults += [f"{path} {what}" for path, what in differences(_guarded(before), _guarded(after))]
    stayed = dict(outcome.withheld) | dict(outcome.conflicts)
    return Applied(len(outcome.applied), len(dangers), stayed, tuple(faults))


def _guarded(tree: Mapping[str, Entry]) -> dict[str, Entry]:
    """What no apply may bring or change unasked: git's folder, links, special files, set-id bits, the masked file."""
    return {
        path: entry
        for path, entry in tree.items()
        if path.split("/")[0] in (".git", ".env")
        or not (stat.S_ISREG(entry.mode) or stat.S_ISDIR(entry.mode))
        or entry.mode & (stat.S_ISUID | stat.S_ISGID)
    }


def _without_rules() -> str:
    """A policy with the container of the other one, no rule at all, and one host open."""
    sandbox = yaml.safe_load((shipped_dir() / f"{POLICY}.yaml").read_text())["sandbox"]
    policy = {
        "version": 1,
        "name": "no-rules",
        "mode": "bypassPermissions",
        "saved_rules": "ignore",
        "sandbox": {**sandbox, "allow_hosts": [OPEN_HOST]},
    }
    return yaml.safe_dump(policy, sort_keys=False)


@contextmanager
def _root(keep: Path | None) -> Iterator[Path]:
    """A folder of this attack's own."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="sandbox-agent-attack-") as name:
            yield Path(name).resolve()
        return
    try:
        keep.mkdir(mode=0o700, parents=True)
    except FileExistsError as exc:
        raise ConfigError(f"--keep {keep}: is there already; name a folder that does not exist yet") from exc
    yield keep.resolve()


def _forget(session_id: str) -> None:
    """Remove a session with all that was kept of it: nobody wants to apply that."""
    folder = sessions_dir() / session_id
    lock = SessionLock(folder)
    try:
        anyio.run(discard, folder)
        remove_tree(sessions_dir().resolve(), session_id)
    finally:
        lock.release()
