"""Host groups come from the clients' own configuration of this machine, and credentials in it stay there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_agent.errors import ConfigError
from sandbox_agent.hostnames import entry_of
from sandbox_agent.sandboxes.egress.hosts import Expanded, Machine, expand


def expanded(folder: Path, *entries: str, files: dict[str, str] | None = None, **environ: str) -> Expanded:
    """The list on a machine that has these files and variables."""
    for name, text in (files or {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    machine = Machine(environ=environ, home=folder / "home", etc=folder / "etc")
    return expand([entry_of(one) for one in entries], machine)


def hosts(found: Expanded) -> list[str]:
    return [entry.text for entry in found.entries]


def test_without_configuration_the_public_ones_are_meant(tmp_path: Path) -> None:
    """The index of PyPI and where its files are, npm's registry, Debian's mirrors."""
    found = expanded(tmp_path, "@python", "@node", "@debian", "a.org:1", "pypi.org:443")
    assert hosts(found) == [
        "pypi.org:443",
        "files.pythonhosted.org:443",
        "registry.npmjs.org:443",
        "deb.debian.org:80",
        "security.debian.org:80",
        "a.org:1",
    ]
    assert (found.env, found.notes) == ({}, ())


def test_pip_s_files_are_read_in_its_order(tmp_path: Path) -> None:
    """The person's beat the machine's, the variable beats both; indexes that are folders need no host."""
    files = {
        "etc/pip.conf": "[global]\nindex-url = https://one.example/simple\nextra-index-url = https://extra.example:8443/s\n",
        "home/.config/pip/pip.conf": "[install]\nindex_url = https://two.example/simple\n",
    }
    found = expanded(tmp_path, "@python", files=files)
    assert hosts(found) == ["two.example:443", "extra.example:8443"]
    assert found.env == {
        "PIP_INDEX_URL": "https://two.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://extra.example:8443/s",
    }
    over = {"PIP_INDEX_URL": "http://three.example/", "PIP_EXTRA_INDEX_URL": "file:///opt/x https://pypi.org/simple"}
    found = expanded(tmp_path, "@python", **over)
    assert hosts(found) == ["three.example:80", "pypi.org:443", "files.pythonhosted.org:443"]
    assert found.env == {"PIP_INDEX_URL": "http://three.example/", "PIP_EXTRA_INDEX_URL": "https://pypi.org/simple"}
    own = tmp_path / "own.conf"
    own.write_text("[global]\nindex-url = https://four.example/\n")
    assert hosts(expanded(tmp_path, "@python", PIP_CONFIG_FILE=str(own)))[0] == "four.example:443"


def test_credentials_stay_on_the_machine(tmp_path: Path) -> None:
    """Neither in the list, nor in what the container is told; the note names the host alone."""
    found = expanded(
        tmp_path,
        "@python",
        "@node",
        PIP_INDEX_URL="https://me:s3cret@pip.example/simple",
        npm_config_registry="https://me:s3cret@npm.example/",
    )
    assert hosts(found) == ["pip.example:443", "npm.example:443"]
    assert found.env == {"PIP_INDEX_URL": "https://pip.example/simple", "NPM_CONFIG_REGISTRY": "https://npm.example/"}
    assert found.notes == (
        "@python: user name and password of pip.example are not passed into the sandbox",
        "@node: user name and password of npm.example are not passed into the sandbox",
    )
    assert "s3cret" not in repr(found)


def test_npm_s_registry_and_scopes(tmp_path: Path) -> None:
    """Variables in the file are put in; other settings of it do not matter."""
    text = "fund=false\nregistry = https://${NAME}.example/npm/\n@mine:registry=http://scope.example:4873/\n//x/:_authToken=t\n"
    found = expanded(tmp_path, "@node", files={"home/.npmrc": text}, NAME="reg")
    assert hosts(found) == ["reg.example:443", "scope.example:4873"]
    assert found.env == {"NPM_CONFIG_REGISTRY": "https://reg.example/npm/"}


def test_apt_s_sources_of_both_kinds(tmp_path: Path) -> None:
    """And Debian's own, which the image's sources name; comments and other archives' options do not count."""
    files = {
        "etc/apt/sources.list": "deb [signed-by=/k] https://one.example/debian b main\n# deb http://no.example/ x y\n",
        "etc/apt/sources.list.d/a.sources": "Types: deb\nURIs: http://two.example:81/d mirror+http://three.example/x\n",
    }
    assert hosts(expanded(tmp_path, "@debian", files=files)) == [
        "deb.debian.org:80",
        "security.debian.org:80",
        "one.example:443",
        "two.example:81",
        "three.example:80",
    ]


def test_a_group_may_be_private(tmp_path: Path) -> None:
    """All of its hosts then."""
    machine = Machine(environ={}, home=tmp_path, etc=tmp_path)
    found = expand([entry_of("@node", allow_private=True)], machine)
    assert [(entry.host, entry.allow_private) for entry in found.entries] == [("registry.npmjs.org", True)]


@pytest.mark.parametrize(
    ("files", "environ", "message"),
    [
        ({"etc/pip.conf": "index-url = x\n"}, {}, "pip.conf: pip's configuration cannot be read, which @python needs"),
        ({}, {"PIP_INDEX_URL": "https://0x7f.1/simple"}, "names 'https://0x7f.1/simple', which is no web address"),
        ({}, {"PIP_INDEX_URL": "https://a.org:port/simple"}, "which is no web address"),
    ],
)
def test_a_configuration_that_cannot_be_read_stops_the_run(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], message: str
) -> None:
    """One line, with the file."""
    with pytest.raises(ConfigError, match="(?s)" + message.replace("(", "\\(")):
        expanded(tmp_path, "@python", files=files, **environ)
