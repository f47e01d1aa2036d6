"""Private keys by their content, whatever they are called; and certificates, which everybody ships and nobody hides."""

from __future__ import annotations

import os
import re

from sandbox_agent.workspaces.nofollow import Place

HEAD_BYTES = 4096
"""A private key stands at the beginning of its file; text that mentions one further down is no key file."""

MAX_KEY_FILE_BYTES = 64 * 1024
MAX_BUNDLE_BYTES = 4 * 1024 * 1024

CONTENT_RULE = "a private key by its content"

_PRIVATE = re.compile(rb"^(-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----|PuTTY-User-Key-File-\d)", re.MULTILINE)
_BEGIN = re.compile(rb"^-----BEGIN ([A-Z0-9 ]+)-----", re.MULTILINE)
_PUBLIC = frozenset(
    (
        b"CERTIFICATE",
        b"TRUSTED CERTIFICATE",
        b"X509 CERTIFICATE",
        b"X509 CRL",
        b"CERTIFICATE REQUEST",
        b"PUBLIC KEY",
        b"RSA PUBLIC KEY",
        b"DH PARAMETERS",
    )
)
_MAY_BE_CERTIFICATES = (".pem", ".crt", ".cer", ".cert")

# Opening every file of a large folder would take longer than starting the container.
_NEVER_KEYS = re.compile(
    r"\.(py[ic]?|[mc]?js|[jt]sx?|go|rs|[ch]|cc|[ch]pp|java|kt|rb|php|cs|swift|scala|sh|html?|s?css|md|rst|svg|png|jpe?g"
    r"|gif|webp|ico|woff2?|ttf|lock|map|xml|vue|sql|ipynb|so|o|a|class|jar|gz|zip|xz|bz2|pdf|proto)\Z",
    re.IGNORECASE,
)


def worth_a_look(path: str, info: os.stat_result) -> bool:
    """Whether a regular file of this name and size may be a key file."""
    return 64 <= info.st_size <= MAX_KEY_FILE_BYTES and _NEVER_KEYS.search(path) is None


def is_private_key(place: Place) -> bool:
    """Whether a file begins as a private key does. Raises OSError when it cannot be read."""
    return _PRIVATE.search(place.read_bytes(HEAD_BYTES)) is not None


def is_public(path: str, info: os.stat_result, place: Place) -> bool:
    """Whether a file holds certificates or other public things only; False in doubt. Raises OSError."""
    if not path.lower().endswith(_MAY_BE_CERTIFICATES) or info.st_size > MAX_BUNDLE_BYTES:
        return False
    found = _BEGIN.findall(place.read_bytes(MAX_BUNDLE_BYTES + 1))
    return bool(found) and all(label in _PUBLIC for label in found)
