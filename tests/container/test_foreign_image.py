"""An image that somebody else made to change what our programs do: its environment, and programs with set-id bits."""

from __future__ import annotations

import io
import platform
import secrets
import struct
import tarfile
from collections.abc import AsyncIterator, Iterator

import docker
import pytest
from sandbox_rig import UID, Rig, endpoint, rig

from sandbox_agent.sandboxes.program import TOOLBOX

pytestmark = pytest.mark.docker

EVIL = {
    "LD_PRELOAD": "/evil.so",
    "LD_LIBRARY_PATH": "/evil",
    "LD_AUDIT": "/evil.so",
    "BASH_ENV": "/evil.sh",
    "ENV": "/evil.sh",
    "SHELLOPTS": "xtrace",
    "BASH_FUNC_cat%%": "() { echo EVIL; }",
    "GIT_DIR": "/evil",
    "GIT_CONFIG_KEY_1": "core.pager",
    "GIT_EXEC_PATH": "/evil",
    "GLIBC_TUNABLES": "glibc.malloc.check=3",
    "RIPGREP_CONFIG_PATH": "/evil",
    "http_proxy": "http://192.0.2.1:1",
    "HTTPS_PROXY": "http://192.0.2.1:1",
    "SANDBOX_AGENT_CALL": "evil",
}
OVERRIDDEN = {"PATH": "/evil", "HOME": "/evil", "GIT_PAGER": "evil", "LC_ALL": "xx", "GIT_CONFIG_COUNT": "2"}
KEPT = {"JAVA_HOME": "/usr/java", "PYTHONPATH": "/usr/app", "PYTHONHOME": "/nowhere", "NODE_OPTIONS": "--no-warnings"}

# exit(geteuid() == 0 || getegid() == 0 ? 0 : 77), the smallest program that says as whom it runs
_CODE = bytes.fromhex(
    "b86b0000000f05 85c0 7412"  # geteuid, to the end where it is 0
    "b86c0000000f05 85c0 7407"  # getegid, the same
    "bf4d000000 eb02 31ff b83c0000000f05"
)


def _program() -> bytes:
    base, offset = 0x400000, 64 + 56
    size = offset + len(_CODE)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        *(2, 62, 1, base + offset, 64, 0, 0, 64, 56, 1, 0, 0, 0),
    )
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000) + _CODE


@pytest.fixture(scope="module")
def client() -> Iterator[docker.APIClient]:
    made = docker.APIClient(base_url=endpoint().url, version="auto")
    yield made
    made.close()


@pytest.fixture(scope="module")
def image(client: docker.APIClient) -> Iterator[str]:
    """With nothing in it but two programs of root's with set-id bits, and a text for each shell to read first."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in ("etc", "usr", "usr/bin"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        for name, mode, text in (
            ("usr/bin/as-root", 0o4755, _program()),
            ("usr/bin/as-group", 0o2755, _program()),
            ("usr/bin/as-me", 0o755, _program()),
            ("evil.sh", 0o755, b"echo EVIL\n"),
        ):
            file = tarfile.TarInfo(name)
            file.mode, file.size = mode, len(text)
            archive.addfile(file, io.BytesIO(text))
    repository, tag = "sandbox-agent-test/foreign", secrets.token_hex(6)
    changes = [f'ENV "{name}"="{value}"' for name, value in (EVIL | OVERRIDDEN | KEPT).items()]
    client.import_image_from_data(data.getvalue(), repository=repository, tag=tag, changes=changes)
    yield f"{repository}:{tag}"
    client.remove_image(f"{repository}:{tag}", force=True)


@pytest.fixture(scope="module")
async def box(image: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with rig(tmp_path_factory.mktemp("foreign"), image=image) as made:
        assert made.info.details["transport"].endswith(f"{TOOLBOX}/bin/python3")
        yield made


async def test_what_would_change_our_programs_does_not_come_in(box: Rig) -> None:
    """Neither to tools, nor to hooks, nor to what runs as the main user; what is the image's own matter does."""
    tools = await box.sandbox.exec(["env"])
    shell = await box.sandbox.exec(["bash", "-c", "cat /dev/null; echo plain"])
    hooks = await box.sandbox.exec_apart(["env"])
    main = await box.sandbox.open_as_main([f"{TOOLBOX}/bin/env"])
    said = b""
    while data := await main.receive():
        said += data
    await main.aclose()

    found = dict(line.split("=", 1) for line in tools.stdout.decode().splitlines())
    assert found | KEPT == found
    assert not EVIL.keys() & found.keys()
    assert all(found[name] != value for name, value in OVERRIDDEN.items())
    assert (shell.stdout, shell.stderr) == (b"plain\n", b"")
    assert {line.split("=")[0] for line in hooks.stdout.decode().splitlines()} == {"PATH", "LANG", "HOME"}
    assert not EVIL.keys() & {line.split("=")[0] for line in said.decode().splitlines()}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program is of that machine")
async def test_set_id_bits_of_an_image_do_nothing(box: Rig, image: str) -> None:
    """They are there, and would work in a container without our measures."""
    inside = [await box.sandbox.exec([name]) for name in ("as-root", "as-group", "as-me")]
    assert [ended.exit_code for ended in inside] == [77, 77, 77]

    codes = []
    for name in ("as-root", "as-group", "as-me"):
        made = box.client.create_container(image, command=[f"/usr/bin/{name}"], user=f"{UID}:{UID}")
        box.client.start(made["Id"])
        codes.append(box.client.wait(made["Id"])["StatusCode"])
        box.client.remove_container(made["Id"], force=True)
    assert codes == [0, 0, 77]
