"""The permission policy of a run: what may run without asking, what is asked, what is denied, and in which sandbox.

Deciding is pure: facts that need I/O (where a path leads) are in the request. The sandbox settings are fixed at
start; no decision changes them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from sandbox_agent.errors import PolicyError
from sandbox_agent.hostnames import HostEntry
from sandbox_agent.policy.calls import by_rule, judge_call
from sandbox_agent.policy.hooks import Hook
from sandbox_agent.policy.modes import stricter
from sandbox_agent.policy.narrowest import candidates
from sandbox_agent.policy.reach import search_may_reach
from sandbox_agent.policy.rules import RuleSet, parse_rule
from sandbox_agent.policy.servers import McpServer
from sandbox_agent.policy.shell_judge import judge_command
from sandbox_agent.types import (
    Decision,
    JsonObject,
    Limits,
    Mode,
    PathAccess,
    PermissionRequest,
    Price,
    Verdict,
    Withheld,
)

MIB = 1024 * 1024
DEFAULT_MASKS = (
    ".env",
    ".env.local",
    ".env.*.local",
    ".env.production",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".aws/credentials",
    ".docker/config.json",
    ".git-credentials",
    ".kube/config",
)
"""Files of the workspace that read as empty in the sandbox unless the policy says otherwise; gitignore syntax."""


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """What the policy asks of the sandbox. `network` is always "none": `allow_hosts` are reached through the gate, none
    where it is empty. `masks` are gitignore lines."""

    image: str = "base"
    runtime: str = "runc"
    network: str = "none"
    memory_bytes: int = 2048 * MIB
    cpus: float = 2.0
    pids: int = 512
    disk_bytes: int = 4096 * MIB
    masks: tuple[str, ...] = DEFAULT_MASKS
    seccomp: str = "default"
    nofile: int = 4096
    fsize_bytes: int = 4096 * MIB
    tmp_bytes: int = 1024 * MIB
    tmp_files: int = 200_000
    home_bytes: int = 512 * MIB
    home_files: int = 100_000
    shm_bytes: int = 64 * MIB
    allow_hosts: tuple[HostEntry, ...] = ()
    egress_bytes: int | None = None
    ca_bundle: str | None = None


SANDBOX_KEYS: Mapping[str, str] = {
    "image": "image",
    "runtime": "runtime",
    "seccomp": "seccomp",
    "network": "network",
    "allow_hosts": "allow_hosts",
    "egress": "egress_bytes",
    "ca_bundle": "ca_bundle",
    "memory": "memory_bytes",
    "cpus": "cpus",
    "pids": "pids",
    "nofile": "nofile",
    "fsize": "fsize_bytes",
    "disk": "disk_bytes",
    "tmp": "tmp_bytes",
    "tmp_files": "tmp_files",
    "home": "home_bytes",
    "home_files": "home_files",
    "shm": "shm_bytes",
    "masks": "masks",
}
"""Key below `sandbox` in a policy file, to the field of `SandboxSettings`; in the order that people are shown."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A merged policy. `location` is the file it came from, or what made it."""

    name: str
    mode: Mode = Mode.DEFAULT
    rules: RuleSet = field(default_factory=RuleSet)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    limits: Limits = field(default_factory=Limits)
    prices: tuple[tuple[str, Price], ...] = ()
    """By pattern of the model's name, the first that fits counts; before what is known of models' prices."""
    location: str = "built in"
    hooks: tuple[Hook, ...] = ()
    servers: tuple[McpServer, ...] = ()
    """MCP servers."""
    host_servers: frozenset[str] = frozenset()
    """Names of servers of other files that may run on this machine, or lie behind a URL."""
    servers_locked_by: str | None = None
    """`file:line` of what forbids further servers."""
    loosest_mode: Mode | None = None
    """No call is judged by a looser mode than this; None where nothing locks it."""
    allow_locked_by: str | None = None
    """`file:line` of what forbids further allow rules."""
    saved_rules: bool = True
    """Whether rules saved by answering "always" hold."""
    project_instructions: bool = True
    """Whether the model is given what the folder says to agents."""
    locks: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """What is locked, in the words of `lock`, and where."""
    sources: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """Dotted key of each setting that is written somewhere, and where."""
    files: tuple[Path, ...] = field(default=(), compare=False)
    """Every file that was read for it, but the shipped ones."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What was said somewhere and does not count, for the person to know."""

    def decide(self, request: PermissionRequest, mode: Mode) -> Decision:
        """Deny, then ask, then the mode, then allow; nothing matches: what only reads is allowed, the rest asked.

        In the mode dontAsk what would be asked is denied.
        """
        mode = stricter(mode, self.loosest_mode)
        judge = judge_call if request.subject.command is None else judge_command
        decision = judge(self.rules, request, mode)
        if decision.verdict is Verdict.ASK and mode is Mode.DONT_ASK:
            reason = f"{decision.reason} The mode dontAsk denies what would be asked."
            return replace(decision, verdict=Verdict.DENY, reason=reason)
        return decision

    def hidden_tools(self, names: Iterable[str]) -> frozenset[str]:
        """Those of these tools that a bare deny rule removes from the model's view."""
        return frozenset(name for name in names if self.hiding(name) is not None)

    def hiding(self, name: str) -> Decision | None:
        """The denial that keeps a tool out of the model's view; None if no rule does."""
        found = next((rule for rule in self.rules.deny if rule.bare and rule.names(name)), None)
        return None if found is None else by_rule(found, f"{found.label} denies {name} altogether")

    def withheld(self, folder: str, resolved: str) -> Withheld | None:
        """What a search of this container folder must not show: files below it that a deny or ask rule keeps from
        being read. A rule that covers the folder itself was judged with the call. None where no rule says anything.
        """
        root = PathAccess(folder, write=False, resolved=resolved)
        places = {folder, resolved}
        rules = [
            rule
            for rule in (*self.rules.deny, *self.rules.ask)
            if rule.path is not None
            and rule.is_about_files(write=False)
            and not rule.touches(root)
            and any(search_may_reach(rule.path, place, skips_hidden=False) for place in places)
        ]

        def covers(path: str) -> bool:
            found = PathAccess(posixpath.join(folder, path), write=False, resolved=posixpath.join(resolved, path))
            return any(rule.touches(found) for rule in rules)

        return Withheld(tuple(rule.label for rule in rules), covers) if rules else None

    def with_allow(self, rule: str, *, location: str = "this session") -> Policy:
        """The same policy with one more allow rule. Deny and ask rules still stand.

        Raises:
            PolicyError: the rule cannot be read, or allow rules are locked.
        """
        return self.with_rule(rule, Verdict.ALLOW, location=location)

    def with_rule(self, rule: str, verdict: Verdict, *, location: str) -> Policy:
        """The same policy with one more rule of this kind.

        Raises:
            PolicyError: the rule cannot be read, or is an allow rule and those are locked.
        """
        if verdict is Verdict.ALLOW and self.allow_locked_by is not None:
            raise PolicyError(f"no allow rule may be added: {self.allow_locked_by} locks allow", location=location)
        added = parse_rule(rule, verdict, location=location)
        return replace(self, rules=self.rules.having(verdict, (*self.rules.of(verdict), added)))

    def without_rules(self, verdict: Verdict, *, location: str, rule: str | None = None) -> Policy:
        """The same policy without what `with_rule` added from this location: one rule, or all of this kind."""
        rules = self.rules.of(verdict)
        kept = tuple(one for one in rules if one.location != location or (rule is not None and one.text != rule))
        return replace(self, rules=self.rules.having(verdict, kept))

    def suggest_rules(self, request: PermissionRequest, mode: Mode = Mode.DEFAULT) -> tuple[str, ...]:
        """The fewest and narrowest allow rules that together would let this call pass in this mode.

        One for each part that nothing covers. Empty where no rules can: a deny or ask rule speaks of the call, or a
        part of it is only known at run time.
        """
        found = candidates(self.rules, request, mode)
        if not self._allows_with(found, request, mode):
            return ()
        for rule in found:
            fewer = tuple(other for other in found if other != rule)
            if self._allows_with(fewer, request, mode):
                found = fewer
        return found

    def _allows_with(self, rules: Iterable[str], request: PermissionRequest, mode: Mode) -> bool:
        widened = self
        try:
            for rule in rules:
                widened = widened.with_allow(rule)
        except PolicyError:  # words that no rule can spell, such as a quote in a path
            return False
        return widened.decide(request, mode).verdict is Verdict.ALLOW

    def describe(self) -> JsonObject:
        """What applies, for people and for the record: JSON-ready."""
        sandbox = {field: getattr(self.sandbox, field) for field in SANDBOX_KEYS.values()}
        hosts = [entry.as_json() for entry in self.sandbox.allow_hosts]
        return {
            "name": self.name,
            "location": self.location,
            "mode": str(self.mode),
            "rules": {kind: [rule.text for rule in getattr(self.rules, kind)] for kind in ("deny", "ask", "allow")},
            "sandbox": sandbox | {"masks": list(self.sandbox.masks), "allow_hosts": hosts},
            "limits": asdict(self.limits) | {"prices": {name: asdict(price) for name, price in self.prices}},
            "sources": dict(self.sources),
            "locks": dict(self.locks),
            "notes": list(self.notes),
        }
