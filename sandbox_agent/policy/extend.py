"""Finding the document of a name or path, and those that it extends: a chain of layers, the farthest first."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.layers import Kind, Layer, PolicyFaults, Setting, layer_of_document
from sandbox_agent.policy.source import Document, read_document, shipped_dir, shipped_names

MAX_DEPTH = 8
MAX_FILES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Reader:
    """How the files of one layer are read.

    `trusted` raises `PolicyError` for a file that may not be a policy; `examples` has those of shipped ones checked,
    too; `own_folder` is where files lie that may name hooks for the host; `faults`, where it is given, takes what is
    wrong in a document instead of its being raised.
    """

    kind: Kind
    trusted: Callable[[Path, str], None]
    own_folder: Path | None = None
    examples: bool = False
    faults: list[PolicyError] | None = field(default=None, compare=False)

    def chain(self, name_or_path: str) -> list[Layer]:
        """The layers of a policy: what it extends, then itself.

        Raises:
            PolicyError: there is no such policy, or something in it or in what it extends is wrong.
        """
        return self.chain_of(*self._find(name_or_path, None))

    def chain_of(self, document: Document, kind: Kind) -> list[Layer]:
        """The layers of a document that is read already."""
        found: list[Layer] = []
        self._follow(document, kind, (), found)
        return found

    def _follow(self, document: Document, kind: Kind, trail: tuple[str, ...], found: list[Layer]) -> None:
        layer = self._layer(document, kind)
        trail = (*trail, _identity(document))
        for extended in layer.extends:
            base, base_kind = self._extended(extended, document, kind)
            if _identity(base) in trail:
                names = " -> ".join(Path(one).name for one in (*trail, _identity(base)))
                raise PolicyError(f"extends goes round in a circle: {names}", location=extended.location)
            if len(trail) >= MAX_DEPTH:
                raise PolicyError(f"extends goes deeper than {MAX_DEPTH} files", location=extended.location)
            if len(found) >= MAX_FILES:
                raise PolicyError(f"extends reads more than {MAX_FILES} files", location=extended.location)
            self._follow(base, base_kind, trail, found)
        found.append(layer)

    def _layer(self, document: Document, kind: Kind) -> Layer:
        # A hundred examples cost a third of a second, one parser process each; those of shipped files never change,
        # and the tests hold them.
        examples = self.examples or kind != "shipped"
        folder = None if document.path is None else document.path.parent
        own = folder is not None and self.own_folder is not None and folder.is_relative_to(self.own_folder)
        try:
            return layer_of_document(document, kind, examples=examples, host_folder=str(folder) if own else None)
        except PolicyFaults as exc:
            if self.faults is None:
                raise
            self.faults.extend(exc.faults)
            return Layer(kind, document.name, document.name, extends=_named_in(document), path=document.path)

    def _extended(self, extended: Setting, document: Document, kind: Kind) -> tuple[Document, Kind]:
        name = str(extended.value)
        if document.path is None and not _NAME.fullmatch(name):
            raise PolicyError(f"extends {name}: only a file can extend a file", location=extended.location)
        try:
            return self._find(name, document)
        except PolicyError as exc:
            if exc.location is not None and re.search(r":\d+$", exc.location):
                raise
            raise PolicyError(f"extends {name}: {exc}", location=extended.location) from exc

    def _find(self, name_or_path: str, near: Document | None) -> tuple[Document, Kind]:
        if not name_or_path:
            raise PolicyError("the name of the policy is empty")
        if not _NAME.fullmatch(name_or_path):
            shown = path = os.path.expanduser(name_or_path)
            if near is not None and near.path is not None:
                path = os.path.join(near.path.parent, path)
                shown = os.path.normpath(os.path.join(os.path.dirname(near.name), shown))
            document = read_document(Path(path), shown)
            self.trusted(Path(path), shown)
            return document, self.kind
        if name_or_path in shipped_names():
            file = shipped_dir() / f"{name_or_path}.yaml"
            return read_document(file, f"policies/{name_or_path}.yaml"), "shipped"
        there = ", ".join(shipped_names())
        folder = Path() if near is None or near.path is None else near.path.parent
        as_file = f"; for the file write ./{name_or_path}" if (folder / name_or_path).exists() else ""
        raise PolicyError(f"there is no policy named {name_or_path!r}; there are {there}{as_file}")


def _identity(document: Document) -> str:
    return os.path.realpath(document.path) if document.path is not None else document.name


def _named_in(document: Document) -> tuple[Setting, ...]:
    """What a document with faults extends, as far as that can be told."""
    given = document.data.get("extends")
    names = given if isinstance(given, list) else [given]
    return tuple(
        Setting(name, document.location(("extends", index)))
        for index, name in enumerate(names)
        if isinstance(name, str) and name
    )
