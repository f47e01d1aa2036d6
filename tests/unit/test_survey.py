"""What one look at a folder finds: what is there, what must be hidden, and what only looks like a secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from workspace_trees import Link, grow

from sandbox_agent.sandboxes.volumes import escape, overlay_data
from sandbox_agent.types import OverlayMount
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.keys import CONTENT_RULE
from sandbox_agent.workspaces.masks import Masks
from sandbox_agent.workspaces.survey import Survey, survey
from sandbox_agent.workspaces.tree import Tree

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMIIB" + b"x" * 60 + b"\n-----END CERTIFICATE-----\n"
KINDS = [(b"", b""), (b"RSA ", b""), (b"EC ", b""), (b"OPENSSH ", b""), (b"ENCRYPTED ", b""), (b"PGP ", b" BLOCK")]


def private(kind: bytes) -> bytes:
    return b"-----BEGIN " + kind + b"-----\n" + b"x" * 60 + b"\n-----END " + kind + b"-----\n"


def look(tmp_path: Path, shape: dict[str, object], *masks: str) -> Survey:
    with Tree(grow(tmp_path / "host", shape)) as tree:  # type: ignore[arg-type]
        return survey(tree, Masks(masks), uid=os.getuid())


@pytest.mark.parametrize(
    "kind",
    [b"%sPRIVATE KEY%s" % words for words in KINDS],
)
def test_a_private_key_is_known_by_its_content(kind: bytes, tmp_path: Path) -> None:
    """Whatever the file is called, and with whatever stands before the key."""
    found = look(tmp_path, {"deploy": b"Bag Attributes\n" + private(kind), "d/server.crt": private(kind)}, ".env")

    assert found.hidden == {"deploy": CONTENT_RULE, "d/server.crt": CONTENT_RULE}


def test_text_about_keys_is_no_key(tmp_path: Path) -> None:
    """Sources, documents, public keys, and a mention in the middle of a line stay readable."""
    shape = {
        "test_keys.py": private(b"PRIVATE KEY"),
        "README.md": private(b"PRIVATE KEY"),
        "notes": b"look for -----BEGIN PRIVATE KEY----- in the file" + b"x" * 60,
        "id.pub": private(b"PUBLIC KEY"),
        "large": b"x" * 200_000 + private(b"PRIVATE KEY"),
    }

    assert look(tmp_path, shape, ".env").hidden == {}


def test_certificates_are_shown_though_their_name_fits(tmp_path: Path) -> None:
    """But not with a key among them, nor what cannot be told."""
    shape = {
        "ca.pem": CERTIFICATE * 3,
        "both.pem": CERTIFICATE + private(b"RSA PRIVATE KEY"),
        "unknown.pem": b"something else",
        "empty.pem": b"",
        "server.key": CERTIFICATE,
    }

    assert set(look(tmp_path, shape, "*.pem", "*.key").hidden) == {"both.pem", "unknown.pem", "empty.pem", "server.key"}


def test_without_masks_nothing_is_hidden(tmp_path: Path) -> None:
    """Who switches the masks off gets the folder as it is."""
    assert look(tmp_path, {"deploy": private(b"PRIVATE KEY")}).hidden == {}


def test_other_names_of_a_secret_are_hidden_too(tmp_path: Path) -> None:
    """Hard links to it, and what a hidden link leads to, by however many steps; not what lies outside."""
    host = grow(
        tmp_path / "host",
        {
            ".env": b"S",
            "a/.env": Link("../b/two"),
            "b/two": Link("three"),
            "b/three": b"S2",
            "c/.env": Link("/etc/hostname"),
            "loop/.env": Link("x"),
            "loop/x": Link(".env"),
            "plain": b"",
        },
    )
    os.link(host / ".env", host / "hard")
    with Tree(host) as tree:
        found = survey(tree, Masks([".env"]), uid=os.getuid())

    assert set(found.hidden) == {".env", "hard", "a/.env", "b/three", "c/.env", "loop/.env"}


def test_a_hidden_folder_hides_all_in_it(tmp_path: Path) -> None:
    """Its files are covered one by one, and it counts as one among what is told."""
    found = look(tmp_path, {"vault/a": b"1", "vault/d/b": b"2", "other": b""}, "vault/")

    assert set(found.hidden) == {"vault", "vault/a", "vault/d", "vault/d/b"}
    assert sorted(found.covered) == ["vault/a", "vault/d/b"]
    assert found.manifest.masked == {"vault": "vault/"}


def test_nothing_is_hashed(tmp_path: Path) -> None:
    """A file's entry has its stamp only: looking at a large folder must be quick."""
    entry = look(tmp_path, {"f": b"content"}, ".env").manifest.entries["f"]

    assert (entry.kind, entry.sha256, entry.size_bytes) == (Kind.FILE, None, 7)
    assert entry.stamp is not None


def test_separators_in_paths_are_escaped() -> None:
    """As overlayfs wants it, so that a path is never taken for two, nor for another option."""
    mount = OverlayMount(("/m:1", "/l,ro"), "/u\\x", "/w")

    assert overlay_data(mount) == "lowerdir=/m\\:1:/l\\,ro,upperdir=/u\\\\x,workdir=/w"
    assert escape("/plain path") == "/plain path"
