"""What `doctor` makes of an engine's answers, of a container's, and of what a hostile folder holds."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from sandbox_agent.cli.egress_check import check_egress
from sandbox_agent.cli.host_checks import check_planted
from sandbox_agent.cli.isolation import check_exposure, check_runtime, level, old_runc
from sandbox_agent.errors import SandboxStartError
from sandbox_agent.hostnames import entry_of
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.sandboxes.endpoint import Endpoint
from sandbox_agent.sandboxes.engine import Engine
from sandbox_agent.sandboxes.facts import EngineFacts, facts_from
from sandbox_agent.sandboxes.inspection import deviations_in
from sandbox_agent.sandboxes.podman import adapt

INFO: dict[str, Any] = {
    "ServerVersion": "28.0.0",
    "OSType": "linux",
    "Architecture": "x86_64",
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=userns", "name=cgroupns"],
    "CgroupVersion": "2",
    "Runtimes": {"runsc": {}, "runc": {}},
    "KernelVersion": "6.12.1",
    "OperatingSystem": "Debian GNU/Linux 13",
    "DefaultRuntime": "runc",
}
VERSION = {"Components": [{"Name": "Engine", "Version": "28.0.0"}, {"Name": "runc", "Version": "1.3.3"}]}


def facts(**changes: Any) -> EngineFacts:
    return facts_from({**INFO, **changes}, VERSION)


def test_the_level_is_one_line_with_everything_in_it() -> None:
    """Runtime and kernel, users, filter, security modules, control groups."""
    assert level(facts(), SandboxSettings()) == (
        "runc 1.3.3: kernel 6.12.1 shared with the machine; userns-remap; seccomp default; AppArmor; cgroup v2"
    )


@pytest.mark.parametrize(
    ("changes", "settings", "words"),
    [
        ({"SecurityOptions": ["name=rootless"]}, {}, ["rootless engine", "NO seccomp", "no AppArmor, no SELinux"]),
        ({"SecurityOptions": ["name=seccomp", "name=selinux"]}, {}, ["uids not remapped", "SELinux"]),
        ({}, {"runtime": "runsc"}, ["gVisor (runsc)"]),
        ({}, {"runtime": "kata-runtime"}, ["a virtual machine for each sandbox"]),
        ({"OperatingSystem": "Docker Desktop"}, {}, ["shared with the engine's virtual machine"]),
        ({}, {"seccomp": "debug"}, ["seccomp debug"]),
    ],
)
def test_the_level_tells_other_engines_apart(
    changes: dict[str, Any], settings: dict[str, Any], words: list[str]
) -> None:
    """Each by what the engine says of itself and the policy asks for."""
    line = level(facts(**changes), SandboxSettings(**settings))

    assert [word for word in words if word not in line] == []


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("1.0.0-rc93", True),
        ("1.1.5+ds1", True),
        ("1.1.14", True),
        ("1.2.7", True),
        ("1.2.8", False),
        ("1.2.10", False),
        ("1.3.2", True),
        ("1.3.3", False),
        ("1.4.0", False),
        ("2.0", False),
        ("unknown", True),
    ],
)
def test_an_old_runc_is_known_by_its_series(version: str, old: bool) -> None:
    """Each series has its own fixed version."""
    assert old_runc(version) is old


def test_a_runtime_that_the_engine_has_not_is_a_failure_with_a_remedy() -> None:
    """Before any container is tried."""
    check = check_runtime(facts(Runtimes={"runc": {}}), "runsc")

    assert (check.level, check.name) == ("fail", "runtime")
    assert "the engine has runc" in check.text


def test_a_runtime_that_is_there_and_new_is_fine() -> None:
    """With its version where the engine tells it."""
    assert check_runtime(facts(), "runc").text == "runc 1.3.3"
    assert check_runtime(facts(), "runsc").level == "ok"


def test_podman_is_called_podman() -> None:
    """By the components that its socket names."""
    assert facts_from(INFO, {"Components": [{"Name": "Podman Engine", "Version": "4.3.1"}]}).product == "Podman"


@pytest.mark.parametrize(("url", "warns"), [("tcp://10.0.0.5:2375", True), ("unix:///run/docker.sock", False)])
def test_an_engine_that_anybody_may_reach_is_warned_of(url: str, warns: bool) -> None:
    """TCP without TLS."""
    assert (check_exposure(Endpoint(url, "DOCKER_HOST")) is not None) is warns


def test_nothing_planted_in_a_folder_is_opened() -> None:
    """A FIFO does not make it wait either."""
    checks = list(check_planted())

    assert [check.name for check in checks] == ["fifo", "link", "folder-link", "dotdot", "absolute", "socket"]
    assert {check.level for check in checks} == {"ok"}


GOOD: dict[str, Any] = {
    "Config": {"User": "65531:65531"},
    "HostConfig": {
        "Privileged": False,
        "CapAdd": None,
        "CapDrop": ["ALL"],
        "ReadonlyRootfs": True,
        "NetworkMode": "none",
        "PidMode": "",
        "UTSMode": "",
        "IpcMode": "private",
        "Devices": [],
        "Binds": None,
        "PublishAllPorts": False,
        "SecurityOpt": ["no-new-privileges:true", "seccomp={}"],
    },
    "Mounts": [{"Type": "bind", "Source": "/home/me/project", "Destination": "/workspace"}],
}


def test_a_container_made_as_asked_has_no_deviations() -> None:
    """The engine's own spelling of nothing included."""
    assert deviations_in(GOOD) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Privileged", True),
        ("CapAdd", ["SYS_ADMIN"]),
        ("CapDrop", None),
        ("NetworkMode", "bridge"),
        ("PidMode", "host"),
        ("Devices", [{"PathOnHost": "/dev/sda"}]),
        ("SecurityOpt", ["no-new-privileges:true", "seccomp=unconfined"]),
        ("SecurityOpt", ["seccomp={}"]),
        ("SecurityOpt", ["no-new-privileges:false", "seccomp={}"]),
    ],
)
def test_what_the_engine_made_otherwise_is_named(name: str, value: object) -> None:
    """One thing changed, one deviation."""
    changed = copy.deepcopy(GOOD)
    changed["HostConfig"][name] = value

    assert len(deviations_in(changed)) == 1


@pytest.mark.parametrize("source", ["/", "/var/run/docker.sock", "/var/lib/docker/", "/home"])
def test_a_mount_that_must_never_be_is_named(source: str) -> None:
    """Whoever put it there."""
    changed = {**GOOD, "Mounts": [{"Type": "bind", "Source": source, "Destination": "/x"}]}

    assert len(deviations_in(changed)) == 1


def test_a_create_body_is_put_in_podmans_terms(tmp_path: Path) -> None:
    """The filter goes into a file, masks into an option, and tmpfs loses what it does not know."""
    engine = Engine(Endpoint("tcp://127.0.0.1:1", "test"), "1.41", podman=True)
    host: dict[str, Any] = {
        "SecurityOpt": ["no-new-privileges:true", "seccomp={}"],
        "MaskedPaths": ["/proc/keys", "/sys/devices/pci0000:00", "/sys/kernel"],
        "Tmpfs": {"/tmp": "rw,size=1,nr_inodes=5,mode=1777", "/home/agent": "rw,uid=7,gid=7,mode=700"},
        "Ulimits": [],
    }
    body = {"Env": ["HOME=/home/agent", "LANG=C.UTF-8"], "HostConfig": host}
    adapt(engine, body, str(tmp_path))
    engine.close()

    assert host["SecurityOpt"] == [
        "no-new-privileges",
        f"seccomp={tmp_path}/etc/seccomp.json",
        "mask=/proc/keys:/sys/kernel",
    ]
    assert (tmp_path / "etc" / "seccomp.json").read_text() == "{}"
    assert host["Tmpfs"] == {
        "/tmp": "rw,size=1,mode=1777",
        "/home/agent": "rw,mode=700",
    }
    assert body["Env"] == ["HOME=/tmp", "LANG=C.UTF-8"]


def test_podman_that_sees_none_of_our_files_gets_no_sandbox_without_a_filter() -> None:
    """It is refused, in one line."""
    engine = Engine(Endpoint("tcp://127.0.0.1:1", "test"), "1.41", podman=True)
    with pytest.raises(SandboxStartError, match="filter of system calls"):
        adapt(engine, {"HostConfig": {}}, None)
    engine.close()


def test_what_the_policy_opens_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing, hosts with those of groups, or why the gate cannot be made; without asking any of them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("npm_config_registry", "https://me:s3cret@n.example/")
    closed = check_egress(SandboxSettings())
    assert (closed.check.level, closed.plan) == ("ok", None)
    assert "no network" in closed.check.text

    listed = tuple(entry_of(one) for one in ("a.org:443", "@node", *(f"h{n}.org:80" for n in range(9))))
    opened = check_egress(SandboxSettings(allow_hosts=listed, egress_bytes=5))
    assert opened.plan is not None
    assert "a.org:443, n.example:443, h0.org:80" in opened.check.text
    assert "h7.org:80 and 1 more (5 bytes in all" in opened.check.text
    assert "s3cret" not in opened.check.text

    monkeypatch.setenv("ALL_PROXY", "socks5://x:1")
    failing = check_egress(SandboxSettings(allow_hosts=listed))
    assert (failing.check.level, failing.plan) == ("fail", None)
    assert "is no http:// or https:// proxy" in failing.check.text
