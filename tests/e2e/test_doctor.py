"""`doctor` and `reap` against the real engine."""

from __future__ import annotations

import json

import pytest
from program import Program, containers_of

pytestmark = pytest.mark.docker

PLANTED = ["fifo", "link", "folder-link", "dotdot", "absolute", "socket"]
ENGINE = ["engine", "users", "seccomp", "cgroup", "runtime", "level", "image"]
BEFORE = ["key", "state", "policy", "egress", *PLANTED, *ENGINE]
INSIDE = ["engine-api", "vsock", "network", "namespace"]
NAMES = [*BEFORE, "sandbox", "isolation", "transport", "as-asked", "forwarder", *INSIDE, "workspace", "disk"]


def test_doctor_tries_a_container_and_says_how_it_is_isolated(program: Program) -> None:
    """Every check has its entry, the gate of a policy that lists hosts among them; nothing is left on the engine."""
    own = program.home / "config" / "sandbox-agent" / "policy.yaml"
    own.parent.mkdir(parents=True)
    mirror = "{host: b.example.org, port: 80, allow_private: true}"
    own.write_text(f'sandbox: {{allow_hosts: ["a.example.org:443", {mirror}]}}\n')
    ended = program.call("doctor", "--json")
    checks = {check["name"]: check for check in ended.document["checks"]}

    assert (ended.code, ended.document["ok"], ended.stderr) == (0, True, "")
    assert list(checks) == NAMES
    assert checks["key"]["level"] == "warn"
    assert "/docker.sock" in checks["engine"]["text"]
    assert "network by the gate only" in checks["isolation"]["text"]
    assert "open through the gate: a.example.org:443, b.example.org:80 (private) (no" in checks["egress"]["text"]
    assert {checks[name]["level"] for name in (*PLANTED, "egress", "as-asked", "forwarder", *INSIDE)} == {"ok"}
    assert checks["level"]["text"].count("; ") == 4


def test_doctor_for_people_is_one_line_a_check(program: Program) -> None:
    """--quick starts nothing and says so."""
    ended = program.call("doctor", "--quick")
    lines = ended.stdout.splitlines()

    assert ended.code == 0
    assert [line.split()[1] for line in lines if not line.startswith(" ")] == [*BEFORE, "sandbox"]
    assert "\x1b" not in ended.stdout
    assert "egress      no network: the policy lists no host" in ended.stdout


@pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "--json"], ["reap"]])
def test_without_an_engine_the_exit_code_is_5(program: Program, arguments: list[str]) -> None:
    """And the one line says where it was looked for."""
    ended = program.call(*arguments, DOCKER_HOST="unix:///nonexistent.sock")

    assert ended.code == 5
    assert "/nonexistent.sock" in ended.stdout + ended.stderr


def test_doctor_names_a_missing_image_and_the_remedy(program: Program) -> None:
    """No container is tried then."""
    ended = program.call("doctor", "--json", "--image", "no/such:image")
    last = ended.document["checks"][-1]

    assert (ended.code, last["name"], last["level"]) == (5, "image", "fail")
    assert "no/such:image is missing" in last["text"]


def test_doctor_never_shows_the_key(program: Program) -> None:
    """It says where the key comes from."""
    ended = program.call("doctor", "--quick", ANTHROPIC_API_KEY="CANARY-KEY")

    assert "from ANTHROPIC_API_KEY" in ended.stdout
    assert "CANARY-KEY" not in ended.stdout + ended.stderr


def test_reap_removes_what_a_killed_run_left(program: Program) -> None:
    """Kill -9 leaves the container and a record that tells as far as it goes; reap names and removes the container."""
    # Any other start on the same engine reaps as well, and may be sooner: then there was nothing left to name.
    for _ in range(4):
        process = program.sleeping()
        process.kill()
        process.communicate()
        newest = json.loads(program.call("sessions", "list", "--json").stdout.splitlines()[0])
        session = newest["session_id"]
        left = containers_of(session)
        reaped = program.call("reap")
        if left and f"removed container {left[0]}" in reaped.stdout:
            break
    else:
        pytest.fail(f"reap named no container: {reaped.stdout}")

    assert newest["status"] == "unfinished"
    assert reaped.code == 0
    assert containers_of(session) == []
