"""Which certificate authorities the tools' clients trust: what this machine trusts, and the policy's own bundle.

Behind a proxy that opens TLS nothing installs without its authority. Only certificates are taken out of the files that
are named; whatever else is in them (a private key) stays on this machine.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox_agent.errors import ConfigError

VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
)
"""Where this machine's clients are told of a bundle, and where those in the container are."""

SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
MAX_BUNDLE_BYTES = 4 * 1024 * 1024
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


@dataclass(frozen=True, slots=True)
class Bundle:
    """Certificates as one PEM text, b"" for none; `notes` are for the person."""

    pem: bytes
    notes: tuple[str, ...] = ()


def gather(
    named: str | None, environ: Mapping[str, str], *, workspace: Path, system: Sequence[Path] = SYSTEM_BUNDLES
) -> Bundle:
    """The certificates of the policy's bundle, else of those this machine's variables name, and the machine's own.

    Args:
        named: `sandbox.ca_bundle`.
        environ: of this machine.
        workspace: no bundle lies in it: the agent could have written it.
        system: where the machine's own may be; the first there counts.

    Raises:
        ConfigError: the policy's bundle cannot be read, has no certificate, or lies in the workspace.
    """
    found: dict[bytes, None] = {}
    notes = []
    if named is not None:
        path = Path(named).expanduser()
        if path.resolve().is_relative_to(workspace.resolve()):
            raise ConfigError(
                f"sandbox.ca_bundle {named} lies in the folder that the agent works on; keep it elsewhere"
            )
        found |= dict.fromkeys(_certificates(path, "sandbox.ca_bundle"))
    else:
        for path in dict.fromkeys(Path(environ[name]) for name in VARIABLES if environ.get(name)):
            try:
                found |= dict.fromkeys(_certificates(path, "a variable of this machine names"))
            except ConfigError as exc:
                notes.append(f"a bundle of certificates is left out: {exc}")
    own = next((path for path in system if path.is_file()), None)
    if own is not None:
        found |= dict.fromkeys(_certificates(own, "this machine's bundle"))
    pem = b"".join(one + b"\n" for one in found)
    if len(pem) > MAX_BUNDLE_BYTES:
        raise ConfigError(f"the certificates together are larger than {MAX_BUNDLE_BYTES} bytes")
    return Bundle(pem, tuple(notes))


def _certificates(path: Path, what: str) -> list[bytes]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ConfigError(f"{what} {path}: not a file")
            data = file.read(MAX_BUNDLE_BYTES + 1)
    except OSError as exc:
        raise ConfigError(f"{what} {path}: {exc.strerror}") from exc
    if len(data) > MAX_BUNDLE_BYTES:
        raise ConfigError(f"{what} {path}: larger than {MAX_BUNDLE_BYTES} bytes")
    found = _CERTIFICATE.findall(data)
    if not found:
        raise ConfigError(f"{what} {path}: there is no PEM certificate in it")
    return found
