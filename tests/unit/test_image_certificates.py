"""Image builds get the certificates that this machine needs, for the time of the build, and nothing else of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
DOCKER = """#!/bin/sh
case "$1" in
    version) echo 24.0 ;;
    buildx) exit 1 ;;
    build) for last; do :; done; cp -R "$last" "$BUILT" ;;
esac
"""
"""An engine that has every image but no label on any, and keeps what it is given to build."""


def build(folder: Path, **variables: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Build the base image with these variables; what came of it, and the context that the engine was given."""
    (folder / "docker").write_text(DOCKER)
    (folder / "docker").chmod(0o755)
    built = folder / "built"
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), "BUILT": str(built), **variables}
    done = subprocess.run(
        [str(ROOT / "images/build.sh"), "base"], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    return done, built


def test_without_a_bundle_the_recipe_is_built_as_it_is(tmp_path: Path) -> None:
    """The folder itself."""
    done, built = build(tmp_path)
    assert done.returncode == 0, done.stderr
    assert (built / "Dockerfile").read_bytes() == (ROOT / "images/base/Dockerfile").read_bytes()
    assert not (built / "sandbox-agent-ca.pem").exists()


@pytest.mark.parametrize("variable", ["CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "PIP_CERT"])
def test_a_bundle_is_there_for_the_build_alone(tmp_path: Path, variable: str) -> None:
    """Named to every client by arguments, which end with the build; the files are removed by the last step."""
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(f"a comment\n{KEY}{CERTIFICATE}")
    done, built = build(tmp_path, **{variable: str(bundle)})
    assert done.returncode == 0, done.stderr
    recipe = (built / "Dockerfile").read_text()
    steps = recipe.splitlines()

    assert steps.index("COPY sandbox-agent-ca.pem /etc/sandbox-agent-ca.pem") == steps.index("FROM ${BASE}") + 1
    assert "ARG SSL_CERT_FILE=/etc/sandbox-agent-ca.pem" in steps
    assert steps[-1] == "RUN rm -f /etc/apt/apt.conf.d/99sandbox-agent-ca /etc/sandbox-agent-ca.pem"
    assert (built / "sandbox-agent-ca.conf").read_text() == 'Acquire::https::CaInfo "/etc/sandbox-agent-ca.pem";\n'
    pem = (built / "sandbox-agent-ca.pem").read_text()
    assert CERTIFICATE in pem
    assert "PRIVATE" not in pem
    assert "comment" not in pem


def test_a_bundle_that_cannot_be_read_stops_the_build(tmp_path: Path) -> None:
    """One that was named on purpose; a stale variable of the machine is passed over."""
    done, _ = build(tmp_path, CA_BUNDLE=str(tmp_path / "gone.pem"))
    assert (done.returncode, "gone.pem, which cannot be read" in done.stderr) == (2, True)
    done, built = build(tmp_path, SSL_CERT_FILE=str(tmp_path / "gone.pem"))
    assert (done.returncode, (built / "sandbox-agent-ca.pem").exists()) == (0, False)
