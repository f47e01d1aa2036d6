"""The create body of a session's container: what the limits of a spec become, and what an image may not bring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox_agent.errors import SandboxStartError
from sandbox_agent.sandboxes.base import MIB
from sandbox_agent.sandboxes.hardening import create_body, write_etc_files
from sandbox_agent.sandboxes.images import Image
from sandbox_agent.sandboxes.spec import SandboxSpec

IMAGE = Image("their/image:1", "sha256:1234", ours=False)


def spec(**changes: Any) -> SandboxSpec:
    return SandboxSpec("/host/project", 1000, 1000, "s1", None, **changes)


def body(image: Image = IMAGE, **changes: Any) -> dict[str, Any]:
    return create_body(spec(**changes), image=image, etc=None, labels={}, nofile=changes.get("nofile", 4096))


def host(image: Image = IMAGE, **changes: Any) -> dict[str, Any]:
    return dict(body(image, **changes)["HostConfig"])


def test_an_image_decides_nothing_about_the_container() -> None:
    """It is named by its content; program, user, health check and folder are ours."""
    made = body()

    assert made["Image"] == "sha256:1234"
    assert (made["Entrypoint"], made["Healthcheck"], made["User"]) == ([], {"Test": ["NONE"]}, "65531:65531")
    assert (made["Cmd"][0], made["WorkingDir"], made["Hostname"]) == ("sleep", "/workspace", "sandbox")


def test_of_an_image_s_environment_stays_what_our_programs_do_not_obey() -> None:
    """What is taken out stands there without a value, and never a variable that is set to one of ours."""
    names = ("PATH", "LD_PRELOAD", "JAVA_HOME", "BASH_ENV", "GIT_PAGER", "GIT_DIR", "HTTPS_PROXY", "http_proxy", "HOME")
    image = Image("their/image:1", "sha256:1", ours=False, env_names=names)
    made = body(image, egress_env={"HTTPS_PROXY": "http://127.0.0.1:1"})["Env"]

    assert [line for line in made if "=" not in line] == ["LD_PRELOAD", "BASH_ENV", "GIT_DIR", "http_proxy"]
    assert {"GIT_PAGER=cat", "HTTPS_PROXY=http://127.0.0.1:1"} <= set(made)


def test_every_limit_of_the_spec_arrives() -> None:
    """Memory is swap, too; nothing is left at the engine's default."""
    made = host(
        memory_bytes=512 * MIB, cpus=1.5, pids=99, nofile=77, fsize_bytes=5 * MIB, shm_bytes=3 * MIB, seccomp="debug"
    )
    limits = {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in made["Ulimits"]}

    assert (made["Memory"], made["MemorySwap"]) == (512 * MIB, 512 * MIB)
    assert (made["NanoCpus"], made["PidsLimit"], made["ShmSize"]) == (1_500_000_000, 99, 3 * MIB)
    assert limits == {
        "core": (0, 0),
        "fsize": (5 * MIB, 5 * MIB),
        "memlock": (65536, 65536),
        "msgqueue": (0, 0),
        "rtprio": (0, 0),
        "nofile": (77, 77),
    }
    assert (made["LogConfig"], made["OomScoreAdj"], made["CapDrop"]) == ({"Type": "none"}, 500, ["ALL"])
    privileges, seccomp = made["SecurityOpt"]
    assert privileges == "no-new-privileges:true"
    assert "ptrace" in json.dumps(json.loads(seccomp.removeprefix("seccomp=")))


@pytest.mark.parametrize(
    ("memory", "tmp", "home"), [(2048, 1024, 512), (1024, 512, 256), (4096, 1024, 512), (256, 128, 64)]
)
def test_what_lies_in_memory_never_fills_it(memory: int, tmp: int, home: int) -> None:
    """/tmp gets half at the most and the home folder a quarter, so that they are full before the memory is."""
    mounts = host(memory_bytes=memory * MIB)["Tmpfs"]

    assert f"size={tmp * MIB},nr_inodes=200000," in mounts["/tmp"]
    assert f"size={home * MIB},nr_inodes=100000," in mounts["/home/agent"]


def test_a_temporary_place_holds_as_much_as_the_spec_says() -> None:
    """In bytes and in files."""
    mounts = host(tmp_bytes=7 * MIB, tmp_files=70, home_bytes=6 * MIB, home_files=60)["Tmpfs"]

    assert mounts["/tmp"] == "rw,nosuid,nodev,exec,size=7340032,nr_inodes=70,mode=1777"
    assert mounts["/home/agent"] == "rw,nosuid,nodev,exec,size=6291456,nr_inodes=60,uid=1000,gid=1000,mode=700"


def test_a_volume_that_an_image_declares_is_a_small_tmpfs() -> None:
    """Not one on the host's disk; where we mount something ourselves, that stays."""
    image = Image("their/db:1", "sha256:5", ours=False, volumes=("/var/lib/db/", "/workspace", "/tmp", "/data"))
    mounts = host(image)["Tmpfs"]

    small = "rw,nosuid,nodev,exec,size=67108864,nr_inodes=5000,mode=1777"
    assert (mounts["/var/lib/db"], mounts["/data"]) == (small, small)
    assert "/workspace" not in mounts
    assert "nr_inodes=200000" in mounts["/tmp"]


@pytest.mark.parametrize(
    "path", ["/", "/workspace/data", "/proc", "/proc/x", "/sys/fs", "/dev/shm", "/etc", "/usr", "data", "/a/../etc"]
)
def test_a_volume_in_the_way_is_refused(path: str) -> None:
    """In one line that names the image and the folder."""
    with pytest.raises(SandboxStartError, match="the image their/db:1 declares a volume at "):
        body(Image("their/db:1", "sha256:5", ours=False, volumes=(path,)))


@pytest.mark.parametrize(
    "changes", [{"nofile": 0}, {"tmp_files": 0}, {"shm_bytes": -1}, {"fsize_bytes": 0}, {"seccomp": "unconfined"}]
)
def test_a_spec_that_would_not_hold_is_refused(changes: dict[str, Any]) -> None:
    """No limit is 0 or less, and no profile is one of somebody else's."""
    with pytest.raises(ValueError, match=r"limits are positive|seccomp 'unconfined' is not one of"):
        spec(**changes)


def test_the_small_files_say_who_and_where(tmp_path: Path) -> None:
    """Readable by all, nothing of the host's in them; the sandbox finds its own name."""
    etc = write_etc_files(SandboxSpec("/host/project", 1000, 1001, "s1", str(tmp_path)))
    assert etc is not None

    assert "agent:x:1000:1001:agent:/home/agent:/bin/bash\n" in Path(etc.passwd).read_text()
    assert "agent:x:1001:\n" in Path(etc.group).read_text()
    assert Path(etc.hosts).read_text() == "127.0.0.1 localhost sandbox\n"
    assert Path(etc.resolv_conf).read_text().startswith("#")
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "etc").iterdir()} == {0o644}
