"""What `doctor` says of the engine: who a uid is outside, how old its parts are, what level of isolation it all is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox_agent.cli.checks import Check
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.sandboxes.facts import EngineFacts

_FIXED_RUNC = ((1, 2, 8), (1, 3, 3))
"""The first versions without the known ways out: CVE-2024-21626 (a leaked descriptor, 1.1.12), and CVE-2025-31133,
-52565, -52881 (masked paths redirected while a container is made)."""

_GVISOR = "runsc"


def describe_isolation(facts: EngineFacts, settings: SandboxSettings) -> Iterator[Check]:
    """A check for each thing that the engine adds to our hardening, and one line for all of it together."""
    yield Check("users", "ok", _users(facts))
    if facts.seccomp:
        yield Check("seccomp", "ok", f"the engine filters system calls; sessions get our profile {settings.seccomp!r}")
    else:
        todo = "use a kernel and an engine built with seccomp"
        yield Check("seccomp", "fail", "the engine cannot filter system calls", todo)
    yield Check("cgroup", "ok", f"version {facts.cgroup_version}; runtimes {', '.join(facts.runtimes)}")
    yield check_runtime(facts, settings.runtime)
    yield Check("level", "ok", level(facts, settings))


def check_runtime(facts: EngineFacts, wanted: str) -> Check:
    """Whether the engine has the policy's runtime, and whether that is an old runc."""
    if facts.runtimes and wanted not in facts.runtimes:
        text = f"the policy asks for {wanted!r}, and the engine has {', '.join(facts.runtimes)}"
        return Check("runtime", "fail", text, "set sandbox.runtime to one of them, or add it to the engine")
    version = facts.version_of("runc") if wanted == "runc" else None
    if version is None:
        return Check("runtime", "ok", wanted)
    if not old_runc(version):
        return Check("runtime", "ok", f"runc {version}")
    text = (
        f"runc {version} is older than the fixes of known ways out (1.2.8, 1.3.3), unless your distribution has put "
        "them into it; sessions give none of those ways an opening: no mount or folder is chosen from inside"
    )
    return Check("runtime", "warn", text, "update runc (often part of containerd.io)")


def old_runc(version: str) -> bool:
    """Whether a version of runc is before the fixes; one that cannot be read counts as old."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if found is None:
        return True
    numbers = (int(found[1]), int(found[2]), int(found[3] or 0))
    older, newer = _FIXED_RUNC
    return numbers < (newer if numbers[:2] >= newer[:2] else older)


def check_exposure(endpoint: Endpoint) -> Check | None:
    """Whether others than its user may reach the engine itself; None where the address says nothing of it."""
    if endpoint.url.startswith("tcp://") and endpoint.tls is None:
        text = f"{endpoint} is without TLS: whoever reaches that address is root on the engine's machine"
        return Check("exposure", "warn", text, "use a local socket, or TLS (DOCKER_TLS_VERIFY, DOCKER_CERT_PATH)")
    return None


def level(facts: EngineFacts, settings: SandboxSettings) -> str:
    """The real level of isolation in one line."""
    runtime = settings.runtime
    if runtime.startswith(_GVISOR):
        kernel = f"gVisor ({runtime}): a kernel of its own for each sandbox, on kernel {facts.kernel}"
    elif "kata" in runtime:
        kernel = f"{runtime}: a virtual machine for each sandbox"
    else:
        version = facts.version_of(runtime)
        shared = "shared with the engine's virtual machine" if _in_machine(facts) else "shared with the machine"
        kernel = f"{runtime}{f' {version}' if version else ''}: kernel {facts.kernel} {shared}"
    modules = [name for name, there in (("AppArmor", facts.apparmor), ("SELinux", facts.selinux)) if there]
    return "; ".join(
        (
            kernel,
            "rootless engine" if facts.rootless else "userns-remap" if facts.userns_remap else "uids not remapped",
            f"seccomp {settings.seccomp}" if facts.seccomp else "NO seccomp",
            " and ".join(modules) or "no AppArmor, no SELinux",
            f"cgroup v{facts.cgroup_version}",
        )
    )


def _in_machine(facts: EngineFacts) -> bool:
    return any(name in facts.system for name in ("Docker Desktop", "OrbStack", "Rancher", "Colima"))


def _users(facts: EngineFacts) -> str:
    if facts.rootless:
        return "rootless: root in a container would be an ordinary user of this machine"
    if facts.userns_remap:
        return "userns-remap: root in a container would be a uid without rights on this machine"
    return "not remapped: a uid in a container is that uid of this machine; tools run as the folder's owner, never 0"
