"""The gate around a real container: unmodified clients reach what is listed, and no tool gets past it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import anyio
import pytest
from anyio.abc import ByteStream
from egress_world import (
    Served,
    put_debian_package,
    put_git_repository,
    put_node_package,
    put_python_package,
    world,
)
from sandbox_rig import Rig, rig

from sandbox_agent.hostnames import entry_of
from sandbox_agent.sandboxes.base import ExecResult
from sandbox_agent.sandboxes.egress.forwarder import FOLDER
from sandbox_agent.sandboxes.egress.ledger import Decided, Told
from sandbox_agent.sandboxes.egress.outlet import PORT, GateChanged, Outlet, plan
from sandbox_agent.sandboxes.egress.proxy import Caps
from sandbox_agent.testing.tool_calls import context, refused, said
from sandbox_agent.tools.web_fetch import TOOL as WEB_FETCH

pytestmark = pytest.mark.docker

WORLD = "198.51.100.9"
PATIENCE_S = 60
LISTED = (
    "pip.test:443",
    "npm.test:443",
    "git.test:443",
    "files.test:443",
    "files.test:80",
    "moves.test:80",
    "lies.test:443",
)


@dataclass
class Network:
    """A container behind a gate. `told` is what the gate said; `dialled` what was connected to, by address."""

    box: Rig
    served: Served
    outlet: Outlet = field(init=False)
    told: list[Told | GateChanged] = field(default_factory=list)
    answers: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    dialled: list[tuple[str, int]] = field(default_factory=list)
    _heard: anyio.Event = field(default_factory=anyio.Event)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        said = self.answers.get(host)
        return said.pop(0) if said else [WORLD]

    async def connect(self, address: str, port: int) -> ByteStream:
        """Whatever the address, the world is one server of ours."""
        self.dialled.append((address, port))
        return await anyio.connect_tcp("127.0.0.1", self.served.https_port if port == 443 else self.served.http_port)

    async def run(self, script: str, *, timeout_s: float = PATIENCE_S) -> ExecResult:
        return await self.box.sandbox.exec(["bash", "-c", script], merge_stderr=True, timeout_s=timeout_s)

    async def said(self, script: str) -> str:
        """The output of a script that succeeds."""
        result = await self.run(script)
        assert result.exit_code == 0, result.stdout.decode()
        return result.stdout.decode()

    async def refused(self, script: str) -> str:
        """The output of a script that fails."""
        result = await self.run(script)
        assert result.exit_code != 0, result.stdout.decode()
        return result.stdout.decode()

    def tell(self, told: Told | GateChanged) -> None:
        self.told.append(told)
        self._heard.set()

    async def hears(self, wanted: GateChanged) -> None:
        """Wait until the gate says this."""
        with anyio.fail_after(PATIENCE_S):
            while wanted not in self.told:
                self._heard = anyio.Event()
                await self._heard.wait()

    def reasons(self) -> list[str]:
        """Why something was refused, since it was last asked."""
        found = [one.reason for one in self.told if isinstance(one, Decided) and not one.allowed]
        self.told.clear()
        return found


@pytest.fixture(scope="module")
async def net(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    folder = tmp_path_factory.mktemp("egress")
    with world(folder) as served:
        put_python_package(served.folder)
        put_node_package(served.folder)
        put_debian_package(served.folder)
        put_git_repository(served.folder, folder)
        (served.folder / "big").write_bytes(b"0123456789" * 500_000)
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PIP_INDEX_URL": "https://pip.test/simple",
            "npm_config_registry": "https://npm.test/",
        }
        entries = [entry_of(one) for one in (*LISTED, "@python", "@node")]
        made = plan(entries, ca_bundle=str(served.ca_file), environ=environ, workspace=folder / "workspace")
        made = replace(made, caps=Caps(head_s=3.0))
        async with rig(folder, egress_env=made.env, image="dev") as box:
            network = Network(box, served)
            network.outlet = Outlet(made, network.tell, environ={}, resolve=network.resolve, connect=network.connect)
            await network.outlet.open(box.sandbox.open_as_main)
            async with anyio.create_task_group() as group:
                group.start_soon(network.outlet.serve)
                yield network
                group.cancel_scope.cancel()
            await network.outlet.aclose()


async def test_pip_installs_through_the_gate(net: Network) -> None:
    """Unmodified, with nothing but what the session sets; the index is the one of the machine's configuration."""
    script = "pip install -q --target p tinypkg && PYTHONPATH=p python3 -c 'import tinypkg; print(tinypkg.WORD)'"
    assert (await net.said(script)).endswith("from the index\n")
    assert ("GET", "pip.test", "/simple/tinypkg/") in net.served.seen


async def test_npm_installs_through_the_gate(net: Network) -> None:
    """Unmodified, from the machine's registry."""
    script = "mkdir n && cd n && npm install --no-audit --no-fund tinypkg-js && node -p 'require(\"tinypkg-js\")'"
    assert (await net.said(script)).endswith("from the registry\n")
    assert ("GET", "npm.test", "/tinypkg-js.tgz") in net.served.seen


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_apt_downloads_through_the_gate(net: Network, scheme: str) -> None:
    """Unmodified; both schemes."""
    script = f"""
        mkdir -p a{scheme}/lists/partial a{scheme}/cache/archives/partial && cd a{scheme}
        echo 'deb [trusted=yes] {scheme}://files.test/debian ./' > sources
        set -- -q -o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD/cache -o Dir::Etc::sourcelist=$PWD/sources \
            -o Dir::Etc::sourceparts=- -o Debug::NoLocking=1
        apt-get "$@" update && apt-get "$@" download tinypkg-deb && dpkg-deb --fsys-tarfile tinypkg-deb*.deb | tar xO
    """
    assert (await net.said(script)).endswith("from the archive\n")


async def test_git_clones_through_the_gate(net: Network) -> None:
    """Unmodified."""
    assert (await net.said("git clone -q https://git.test/repo.git g && cat g/file")) == "from the repository\n"


async def test_curl_fetches_through_the_gate(net: Network) -> None:
    """TLS and plain, and a file beyond every window, whole."""
    script = (
        "for s in http https; do curl -sS $s://files.test/big | sha256sum; done; curl -sS http://files.test/big | wc -c"
    )
    first, second, size = (await net.said(script)).splitlines()
    assert first == second
    assert size == "5000000"


async def test_python_s_own_client_asks_in_http_1_0(net: Network) -> None:
    """Its CONNECT is of that version."""
    script = "import urllib.request as u; print(len(u.urlopen('https://files.test/big').read()))"
    assert await net.said(f'python3 -c "{script}"') == "5000000\n"


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        (
            "pip install --target p2 tinypkg --index-url https://other.test/simple",
            "403 other.test:443 is not in sandbox.",
        ),
        ("npm view tinypkg-js --registry https://other.test/", "other.test:443"),
        ("git ls-remote http://other.test/repo.git", "sandbox-agent: other.test:80 is not in sandbox.allow_hosts"),
        ("git ls-remote https://other.test/repo.git", "CONNECT tunnel failed, response 403"),
        ("curl -sS https://other.test/", "403"),
        ("curl -sSf -w '%{errormsg}' http://other.test/", "403"),
        ("curl -s http://other.test/; false", "sandbox-agent: other.test:80 is not in sandbox.allow_hosts"),
        ("curl -sSv https://other.test/", "403 other.test:443 is not in sandbox.allow_hosts"),
    ],
)
async def test_a_client_shows_what_was_refused(net: Network, script: str, shown: str) -> None:
    """At once, and with the setting where the client shows the answer at all; the record has it anyway."""
    net.reasons()
    assert shown in await net.refused(script)
    assert net.reasons()[0].startswith("other.test:")


async def test_web_fetch_shows_pages_through_the_gate(net: Network) -> None:
    """By a program in the container, with its certificates; what gate or tool refuse is told and not shown."""
    net.answers = {"lies.test": [["10.0.0.5"]]}
    ctx = context(net.box.sandbox)
    ctx.opens = lambda host, port: port == 443 or host == "moves.test"
    page = await said(WEB_FETCH, ctx, url="http://pip.test/simple/tinypkg/", prompt="Which versions?")
    assert page.startswith("https://pip.test/simple/tinypkg/ (text/html)")
    link = "https://pip.test/simple/tinypkg/tinypkg-1.0-py3-none-any.whl"
    assert f"[tinypkg-1.0-py3-none-any.whl]({link})" in page
    assert '"dist-tags": {"latest": "1.0.0"}' in await said(WEB_FETCH, ctx, url="https://npm.test/tinypkg-js")
    wanted = {
        link: "is application/octet-stream, ",
        "https://files.test/moved-to/other.test/x": "fetch it by its own address: http://other.test/x",
        "https://files.test/missing": "answers 404 Not Found",
        "https://other.test/": "refused by the network's gate: other.test:443 is not in sandbox.allow_hosts",
        "https://lies.test/": "lies.test:443 leads to 10.0.0.5 (private)",
        "https://127.0.0.1:22/": "127.0.0.1:22 is not in sandbox.allow_hosts",
    }
    found = {url: await refused(WEB_FETCH, ctx, url=url) for url in wanted}
    assert {url: wanted[url] in text for url, text in found.items()} == dict.fromkeys(wanted, True), found


@pytest.mark.parametrize(
    "script",
    [
        "curl -sSf --noproxy '*' http://198.51.100.9/",
        "curl -sSf --noproxy '*' https://files.test/",
        "python3 -c 'import socket; socket.getaddrinfo(\"files.test\", 80)'",
        "python3 -c 'import socket; socket.create_connection((\"198.51.100.9\", 80), 2)'",
        "exec 3<>/dev/tcp/198.51.100.9/80",
        "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
    ],
)
async def test_there_is_no_way_beside_the_gate(net: Network, script: str) -> None:
    """Neither a route, nor a resolver, nor raw packets."""
    before = list(net.dialled)
    await net.refused(script)
    assert net.dialled == before


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://169.254.169.254/", "169.254.169.254:80 is not in sandbox.allow_hosts"),
        ("http://127.0.0.1:22/", None),
        ("http://[::ffff:127.0.0.1]/", "[::ffff:7f00:1]:80 is not in sandbox.allow_hosts"),
        ("http://0x7f000001/", "127.0.0.1:80 is not in sandbox.allow_hosts"),
        ("http://files.test:8080/", "files.test:8080 is not in sandbox.allow_hosts"),
        ("http://files.test.other.test/", "files.test.other.test:80 is not in sandbox.allow_hosts"),
        ("https://files.test:22/", "files.test:22 is not in sandbox.allow_hosts"),
        ("http://files.test/moved-to/169.254.169.254/latest", "169.254.169.254:80 is not in sandbox.allow_hosts"),
        ("http://files.test/moved-to/other.test/", "other.test:80 is not in sandbox.allow_hosts"),
        ("http://moves.test/", "moves.test:80 leads to 127.0.0.1 (loopback)"),
        ("https://lies.test/", "lies.test:443 leads to 10.0.0.5 (private)"),
    ],
)
async def test_no_target_leads_elsewhere(net: Network, target: str, reason: str | None) -> None:
    """By an address, an odd spelling, another port, a look-alike, a redirect, or a name that resolves to the inside."""
    net.reasons()
    net.answers = {"moves.test": [["127.0.0.1"]], "lies.test": [["10.0.0.5"]]}
    result = await net.run(f"curl -sSfL --noproxy '' '{target}'")
    assert result.exit_code != 0
    assert {address for address, _ in net.dialled} <= {WORLD}
    if reason is not None:
        assert any(reason in one for one in net.reasons())


async def test_a_resolver_that_changes_its_answer_gains_nothing(net: Network) -> None:
    """It is asked once for each request; the address that was judged is the one connected to."""
    net.answers = {"moves.test": [[WORLD], ["127.0.0.1"], ["169.254.169.254"]]}
    net.dialled.clear()
    script = "for i in 1 2 3; do curl -s -o /dev/null -w '%{http_code} ' http://moves.test/big; done"
    assert await net.said(script) == "200 403 403 "
    assert net.dialled == [(WORLD, 80)]


async def test_a_tunnel_is_for_the_host_that_it_names(net: Network) -> None:
    """Fronting: a listed host asked for, another one in the TLS hello; and something that is no TLS at all."""
    net.reasons()
    front = "curl -sS --connect-to other.test:443:files.test:443 https://other.test/"
    ssh = "(printf 'CONNECT files.test:443 HTTP/1.1\\r\\n\\r\\n'; sleep 0.2; echo SSH-2.0-x) >&3"
    await net.refused(front)
    await net.run(f"exec 3<>/dev/tcp/127.0.0.1/{PORT}; {ssh}; cat <&3")
    assert net.reasons() == [
        "files.test:443 is refused: the TLS name is 'other.test', but files.test was asked for",
        "files.test:443 is refused: what was sent is not TLS; a tunnel carries nothing else",
    ]


async def test_the_forwarder_is_out_of_the_tools_reach(net: Network) -> None:
    """Its process, its port, its files."""
    script = f"""
        for pid in $(pgrep -u 65531); do kill -9 $pid 2>&1; cat /proc/$pid/environ 2>&1; ls /proc/$pid/fd 2>&1; done
        python3 -c 'import socket; s = socket.socket(); s.setsockopt(1, 15, 1); s.bind(("0.0.0.0", {PORT}))' 2>&1
        python3 -c 'import socket; s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(("127.0.0.1", {PORT}))' 2>&1
        echo x > {FOLDER}/ca-bundle.pem; rm -rf {FOLDER}; mv {FOLDER} /tmp/x; touch {FOLDER}/y
        curl -s -o /dev/null -w '%{{http_code}}' https://files.test/big
    """
    said = await net.said(script)
    assert said.endswith("200")
    assert said.count("Operation not permitted") >= 2
    assert said.count("Address already in use") == 2


async def test_a_flood_of_connections_holds_up_nobody_for_long(net: Network) -> None:
    """A thousand at once, garbage, frames of the stream's protocol, and clients that never finish a request."""
    flood = f"""
import socket, subprocess
held = []
for number in range(1000):
    try:
        s = socket.create_connection(("127.0.0.1", {PORT}), 0.2)
    except OSError:
        break
    s.setblocking(False)
    try:
        s.send([bytes([0, 0, 0, 1, 32, 0, 0, 0, 9, 10, 10]), b"GET http://files", bytes(range(256)) * 300][number % 3])
    except OSError:
        pass
    held.append(s)
print(len(held) > 100)
subprocess.run(["curl", "-s", "-m", "50", "-o", "/dev/null", "-w", "%{{http_code}}", "https://files.test/big"])
"""
    result = await net.box.sandbox.exec(["python3", "-u", "-c", flood], timeout_s=PATIENCE_S)
    assert result.stdout == b"True\n200"


async def test_a_forwarder_that_was_killed_is_missed_and_replaced(net: Network) -> None:
    """From outside, as the kernel would for memory: it is told, nothing passes meanwhile, then all works again."""
    net.told.clear()
    code, _ = await net.box.outside(["bash", "-c", "kill -9 $(pgrep -u 65531 python3)"], user="65531")
    assert code == 0
    await net.hears(GateChanged(True))
    assert [one for one in net.told if isinstance(one, GateChanged)] == [
        GateChanged(False, "the forwarder was killed or ended"),
        GateChanged(True),
    ]
    assert await net.said("curl -s -o /dev/null -w '%{http_code}' https://files.test/big") == "200"


async def test_a_port_that_a_tool_takes_meanwhile_stays_closed(net: Network) -> None:
    """It is said who has it; once the tool is gone the gate opens again."""
    net.told.clear()
    taking = f"""
import socket, time
while True:
    try:
        s = socket.create_server(("127.0.0.1", {PORT}))
    except OSError:
        continue
    time.sleep(600)
"""
    async with anyio.create_task_group() as group:
        group.start_soon(net.box.sandbox.exec, ["python3", "-c", taking])
        await net.box.outside(["bash", "-c", "kill -9 $(pgrep -u 65531 python3)"], user="65531")
        reason = "the forwarder was killed or ended; the next one cannot work: [Errno 98] Address already in use"
        await net.hears(GateChanged(False, reason))
        await net.box.sandbox.end_all()
        await net.hears(GateChanged(True))
    assert await net.said("curl -s -o /dev/null -w '%{http_code}' https://files.test/big") == "200"


async def test_a_container_that_was_started_again_has_its_gate_and_its_streams(net: Network) -> None:
    """What was open ends as killed, whoever meets it meanwhile waits, files in
    memory are gone, those of the workspace and of the gate are there, and every way to run a program works again."""
    net.told.clear()
    box = net.box.sandbox
    await net.said("echo kept > /workspace/kept; echo gone > /tmp/gone")
    opened, ended, waited = await box.open(["cat"]), list[int](), list[bytes]()

    async def running() -> None:
        ended.append((await net.run("sleep 300")).exit_code)

    async def hook() -> None:
        ended.append((await box.exec_apart(["sleep", "300"])).exit_code)

    async def meanwhile() -> None:
        await opened.exit_code()
        waited.append((await box.exec(["echo", "one"])).stdout)
        waited.append((await box.exec_apart(["echo", "two"])).stdout)

    async with anyio.create_task_group() as group:
        group.start_soon(running)
        group.start_soon(hook)
        await net.box.outside(["bash", "-c", "until [ $(pgrep -cx sleep) = 3 ]; do :; done"])
        group.start_soon(meanwhile)
        await box.restart()
    await net.hears(GateChanged(True))

    assert (await opened.receive(), await opened.exit_code(), ended) == (b"", 137, [137, 137])
    assert waited == [b"one\n", b"two\n"]
    assert (box.restarts, await net.said("cat /workspace/kept; ls /tmp")) == (1, "kept\n")
    assert await net.said("curl -s -o /dev/null -w '%{http_code}' https://files.test/big") == "200"
    assert [one.open for one in net.told if isinstance(one, GateChanged)] == [False, True]
