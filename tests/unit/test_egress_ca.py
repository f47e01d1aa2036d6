"""Certificates: what this machine and the policy name goes in, and nothing else that is in those files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_agent.errors import ConfigError
from sandbox_agent.sandboxes.egress.ca import Bundle, gather

KEY = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"


def certificate(text: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + text + b"\n-----END CERTIFICATE-----\n"


def gathered(folder: Path, named: Path | None = None, **environ: Path) -> Bundle:
    system = [folder / "absent.pem", folder / "system.pem"]
    told = {name: str(path) for name, path in environ.items()}
    return gather(None if named is None else str(named), told, workspace=folder / "work", system=system)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a bundle of the machine's own."""
    (tmp_path / "work").mkdir()
    (tmp_path / "system.pem").write_bytes(b"# system\n" + certificate(b"U1lT"))
    return tmp_path


def test_the_machine_s_own_bundle_goes_in_anyway(folder: Path) -> None:
    """A company's authority alone would shut out everything else."""
    assert gathered(folder).pem == certificate(b"U1lT")


def test_variables_of_the_machine_are_followed(folder: Path) -> None:
    """All of them, each certificate once."""
    (folder / "a.pem").write_bytes(certificate(b"QQ==") + certificate(b"U1lT"))
    (folder / "b.pem").write_bytes(certificate(b"Qg=="))
    found = gathered(
        folder, SSL_CERT_FILE=folder / "a.pem", NODE_EXTRA_CA_CERTS=folder / "b.pem", PIP_CERT=folder / "a.pem"
    )
    assert found == Bundle(certificate(b"QQ==") + certificate(b"U1lT") + certificate(b"Qg=="))


def test_only_certificates_are_taken_out_of_a_file(folder: Path) -> None:
    """A key that is kept with them never comes near the sandbox."""
    (folder / "both.pem").write_bytes(KEY + certificate(b"QQ==") + KEY)
    assert gathered(folder, folder / "both.pem").pem == certificate(b"QQ==") + certificate(b"U1lT")


def test_a_variable_that_leads_nowhere_is_noted(folder: Path) -> None:
    """It may be stale; the policy's own bundle must be right."""
    found = gathered(folder, SSL_CERT_FILE=folder / "gone.pem")
    assert found.pem == certificate(b"U1lT")
    assert found.notes == (
        "a bundle of certificates is left out: a variable of this machine names "
        f"{folder}/gone.pem: No such file or directory",
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gone.pem", "No such file or directory"),
        ("key.pem", "there is no PEM certificate in it"),
        ("fifo", "not a file"),
        ("work", "lies in the folder that the agent works on"),
        ("work/ca.pem", "lies in the folder that the agent works on"),
        ("link.pem", "lies in the folder that the agent works on"),
    ],
)
def test_a_bundle_of_the_policy_that_is_none_stops_the_run(folder: Path, name: str, reason: str) -> None:
    """Nothing waits, and nothing of the workspace is read."""
    (folder / "key.pem").write_bytes(KEY)
    (folder / "work/ca.pem").write_bytes(certificate(b"QQ=="))
    (folder / "link.pem").symlink_to(folder / "work/ca.pem")
    os.mkfifo(folder / "fifo")
    with pytest.raises(ConfigError, match=reason):
        gathered(folder, folder / name)
