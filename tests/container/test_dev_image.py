"""Builds and test suites run in the dev image under the default hardening and limits, without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from sandbox_rig import Rig, rig

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

BUILD = Path(__file__).parents[2] / "images" / "build.sh"

PROJECT = """
mkdir -p py/greeter && cd py
printf 'def greet(name):\\n    return "hello " + name\\n' > greeter/__init__.py
printf '[build-system]\\nrequires = ["setuptools"]\\nbuild-backend = "setuptools.build_meta"\\n' > pyproject.toml
printf '[project]\\nname = "greeter"\\nversion = "1.0"\\n' >> pyproject.toml
printf '[tool.setuptools]\\npackages = ["greeter"]\\n' >> pyproject.toml
python3 -m pip -q wheel --no-index --no-deps --no-build-isolation -w dist . && ls dist
"""

VENV = """
cd py && python3 -m venv --system-site-packages env
env/bin/pip -q install --no-index dist/*.whl
printf 'import greeter\\n\\ndef test_it():\\n    assert "/py/env/" in greeter.__file__\\n' > /tmp/test_it.py
cd /tmp && /workspace/py/env/bin/python -m pytest -q test_it.py
"""

NPM = """
mkdir -p js/dep js/app && cd js/dep
printf '{"name": "dep", "version": "1.0.0", "main": "index.js"}' > package.json
printf 'module.exports = (a, b) => a + b;' > index.js
npm pack --silent > /tmp/packed
cd ../app && printf '{"name": "app", "version": "1.0.0", "scripts": {"test": "node test.js"}}' > package.json
npm install --silent --offline --no-audit --no-fund ../dep/dep-1.0.0.tgz
cat > test.js <<'END'
const { Worker } = require("worker_threads");
const sum = require("dep")(40, 2);
const worker = new Worker("require('worker_threads').parentPort.postMessage(process.version)", { eval: true });
worker.on("message", () => require("fs").promises.readFile("package.json").then(() => console.log("sum", sum)));
END
npm test --silent
"""

C_PROGRAM = """
mkdir -p c && cd c
printf '#include <pthread.h>\\n#include <stdio.h>\\nstatic void *say(void *x) { puts(x); return 0; }\\n' > main.c
printf 'int main(void) { pthread_t t; pthread_create(&t, 0, say, "made"); return pthread_join(t, 0); }\\n' >> main.c
printf 'main: main.c\\n\\tgcc -Wall -Werror -O2 -pthread -o $@ $<\\n' > Makefile
make -s -j4 && ./main
"""

GIT = """
mkdir -p repo && cd repo && git init -q
for folder in $(seq 50); do mkdir d$folder; for file in $(seq 100); do echo $folder.$file > d$folder/f$file; done; done
git config user.name n && git config user.email n@example.org
git add . && git commit -q -m first && echo more >> d7/f7 && git status --short && git commit -q -a -m second
git log --oneline | wc -l && git ls-files | wc -l && git gc -q && git status --short
"""

POOLS = """
cat > /tmp/pools.py <<'END'
import asyncio, concurrent.futures, multiprocessing, os, sqlite3, subprocess, tempfile

async def ask():
    server = await asyncio.start_server(lambda _, writer: writer.close(), "localhost", 0)
    await asyncio.open_connection("sandbox", server.sockets[0].getsockname()[1])
    child = await asyncio.create_subprocess_exec("sh", "-c", "exit 3")
    return await child.wait()

if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(4) as pool:
        print(sum(pool.map(abs, range(-100, 0))), asyncio.run(ask()), len(os.memfd_create("x").__str__()) > 0)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(abs, [-1]), sqlite3.connect("/tmp/db").execute("select 1").fetchone())
END
python3 /tmp/pools.py
"""


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """One session for all; the image is built only where its recipe is new."""
    done = await anyio.run_process([str(BUILD), "dev"], check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    async with rig(tmp_path_factory.mktemp("dev"), image="dev") as made:
        yield made


async def said(box: Rig, script: str) -> list[str]:
    """What a script that succeeds prints."""
    result = await box.sandbox.exec(["bash", "-e", "-c", script], merge_stderr=True, timeout_s=600)
    assert result.exit_code == 0, result.stdout.decode()
    return result.stdout.decode().splitlines()


async def test_a_wheel_is_built_installed_into_a_venv_and_tested(box: Rig) -> None:
    """pip builds one from a folder, and pytest finds what another pip installed."""
    assert await said(box, PROJECT) == ["greeter-1.0-py3-none-any.whl"]
    assert (await said(box, VENV))[-1].startswith("1 passed")


async def test_npm_installs_a_package_and_runs_a_test(box: Rig) -> None:
    """From a file; node's threads and its asynchronous files work."""
    assert await said(box, NPM) == ["sum 42"]


async def test_a_c_program_is_compiled_by_make(box: Rig) -> None:
    """With threads."""
    assert await said(box, C_PROGRAM) == ["made"]


async def test_git_keeps_a_repository_of_five_thousand_files(box: Rig) -> None:
    """From init to gc."""
    assert await said(box, GIT) == [" M d7/f7", "2", "5000"]


async def test_pools_sockets_and_databases_work(box: Rig) -> None:
    """What programs use of the kernel that a filter could be in the way of; the sandbox's own name leads home."""
    assert await said(box, POOLS) == ["5050 3 True", "[1] (1,)"]


async def test_the_image_is_named_as_the_policy_names_it(box: Rig) -> None:
    """`sandbox: {image: dev}`; it runs the runner, and no program in it has a set-id bit."""
    assert (box.info.image, box.info.transport) == ("sandbox-agent/dev:latest", "runner")
    _, found = await box.outside(["bash", "-c", "find / -xdev -perm /6000 2>/dev/null"], user="0")

    assert found == b""
