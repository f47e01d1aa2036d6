"""The container around the calls: who runs as what, who owns what, what is left of it, and how its death is told."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import docker
import pytest
from sandbox_rig import UID, Rig, endpoint, rig, spec

from sandbox_agent.errors import SandboxDiedError, SandboxStartError, SandboxUnavailableError
from sandbox_agent.sandboxes.docker import create

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with rig(tmp_path_factory.mktemp("box")) as made:
        yield made


async def bash(box: Rig, script: str) -> str:
    """stdout and stderr of a script that succeeds, without the last line end."""
    result = await box.sandbox.exec(["bash", "-c", script], merge_stderr=True)
    assert result.exit_code == 0, result.stdout
    return result.stdout.decode().rstrip("\n")


async def test_tools_run_as_a_named_user_with_a_home(box: Rig) -> None:
    """`id` prints a name, HOME can be written."""
    said = await bash(box, "id -u; id -g; id -un; id -gn; echo $HOME; touch $HOME/t && ls $HOME")

    assert said.split() == [str(UID), str(UID), "agent", "agent", "/home/agent", "t"]


async def test_files_belong_to_the_tools_user_on_the_host(box: Rig) -> None:
    """Whether a command or the file verb made them, folders included."""
    await bash(box, "mkdir d && echo x > d/by_bash")
    await box.sandbox.replace_file("/workspace/d/e/by_write", b"x", expected_sha256=None)

    names = ("d", "d/by_bash", "d/e", "d/e/by_write")
    assert {name: (box.workspace / name).stat().st_uid for name in names} == dict.fromkeys(names, UID)
    assert {name: (box.workspace / name).stat().st_gid for name in names} == dict.fromkeys(names, UID)


async def test_ended_children_are_reaped(box: Rig) -> None:
    """No zombie stays, and the first process is an init."""
    script = (
        "for i in $(seq 20); do (sleep 0.2 & ); done; sleep 1; ps -eo stat= | grep -c '^Z' || true; cat /proc/1/comm"
    )

    assert (await bash(box, script)).split() == ["0", "docker-init"]


async def test_the_measures_hold_inside(box: Rig) -> None:
    """As the kernel tells a tool's process about itself."""
    said = await bash(box, "grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status")
    values = dict(line.split(":\t") for line in said.splitlines())

    none = "0" * 16
    assert values == {
        **{name: none for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")},
        "NoNewPrivs": "1",
        "Seccomp": "2",
    }


@pytest.mark.parametrize(
    "script",
    [
        "touch /etc/x",
        "touch /usr/bin/x",
        "echo x >> /etc/passwd",
        "kill -9 1",
        "kill -9 $(pgrep -x sleep -u 65531)",
        "mount -t tmpfs x /mnt",
        "cat /proc/kcore",
        "echo b > /proc/sysrq-trigger",
        "ping -c1 -W1 127.0.0.2",
        "ls /sys/fs/cgroup/memory/../../../../../proc/1/root",
        "timeout 2 bash -c 'echo > /dev/tcp/1.1.1.1/53'",
    ],
)
async def test_what_tools_cannot_do(box: Rig, script: str) -> None:
    """Fails, and the sandbox goes on."""
    result = await box.sandbox.exec(["bash", "-c", script])

    assert result.exit_code != 0


async def test_only_the_loopback_interface_is_there(box: Rig) -> None:
    """Network none."""
    assert await bash(box, "ls /sys/class/net") == "lo"


async def test_temporary_places_are_bounded(box: Rig) -> None:
    """In bytes and in files."""
    said = await bash(box, "df --output=target,size,itotal /tmp $HOME /var/tmp /run | tail -n +2 | tr -s ' '")

    assert said.splitlines() == [
        "/tmp 1048576 200000",
        "/home/agent 524288 100000",
        "/var/tmp 65536 5000",
        "/run 8192 5000",
    ]


async def test_nothing_of_the_hosts_resolver_comes_in(box: Rig) -> None:
    """The file is ours."""
    assert await bash(box, "cat /etc/resolv.conf") == "# This sandbox has no network."


async def test_editors_and_pagers_do_not_wait(box: Rig) -> None:
    """A rebase fails and leaves no trace, an amend keeps the message."""
    made = "git init -q r && cd r && git config user.email a@b && git config user.name n"
    await bash(box, f"{made} && for i in 1 2 3; do echo $i > f && git add f && git commit -qm $i; done")
    rebase = await box.sandbox.exec(["git", "rebase", "-i", "HEAD~2"], cwd="/workspace/r", timeout_s=15)

    assert (rebase.exit_code != 0, rebase.timed_out) == (True, False)
    assert await bash(box, "cd r && git status | grep -c rebase || git log --format=%s | paste -sd,") == "0\n3,2,1"
    assert await bash(box, "cd r && git commit --amend >/dev/null && git log -1 --format=%s") == "3"


async def test_a_masked_file_reads_empty(tmp_path: Path) -> None:
    """For every program; the host's file stays."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / ".env").write_text("SECRET=1")
    async with rig(tmp_path, masks=("/workspace/.env",)) as box:
        assert await bash(box, "cat .env | wc -c; cat .env > copy; wc -c < copy") == "0\n0"
        assert (await box.sandbox.exec(["rm", "-f", ".env"])).exit_code != 0
    assert (tmp_path / "workspace" / ".env").read_text() == "SECRET=1"


async def test_a_killed_container_is_told_to_open_and_later_calls(tmp_path: Path) -> None:
    """With the exit code; a stream too."""
    deaths: list[SandboxDiedError] = []
    async with rig(tmp_path) as box:
        stream = await box.sandbox.open(["cat"])

        async def waiting() -> None:
            with pytest.raises(SandboxDiedError) as caught:
                await box.sandbox.exec(["bash", "-c", "touch running; sleep 300"])
            deaths.append(caught.value)

        async def listening() -> None:
            with pytest.raises(SandboxDiedError) as caught:
                await stream.receive()
            deaths.append(caught.value)

        async with anyio.create_task_group() as group:
            group.start_soon(waiting)
            group.start_soon(listening)
            await box.until("running")
            await anyio.to_thread.run_sync(box.client.kill, box.info.id)
        for work in (box.sandbox.exec(["true"]), box.sandbox.read_file("/etc/passwd"), box.sandbox.open(["cat"])):
            with pytest.raises(SandboxDiedError) as caught:
                await work
            deaths.append(caught.value)
        await stream.aclose()

    assert [(death.container_exit_code, death.oom_killed) for death in deaths] == [(137, False)] * 5
    assert "killed from outside" in str(deaths[0])


async def test_a_killed_container_is_told_without_a_runner_too(tmp_path: Path) -> None:
    """The same error."""
    async with rig(tmp_path, transport="exec") as box:
        await anyio.to_thread.run_sync(box.client.kill, box.info.id)
        with pytest.raises(SandboxDiedError) as caught:
            await box.sandbox.exec(["true"])

    assert caught.value.container_exit_code == 137


async def test_memory_has_a_limit_and_it_is_told(tmp_path: Path) -> None:
    """The call says what killed its program; the next works."""
    async with rig(tmp_path, memory_bytes=96 * 1024 * 1024) as box:
        greedy = await box.sandbox.exec(["python3", "-c", "print('up', flush=True); x = bytearray(400_000_000)"])
        after = await box.sandbox.exec(["echo", "after"])

    assert (greedy.exit_code, greedy.stdout, greedy.oom_killed) == (137, b"up\n", True)
    assert (after.stdout, after.oom_killed) == (b"after\n", False)


async def test_nothing_is_left_after_close(tmp_path: Path) -> None:
    """Close removes the container, and may be called again."""
    async with rig(tmp_path) as box:
        await box.sandbox.close()
        await box.sandbox.close()
        left = box.client.containers(
            all=True, filters={"label": f"sandbox-agent.session={box.sandbox.spec.session_id}"}
        )

        assert left == []
        with pytest.raises(SandboxDiedError, match="closed"):
            await box.sandbox.exec(["true"])


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    """Whatever was made by then is removed by close."""
    made = spec(tmp_path)
    sandbox = create(made, endpoint())
    with anyio.move_on_after(0.15):
        await sandbox.start()
    await sandbox.close()
    async with rig(tmp_path) as box:
        left = box.client.containers(all=True, filters={"label": f"sandbox-agent.session={made.session_id}"})

    assert left == []


@pytest.mark.parametrize("after_s", [0.02, 0.03, 0.04])
async def test_a_close_from_elsewhere_leaves_nothing_of_a_start(tmp_path: Path, after_s: float) -> None:
    """The start is cancelled, but a container that the engine is making at that moment must go, too."""
    made = spec(tmp_path)
    sandbox = create(made, endpoint())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.start)
        await anyio.sleep(after_s)
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await sandbox.close()
    async with rig(tmp_path) as box:
        left = box.client.containers(all=True, filters={"label": f"sandbox-agent.session={made.session_id}"})

    assert left == []


async def test_a_missing_image_says_how_to_get_it(tmp_path: Path) -> None:
    """One line, and no container."""
    sandbox = create(spec(tmp_path, image="sandbox-agent-none:latest"), endpoint())
    with pytest.raises(SandboxUnavailableError) as caught:
        await sandbox.start()
    await sandbox.close()

    assert str(caught.value).startswith("the image sandbox-agent-none:latest is missing on the engine at ")
    assert str(caught.value).endswith("get it with `docker pull sandbox-agent-none:latest`")


async def test_an_image_brings_neither_volumes_nor_programs_that_start(tmp_path: Path) -> None:
    """What it declares as a volume is a small tmpfs; its entry point, health check and user count for nothing."""
    client = docker.APIClient(base_url=endpoint().url, version="auto")
    changes = ["VOLUME /var/lib/data", 'ENTRYPOINT ["false"]', "HEALTHCHECK CMD false", "USER 0"]
    made = client.create_container("sandbox-agent/base:latest", "true")
    name = f"sandbox-agent-test/volumes-{os.getpid()}"
    try:
        client.commit(made["Id"], name, changes="\n".join(changes))
        async with rig(tmp_path, image=name) as box:
            inspected = await box.inspect()
            sizes = await bash(box, "df --output=size,itotal /var/lib/data | tail -n 1; touch /var/lib/data/x")
    finally:
        client.remove_container(made["Id"], v=True, force=True)
        client.remove_image(name, force=True)
        client.close()

    assert sizes.split() == ["65536", "5000"]
    assert {mount["Type"] for mount in inspected["Mounts"]} == {"bind"}
    assert inspected["Config"]["Entrypoint"] in (None, [])
    assert inspected["State"].get("Health") is None


async def test_a_workspace_that_is_not_there_fails_the_start(tmp_path: Path) -> None:
    """With what the engine says about it."""
    sandbox = create(spec(tmp_path, workspace_source=str(tmp_path / "none")), endpoint())
    with pytest.raises(SandboxStartError, match="none"):
        await sandbox.start()
    await sandbox.close()


async def test_the_start_says_what_the_sandbox_is(box: Rig) -> None:
    """For people and the record."""
    info = box.info

    assert (info.image, info.transport, info.uid, info.gid) == ("sandbox-agent/base:latest", "runner", UID, UID)
    assert f"no network, uid {UID}" in info.isolation
    assert os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock") in info.details["endpoint"]


async def test_more_processors_than_there_are_is_all_there_are(tmp_path: Path) -> None:
    """A policy written for a large machine works on a small one, and says so."""
    async with rig(tmp_path, cpus=1000.0) as box:
        made = box.client.inspect_container(box.info.id)["HostConfig"]["NanoCpus"]
        there = box.client.info()["NCPU"]

    assert made == there * 10**9
    assert box.info.notes == (f"1000 processors are allowed, and the engine has {there}",)
