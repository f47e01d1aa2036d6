"""NotebookEdit on a sandbox in memory: one cell changes, in the file's own style, and no other byte does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.testing.tool_calls import call, context, refused, said
from sandbox_agent.tools import notebook_edit
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.notebook_edit import TOOL as NOTEBOOK_EDIT
from sandbox_agent.tools.notebook_text import parse
from sandbox_agent.tools.read import TOOL as READ
from sandbox_agent.types import PathAccess, Subject

PATH = "/workspace/n.ipynb"
CODE: dict[str, Any] = {
    "cell_type": "code",
    "execution_count": 3,
    "id": "c1",
    "metadata": {"tags": ["x"]},
    "outputs": [{"name": "stdout", "output_type": "stream", "text": ["1\n"]}],
    "source": ["a = 1\n", "print(a)"],
}
TEXT: dict[str, Any] = {"cell_type": "markdown", "id": "m1", "metadata": {}, "source": ["# Tïtle\n", "text"]}
TAIL: dict[str, Any] = {"metadata": {"kernelspec": {"name": "py"}}, "nbformat": 4, "nbformat_minor": 5}


def notebook(*cells: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"cells": list(cells), **TAIL, **others}


def as_jupyter(content: dict[str, Any]) -> bytes:
    """The bytes that Jupyter would write."""
    return json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True).encode() + b"\n"


async def known(data: bytes) -> tuple[FakeSandbox, ToolContext]:
    """A notebook that the model has read."""
    box = FakeSandbox({PATH: data})
    ctx = context(box)
    await call(READ, ctx, {"file_path": PATH})
    assert PATH in ctx.known_files
    return box, ctx


async def after(data: bytes, **fields: Any) -> bytes:
    """The file after a call that must succeed."""
    box, ctx = await known(data)
    await said(NOTEBOOK_EDIT, ctx, notebook_path=PATH, **fields)
    return (await box.read_file(PATH)).data


async def test_a_replaced_cell_is_as_jupyter_would_write_it() -> None:
    """The source as lines, the old outputs gone, everything else byte for byte."""
    wanted = {**CODE, "execution_count": None, "outputs": [], "source": ["b = 2\n", "\n", "print('ü', b)\n"]}
    found = await after(as_jupyter(notebook(TEXT, CODE)), cell_id="c1", new_source="b = 2\n\nprint('ü', b)\n")
    assert found == as_jupyter(notebook(TEXT, wanted))


async def test_the_result_names_the_cell_and_what_was_lost() -> None:
    """And the file is known afterwards, so the next call needs no Read."""
    box, ctx = await known(as_jupyter(notebook(TEXT, CODE)))
    text = await said(NOTEBOOK_EDIT, ctx, notebook_path=PATH, cell_id="c1", new_source="b")
    assert text == f"Replaced the source of cell 1 (id c1) without the 1 outputs of its old source in {PATH}."
    text = await said(NOTEBOOK_EDIT, ctx, notebook_path=PATH, cell_id="cell-0", edit_mode="delete")
    assert text == f"Deleted cell 0 (id m1); later cells count one less in {PATH}."
    assert json.loads((await box.read_file(PATH)).data)["cells"][0]["source"] == ["b"]


@pytest.mark.parametrize(
    ("cell_id", "kind", "wanted"),
    [
        ("c1", "markdown", {"cell_type": "markdown", "id": "c1", "metadata": {"tags": ["x"]}, "source": ["new"]}),
        (
            "m1",
            "code",
            {
                "cell_type": "code",
                "execution_count": None,
                "id": "m1",
                "metadata": {},
                "outputs": [],
                "source": ["new"],
            },
        ),
    ],
)
async def test_a_cell_can_become_of_the_other_kind(cell_id: str, kind: str, wanted: dict[str, Any]) -> None:
    """With exactly the keys that its kind has, in their order."""
    found = await after(as_jupyter(notebook(TEXT, CODE)), cell_id=cell_id, new_source="new", cell_type=kind)
    cells = [wanted if cell["id"] == cell_id else cell for cell in (TEXT, CODE)]
    assert found == as_jupyter(notebook(*cells))


@pytest.mark.parametrize(("cell_id", "number"), [(None, 0), ("m1", 1), ("c1", 2), ("cell-1", 2), ("0", 1)])
async def test_an_inserted_cell_stands_behind_the_one_that_is_named(cell_id: str | None, number: int) -> None:
    """At the beginning where none is; with an id that no other cell has."""
    fields = {} if cell_id is None else {"cell_id": cell_id}
    before = as_jupyter(notebook(TEXT, CODE))
    found = await after(before, edit_mode="insert", cell_type="code", new_source="x\ny", **fields)
    new = json.loads(found)["cells"][number]
    cells = [TEXT, CODE]
    cells.insert(
        number,
        {**CODE, "id": new["id"], "execution_count": None, "metadata": {}, "outputs": [], "source": ["x\n", "y"]},
    )
    assert found == as_jupyter(notebook(*cells))
    assert new["id"] not in ("m1", "c1")
    assert found == await after(before, edit_mode="insert", cell_type="code", new_source="x\ny", **fields)


@pytest.mark.parametrize("gone", [0, 1, 2])
async def test_a_deleted_cell_leaves_the_others_as_they_are(gone: int) -> None:
    """The first, one in the middle, the last."""
    cells = [TEXT, CODE, {**TEXT, "id": "m2"}]
    found = await after(as_jupyter(notebook(*cells)), cell_id=cells[gone]["id"], edit_mode="delete")
    assert found == as_jupyter(notebook(*(cell for cell in cells if cell is not cells[gone])))


async def test_the_only_cell_can_go_and_come_back() -> None:
    """An empty notebook is one."""
    empty = await after(as_jupyter(notebook(TEXT)), cell_id="m1", edit_mode="delete")
    assert empty == as_jupyter(notebook())
    filled = await after(empty, edit_mode="insert", cell_type="markdown", new_source="# Tïtle\ntext")
    new = json.loads(filled)["cells"][0]
    assert filled == as_jupyter(notebook({**TEXT, "id": new["id"]}))


COMPACT = json.dumps(notebook(TEXT, CODE), separators=(",", ":")).encode()
STYLES = {
    "compact": COMPACT,
    "one line": json.dumps(notebook(TEXT, CODE)).encode(),
    "crlf": as_jupyter(notebook(TEXT, CODE)).replace(b"\n", b"\r\n"),
    "tabs": json.dumps(notebook(TEXT, CODE), indent="\t").encode(),
    "bom": b"\xef\xbb\xbf" + as_jupyter(notebook(TEXT, CODE)),
    "ascii": json.dumps(notebook(TEXT, CODE), indent=4).encode(),
    "text": as_jupyter(notebook({**TEXT, "source": "# Tïtle"}, {**CODE, "source": "a"})),
    "unsorted": json.dumps(
        notebook(dict(reversed(TEXT.items())), dict(reversed(CODE.items())), x=float("nan"))
    ).encode(),
}


@pytest.mark.parametrize("style", list(STYLES))
async def test_the_style_of_the_file_stays(style: str) -> None:
    """Indentation, line ends, escapes, BOM, texts instead of lists, order of keys: there and back is the same file."""
    before = STYLES[style]
    box, ctx = await known(before)
    source = "# Tïtle" if style == "text" else "# Tïtle\ntext"
    await said(NOTEBOOK_EDIT, ctx, notebook_path=PATH, cell_id="m1", new_source="ä\nb")
    changed = (await box.read_file(PATH)).data
    await said(NOTEBOOK_EDIT, ctx, notebook_path=PATH, cell_id="m1", new_source=source)
    assert (await box.read_file(PATH)).data == before
    assert changed.isascii() == before.isascii()
    await said(
        NOTEBOOK_EDIT, ctx, notebook_path=PATH, cell_id="m1", edit_mode="insert", cell_type="markdown", new_source="n"
    )
    inserted = json.loads((await box.read_file(PATH)).data.decode("utf-8-sig"))["cells"][1]
    assert list(inserted) == list(json.loads(before.decode("utf-8-sig"))["cells"][0])
    await said(NOTEBOOK_EDIT, ctx, notebook_path=PATH, cell_id=inserted["id"], edit_mode="delete")
    assert (await box.read_file(PATH)).data == before


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not valid JSON (line 1, column 1"),
        (b"print(1)", "not valid JSON"),
        (b"[]", "not valid JSON"),
        (b"{}", "a format that it does not name"),
        (b'{"cells": [], "nbformat": 4} x', "extra data"),
        (b'{"cells": [,], "nbformat": 4}', "not valid JSON"),
        (b'{"cells": [{}, ', "not valid JSON"),
        pytest.param(b'{"cells": ' + b"[" * 100_000, "nested too deeply", id="deep"),
        pytest.param(b'{"cells": [' + b"9" * 5000 + b'], "nbformat": 4}', "a number that is too long", id="number"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"worksheets": [], "nbformat": 3, "nbformat_minor": 0}', "notebook of format 3, and only format 4"),
        (b'{"cells": [], "nbformat": 5}', "notebook of format 5"),
        (b'{"cells": {}, "nbformat": 4}', "no list of cells"),
        (b'{"nbformat": 4}', "no list of cells"),
        (b'{"cells": [1], "nbformat": 4}', "cell 0 is no object"),
        (b'{"cells": [], "cells": [], "nbformat": 4}', "two keys 'cells'"),
        (b'{"cells": [{"source": "a", "source": "b", "cell_type": "raw"}], "nbformat": 4}', "two keys 'source'"),
        (b'{"cells": [{"id": "x"}], "nbformat": 4}', "no cell_type or no source"),
        pytest.param(b"{%s}" % b", ".join(b'"%d": 1' % one for one in range(1001)), "more than 1,000 keys", id="keys"),
        pytest.param(b'{"cells": [%s], "nbformat": 4}' % b", ".join([b"{}"] * 50_001), "50,000 cells", id="cells"),
        (b'{"cells": [{"source": "a", "cell_type": "odd"}], "nbformat": 4}', "of the kind 'odd'"),
    ],
)
async def test_what_is_no_notebook_to_be_edited_stays_as_it_is(data: bytes, why: str) -> None:
    """The text says what is wrong with it."""
    box = FakeSandbox({PATH: data})
    ctx = context(box)
    ctx.known_files[PATH] = (await box.read_file(PATH)).sha256
    text = await refused(NOTEBOOK_EDIT, ctx, notebook_path=PATH, cell_id="cell-0", new_source="x")
    assert why in text
    assert text.startswith(f"{PATH} was not changed: ")
    assert (await box.read_file(PATH)).data == data


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"cell_id": "zz", "new_source": "x"}, "no cell 'zz'; its cells are: m1, cell-1, d, d"),
        ({"cell_id": "cell-9", "new_source": "x"}, "no cell 'cell-9'"),
        ({"cell_id": "-1", "new_source": "x"}, "no cell '-1'"),
        ({"cell_id": "d", "new_source": "x"}, "2 cells have the id 'd'; name one of them as cell-2, cell-3."),
        ({"cell_id": "m1"}, "new_source is missing"),
        ({"new_source": "x"}, "cell_id is missing: say which cell to replace"),
        ({"edit_mode": "delete"}, "say which cell to delete"),
        ({"edit_mode": "insert", "new_source": "x"}, "cell_type is missing"),
        ({"cell_id": "m1", "new_source": "# Tïtle\ntext"}, "would stay as it is"),
        ({"cell_id": "cell-1", "cell_type": "code", "new_source": "x"}, "attachments"),
        ({"cell_id": "m1", "new_source": "x", "notebook_path": "/workspace/a.json"}, "is no .ipynb file. Use Edit"),
        ({"cell_id": "m1", "new_source": "x", "cell_type": "raw"}, "field `cell_type`"),
    ],
)
async def test_a_call_that_names_no_cell_or_no_change_is_refused(fields: dict[str, Any], why: str) -> None:
    """Cells without an id, and several with one, are named by their number."""
    anonymous = {"cell_type": "markdown", "metadata": {}, "source": [], "attachments": {"a": {}}}
    twin = {**TEXT, "id": "d"}
    box, ctx = await known(as_jupyter(notebook(TEXT, anonymous, twin, twin)))
    before = (await box.read_file(PATH)).data
    assert why in await refused(NOTEBOOK_EDIT, ctx, **{"notebook_path": PATH, **fields})
    assert (await box.read_file(PATH)).data == before


async def test_cells_without_an_id_are_named_by_the_number_that_read_shows() -> None:
    """And a new one among them gets none, before format 4.5."""
    cells = [{key: value for key, value in cell.items() if key != "id"} for cell in (TEXT, CODE)]
    before = as_jupyter(notebook(*cells, nbformat_minor=4))
    found = await after(before, cell_id="cell 0", edit_mode="insert", cell_type="markdown", new_source="n")
    new = {"cell_type": "markdown", "metadata": {}, "source": ["n"]}
    assert found == as_jupyter(notebook(cells[0], new, cells[1], nbformat_minor=4))


async def test_a_notebook_that_was_not_read_or_has_changed_is_not_written() -> None:
    """By its hash, as for Edit; and what changes in between is found by the swap."""
    box = FakeSandbox({PATH: as_jupyter(notebook(TEXT))})
    fields = {"notebook_path": PATH, "cell_id": "m1", "new_source": "x"}
    assert "not read" in await refused(NOTEBOOK_EDIT, context(box), **fields)
    box, ctx = await known(as_jupyter(notebook(TEXT)))
    box.files.put(PATH, as_jupyter(notebook(CODE)))
    assert "has changed since" in await refused(NOTEBOOK_EDIT, ctx, **fields)
    assert "does not exist" in await refused(NOTEBOOK_EDIT, ctx, **{**fields, "notebook_path": "/workspace/no.ipynb"})


async def test_a_notebook_that_is_too_large_is_refused_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is parsed: only so much of it is ever read."""
    monkeypatch.setattr(notebook_edit, "MAX_BYTES", 100)
    _, ctx = await known(as_jupyter(notebook(TEXT)))
    assert "and 100 is the most here" in await refused(
        NOTEBOOK_EDIT, ctx, notebook_path=PATH, cell_id="m1", new_source="x"
    )


async def test_it_is_judged_as_an_edit_of_its_path() -> None:
    """So that the rules for edits and the mode acceptEdits speak of it."""
    value = NOTEBOOK_EDIT.input_model.model_validate({"notebook_path": "n.ipynb", "cell_id": "c1", "new_source": "x"})
    subject = NOTEBOOK_EDIT.subject(value, context(FakeSandbox()))
    assert subject == Subject(f"{PATH} (replace c1)", paths=(PathAccess(PATH, write=True),))
    assert (NOTEBOOK_EDIT.edits(value), NOTEBOOK_EDIT.read_only(value)) == (True, False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
CELLS = st.lists(
    st.builds(
        lambda extra, kind, source, outputs: (
            extra
            | {"cell_type": kind, "source": source}
            | ({"outputs": outputs, "execution_count": 1} if kind == "code" else {})
        ),
        st.dictionaries(st.text(max_size=4), JSON, max_size=2),
        st.sampled_from(["code", "markdown", "raw"]),
        st.text(max_size=8) | st.lists(st.text(max_size=4), max_size=3),
        st.lists(JSON, max_size=2),
    ),
    min_size=1,
    max_size=4,
)


@given(
    cells=CELLS,
    others=st.dictionaries(st.text(max_size=4), JSON, max_size=2),
    indent=st.sampled_from([None, 1, 4, "\t"]),
    ascii_only=st.booleans(),
    source=st.text(max_size=12),
    kind=st.sampled_from(["code", "markdown"]),
    data=st.data(),
)
def test_only_what_was_meant_has_changed(
    cells: list[dict[str, Any]],
    others: dict[str, Any],
    indent: int | str | None,
    ascii_only: bool,
    source: str,
    kind: str,
    data: st.DataObject,
) -> None:
    """Whatever notebook it is, and however written: parsed again it is the old one with that one cell other."""
    content = {**others, "cells": cells, "nbformat": 4, "nbformat_minor": 2}
    text = json.dumps(content, indent=indent, ensure_ascii=ascii_only)
    found = parse(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode())
    content = json.loads(found.text)
    number = data.draw(st.integers(0, len(cells) - 1))
    old = content["cells"]

    deleted = json.loads(found.deleted(number))
    assert deleted == {**content, "cells": old[:number] + old[number + 1 :]}

    inserted = json.loads(found.inserted(number, source, kind)[0])
    assert inserted["cells"][:number] + inserted["cells"][number + 1 :] == old
    assert "".join(inserted["cells"][number]["source"]) == source

    replaced = json.loads(found.replaced(number, source, kind))
    new = replaced["cells"].pop(number)
    assert replaced == {**content, "cells": old[:number] + old[number + 1 :]}
    assert ("".join(new["source"]), new["cell_type"]) == (source, kind)
    dropped = {"cell_type", "source", "outputs", "execution_count", "attachments"}
    assert {k: v for k, v in new.items() if k not in dropped} == {
        k: v for k, v in old[number].items() if k not in dropped
    }
    assert ("outputs" in new, "execution_count" in new) == ((kind == "code"),) * 2
