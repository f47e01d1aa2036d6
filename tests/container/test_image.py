"""The base image: what must be in it, what must not, and that it is built again only when its recipe changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

IMAGES = Path(__file__).parents[2] / "images"
BASE = "sandbox-agent/base:latest"

READ_OWN_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.argv[1], "-I", "-S", "-c", "print(flush=True); input()"],
                         env={"TOKEN": "in-memory"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
for name in ("environ", "mem", "maps"):
    try:
        with open(f"/proc/{child.pid}/{name}", "rb"):
            print(name, "open")
    except PermissionError:
        print(name, "refused")
child.kill()
"""
"""Starts the named interpreter with the caller's uid and reports what of it the caller can open."""


def docker(*args: str) -> str:
    """Runs the Docker client; returns its output without the last line break, fails on a non-zero exit code."""
    done = subprocess.run(["docker", *args], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"docker {args[0]}: {done.stderr}"
    return done.stdout.rstrip("\n")


def build(images: Path, *names: str) -> str:
    """Runs the build script of a folder of images; returns what it printed."""
    argv = [str(images / "build.sh"), *names]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def label(image: str, name: str) -> str:
    """The value of a label of an image, empty where it has none."""
    return docker("image", "inspect", "--format", f'{{{{index .Config.Labels "{name}"}}}}', image)


@pytest.fixture(scope="module")
def base() -> str:
    """The image of this source tree, built if it is not there yet."""
    build(IMAGES, "base")
    return BASE


@pytest.fixture(scope="module")
def container(base: str) -> Iterator[str]:
    """A container without network and capabilities in which commands run as uid 1000."""
    options = [
        "--network=none",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--read-only",
        "--tmpfs=/tmp",
        "--user=1000:1000",
    ]
    name = docker("run", "--detach", "--init", "--label=sandbox-agent.test=image", *options, base, "sleep", "600")
    yield name
    docker("rm", "--force", name)


def test_no_file_has_a_set_uid_or_set_gid_bit(base: str) -> None:
    """Not one program in the image can raise the rights of who starts it, not even without no-new-privileges."""
    # As root with the usual capabilities, so that no folder is closed to the search.
    assert docker("run", "--rm", "--network=none", base, "find", "/", "-xdev", "-perm", "/6000") == ""


@pytest.mark.parametrize(
    "program",
    ["bash", "cat", "timeout", "ps", "pkill", "git", "rg", "python3", "find", "xargs", "patch", "diff", "qpdf"],
)
def test_program_is_there(container: str, program: str) -> None:
    """What tools, runner and tests of a project call can be found on the image's PATH."""
    assert docker("exec", container, "bash", "-c", 'command -v "$1"', "bash", program).endswith(f"/{program}")


def test_python_has_pytest_without_a_network(container: str) -> None:
    """The tests of a project can run in a container that has no network."""
    assert docker("exec", container, "python3", "-m", "pytest", "--version").startswith("pytest ")


def test_interpreter_is_unreadable_and_owned_by_root(container: str) -> None:
    """The copy that the runner uses can be started and not read."""
    shown = docker("exec", container, "stat", "-c", "%a %U:%G %F", "/usr/lib/sandbox-agent/python3")
    assert shown == "711 root:root regular file"


@pytest.mark.parametrize(
    ("interpreter", "outcome"), [("/usr/lib/sandbox-agent/python3", "refused"), ("/usr/bin/python3", "open")]
)
def test_process_of_the_unreadable_interpreter_cannot_be_inspected(
    container: str, interpreter: str, outcome: str
) -> None:
    """A process of the same uid opens neither environment nor memory of it; of the usual interpreter it opens both."""
    seen = docker("exec", container, "/usr/bin/python3", "-c", READ_OWN_CHILD, interpreter)
    assert seen.splitlines() == [f"environ {outcome}", f"mem {outcome}", f"maps {outcome}"]


def test_git_accepts_the_workspace_of_another_owner(container: str) -> None:
    """Git works in /workspace although the mounted folder may belong to another uid."""
    assert docker("exec", container, "git", "config", "--system", "--get-all", "safe.directory") == "/workspace"


def test_text_is_utf_8(container: str) -> None:
    """Programs read and write UTF-8 unless told otherwise."""
    assert docker("exec", container, "locale", "charmap") == "UTF-8"


def test_folders_are_there_for_any_uid(container: str) -> None:
    """/workspace and /home/agent exist and can be entered by a uid that the image does not know."""
    assert (
        docker("exec", container, "stat", "-c", "%a %n", "/workspace", "/home/agent")
        == "755 /workspace\n755 /home/agent"
    )


def test_package_list_is_complete_and_build_leftovers_are_gone(container: str) -> None:
    """The list of packages is what dpkg says, and neither package lists nor logs are kept."""
    query = "dpkg-query -W -f '${Package} ${Version} ${Architecture}\\n' | diff - /usr/share/sandbox-agent/packages.txt"
    assert docker("exec", container, "bash", "-c", query) == ""
    assert docker("exec", "--user=0:0", container, "find", "/var/lib/apt/lists", "/var/log", "-type", "f") == ""


def test_image_says_what_it_is_and_starts_nothing_by_itself(base: str) -> None:
    """Labels name the image and the origin of its base; no entry point or health check runs unasked."""
    assert label(base, "sandbox-agent.image") == "base"
    assert label(base, "sandbox-agent.base-source") in {"registry", "debian-packages"}
    assert docker("image", "inspect", "--format", "{{.Config.Entrypoint}} {{.Config.Healthcheck}}", base) == "[] <nil>"


def test_second_build_does_nothing(base: str) -> None:
    """With an unchanged recipe the image stays the very same and one line says so."""
    before = docker("image", "inspect", "--format", "{{.Id}}", base)
    assert build(IMAGES, "base") == f"image: {BASE} is up to date\n"
    assert docker("image", "inspect", "--format", "{{.Id}}", base) == before


def test_changed_recipe_is_built_again(base: str, tmp_path: Path) -> None:
    """An image made from another one of ours is built, found up to date, and built again after an edit."""
    images, name = tmp_path / "images", f"test-{os.getpid()}"
    shutil.copytree(IMAGES, images)
    (images / name).mkdir()
    recipe = images / name / "Dockerfile"
    recipe.write_text(f"ARG BASE={base}\nFROM ${{BASE}}\nLABEL edition=first\n", encoding="utf-8")
    tag = f"sandbox-agent/{name}:latest"
    try:
        build(images, name)
        assert build(images, name).endswith(f"image: {tag} is up to date\n")
        recipe.write_text(recipe.read_text(encoding="utf-8").replace("first", "second"), encoding="utf-8")
        build(images, name)
        assert label(tag, "edition") == "second"
    finally:
        docker("rmi", "--force", tag)
