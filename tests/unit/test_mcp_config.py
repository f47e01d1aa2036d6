"""Files of servers, what an entry may say, and the person's variables in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from policy_desk import policy

from sandbox_agent.engine.servers import servers_of
from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.server_file import read_servers
from sandbox_agent.policy.servers import McpServer, Place, Transport, with_environment
from sandbox_agent.types import Mode, PermissionRequest, Subject, Verdict

NOWHERE = Path("/home/me/project")


def _read(folder: Path, servers: dict[str, Any], *host: str) -> tuple[McpServer, ...]:
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}, indent=1))
    return read_servers(path, frozenset(host), folder / "project")


def test_a_file_of_other_programs_is_read_as_it_is(tmp_path: Path) -> None:
    """A program runs in the session's container; a URL only where the policy names the server."""
    stdio, web = _read(
        tmp_path,
        {
            "files": {"command": "npx", "args": ["-y", "server"], "env": {"DEBUG": "1"}},
            "web": {"type": "streamable-http", "url": "https://mcp.example.org/mcp", "headers": {"X-A": "b"}},
        },
        "web",
    )

    assert (stdio.place, stdio.command, stdio.env) == (Place.SESSION, ("npx", "-y", "server"), {"DEBUG": "1"})
    assert (web.place, web.transport, web.headers) == (Place.HOST, Transport.HTTP, {"X-A": "b"})
    assert web.shown == "https://mcp.example.org"
    assert stdio.location.endswith("servers.json:3")


@pytest.mark.parametrize(
    ("entry", "line", "said"),
    [
        ({"url": "https://a.example/"}, 3, "allow that in your policy: mcp: {host: [x]}"),
        ({"command": "c", "place": "host"}, 3, "allow that in your policy"),
        ({"command": "c", "args": "x"}, 5, "mcpServers.x.args: must be a valid list, not 'x'"),
        ({"command": "c", "args": [1]}, 6, "mcpServers.x.args.0: must be a valid string, not 1"),
        ({"command": "c", "disabled": 1}, 5, "unknown key 'mcpServers.x.disabled'; known are type, place, command"),
        ({"comand": "c"}, 4, "unknown key 'mcpServers.x.comand'; did you mean 'command'?"),
        ({"command": "c", "place": "sesion"}, 5, "not 'sesion'; did you mean 'session'?"),
        ({"command": "c", "env": {"API_KEY": "f00dfeed"}}, 3, "env: API_KEY cannot be given to it"),
        ({"command": "./x", "place": "host"}, 3, "allow that in your policy"),
        ({"command": ""}, 4, "mcpServers.x.command"),
        ({"command": "c", "env": {"A B": "x"}}, 5, "'A B' is no name of a variable"),
        ({"command": "c", "env": {"A": "x\0"}}, 5, "NUL"),
        ({"command": "c", "env": {"A": "${KEY}"}}, 3, "${KEY} cannot be given to it"),
        ({"command": "c", "place": "session", "args": ["${KEY:-no}"]}, 3, "${KEY} cannot be given to it"),
        ({"command": "c", "startup_timeout_s": 0}, 5, "mcpServers.x.startup_timeout_s"),
        ({"command": "c", "place": "own", "allow_hosts": ["https://x"]}, 7, "mcpServers.x.allow_hosts.0"),
        ({"type": "websocket", "url": "ws://x"}, 4, "mcpServers.x.type"),
        ({"command": "c", "workspace": "rw"}, 3, "are of a server with place: own"),
        (5, 3, "mcpServers.x"),
    ],
)
def test_each_fault_of_a_file_has_one_line_with_its_place(tmp_path: Path, entry: Any, line: int, said: str) -> None:
    """File, line, what is wrong."""
    with pytest.raises(PolicyError) as told:
        _read(tmp_path, {"x": entry})

    assert said in str(told.value)
    assert f"servers.json:{line}: " in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (b"{", "servers.json"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[]", "servers.json"),
        (b"{}", 'no "mcpServers"'),
        (b'{"mcpservers": {}}', "did you mean that by 'mcpservers'?"),
        (b'{"x": 1,\n"servers": {}}', "servers.json:2: the file has no"),
        (b'{"mcpServers": {"a b": {"command": "c"}}}', "the name 'a b'"),
        (
            b'{"mcpServers": {"a": {"command": "c"}, "a": {"command": "d"}}}',
            "servers.json:1: the key 'a' is there twice",
        ),
        (None, "servers.json"),
    ],
)
def test_what_is_no_such_file_is_said(tmp_path: Path, held: bytes | None, said: str) -> None:
    """Also where there is none."""
    path = tmp_path / "servers.json"
    if held is not None:
        path.write_bytes(held)

    with pytest.raises(PolicyError) as told:
        read_servers(path, frozenset(), tmp_path / "project")
    assert said in str(told.value)


@pytest.mark.parametrize(
    "env", [{"API_KEY": "short"}, {"KEY_FILE": "f00dfeed"}, {"TLS_KEY": "/etc/tls/key.pem"}, {"MAX_TOKEN": "100000000"}]
)
def test_what_is_no_secret_goes_to_a_server_in_the_container(tmp_path: Path, env: dict[str, str]) -> None:
    """Numbers, paths, and what is called otherwise."""
    (server,) = _read(tmp_path, {"x": {"command": "c", "env": env}})

    assert server.env == env


BEYOND: list[tuple[dict[str, Any], str]] = [
    ({"url": "https://a.example/"}, "lies outside of every container"),
    ({"command": "c", "place": "host"}, "lies outside of every container"),
    ({"command": "c", "place": "own", "env": {"A": "${KEY}"}}, "asks for your variable KEY"),
    ({"command": "c", "place": "own", "allow_hosts": ["a.example:443"]}, "asks for the network"),
    ({"command": "c", "place": "own", "image": "any"}, "asks for an image"),
]


@pytest.mark.parametrize(("entry", "said"), BEYOND)
def test_a_file_in_the_workspace_names_no_more_than_the_agent_could_run(
    tmp_path: Path, entry: dict[str, Any], said: str
) -> None:
    """The agent may have written it: also where the policy lets a server of that name run on this machine."""
    (tmp_path / "project").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "project")

    assert _read(tmp_path, {"x": entry}, "x")
    assert _read(tmp_path / "project", {"x": {"command": "c"}, "y": {"command": "c", "place": "own"}}, "x")
    for folder in ("project", "link"):
        path = tmp_path / folder / "servers.json"
        path.write_text(json.dumps({"mcpServers": {"x": entry}}))
        with pytest.raises(PolicyError, match=r"servers.json:1: the MCP server x .* move the file out") as told:
            read_servers(path, frozenset({"x"}), tmp_path / "project")
        assert said in str(told.value)


def test_a_file_that_others_can_write_names_no_more_either(tmp_path: Path) -> None:
    """A place of the container is nobody's secret."""
    path = tmp_path / "servers.json"
    _read(tmp_path, {"x": {"command": "c"}})
    path.chmod(0o666)

    assert read_servers(path, frozenset(), NOWHERE)
    path.write_text(json.dumps({"mcpServers": {"x": BEYOND[2][0]}}))
    with pytest.raises(PolicyError, match="its file can be written by others"):
        read_servers(path, frozenset(), NOWHERE)


def test_variables_are_filled_in_where_they_are_named_and_are_secrets(tmp_path: Path) -> None:
    """By name, or with what is to stand for one that is not set; of the rest of the environment nothing comes."""
    (server,) = _read(
        tmp_path,
        {
            "x": {
                "command": "${HOME}/run",
                "args": ["--key=${KEY}", "${NONE:-plain}", "$KEY", "${KEY"],
                "env": {"T": "${KEY}", "API_TOKEN": "literal-token"},
                "place": "own",
            }
        },
    )
    environ = {"KEY": "sesame-1", "HOME": "/home/me", "OTHER": "x"}

    made = with_environment(server, environ)

    assert made.command == ("/home/me/run", "--key=sesame-1", "plain", "$KEY", "${KEY")
    assert made.env == {"T": "sesame-1", "API_TOKEN": "literal-token"}
    assert set(made.secrets) == {"sesame-1", "literal-token"}
    assert "secrets" not in repr(made)
    with pytest.raises(PolicyError, match="needs the variable KEY, which is not set") as told:
        with_environment(server, {"HOME": "/"})
    assert "servers.json:3" in str(told.value)


def test_a_header_that_by_its_name_is_a_secret_is_one() -> None:
    """With and without the word before it; what says the kind of content is none."""
    server = McpServer(
        name="x",
        transport=Transport.HTTP,
        place=Place.HOST,
        url="https://h/",
        headers={"Authorization": "Bearer abcdefgh", "Accept": "application/json"},
    )

    assert set(with_environment(server, {}).secrets) == {"Bearer abcdefgh", "abcdefgh"}


@pytest.mark.parametrize("url", ["ftp://h/", "http:///", "h", "http://h:99999/", "http://h:0/", "http://h/\n", "//h"])
def test_what_is_no_url_is_refused_without_showing_it(url: str) -> None:
    """It may hold a secret."""
    server = McpServer(name="x", transport=Transport.HTTP, place=Place.HOST, url="${URL}", location="p.yaml:3")

    with pytest.raises(PolicyError, match=r"^p.yaml:3: the MCP server x: its url is none") as told:
        with_environment(server, {"URL": url})
    assert url not in str(told.value) or len(url) < 3
    assert replace(server, url="https://user:pw@h:1/p?key=k").shown == "https://h:1"


def test_who_has_no_way_to_change_the_workspace(tmp_path: Path) -> None:
    """What is behind a URL, and a container that sees nothing of it or only reads it."""
    servers = _read(
        tmp_path,
        {
            "inside": {"command": "c"},
            "none": {"command": "c", "place": "own"},
            "ro": {"command": "c", "place": "own", "workspace": "ro"},
            "rw": {"command": "c", "place": "own", "workspace": "rw"},
            "here": {"command": "c", "place": "host"},
            "far": {"url": "https://a.example/"},
        },
        "here",
        "far",
    )

    assert [server.name for server in servers if server.apart] == ["none", "ro", "far"]


def test_a_policy_wins_over_a_file_and_may_allow_none(tmp_path: Path) -> None:
    """The person's own entry stays what it is, whatever a file calls the same."""
    file = tmp_path / "servers.json"
    file.write_text('{"mcpServers": {"x": {"command": "theirs"}, "y": {"command": "theirs"}}}')
    (tmp_path / "p.yaml").write_text("mcp: {servers: {x: {command: ours, place: own}}}\n")
    loaded = load_policy(str(tmp_path / "p.yaml"))

    assert {one.name: one.command for one in servers_of(loaded, [file], {}, workspace=NOWHERE)} == {
        "x": ("ours",),
        "y": ("theirs",),
    }
    with pytest.raises(PolicyError, match=r"may not be used: org\.yaml:1 locks mcp"):
        servers_of(replace(loaded, servers_locked_by="org.yaml:1"), [file], {}, workspace=NOWHERE)
    (tmp_path / "many.json").write_text(json.dumps({"mcpServers": {f"s{n}": {"command": "c"} for n in range(60)}}))
    with pytest.raises(PolicyError, match="at most 50"):
        servers_of(loaded, [tmp_path / "many.json"], {}, workspace=NOWHERE)


def test_resources_are_allowed_and_denied_by_server() -> None:
    """ReadMcpResource(git) is about one server, the bare name about all; without a rule they are asked about."""

    def verdict(rules: Any, tool: str, server: str) -> Verdict:
        request = PermissionRequest(tool, Subject("s", specifier=server), input_sha256="")
        return Verdict(rules.decide(request, Mode.DEFAULT).verdict)

    some = policy(allow=["ReadMcpResource(git)", "ListMcpResources"], deny=["ListMcpResources(evil)"])
    assert verdict(some, "ReadMcpResource", "git") is Verdict.ALLOW
    assert verdict(some, "ReadMcpResource", "other") is Verdict.ASK
    assert verdict(some, "ListMcpResources", "other") is Verdict.ALLOW
    assert verdict(some, "ListMcpResources", "evil") is Verdict.DENY
