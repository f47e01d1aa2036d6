"""What the process in the container says of files has a form, and what does not have it ends the process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import anyio
import pytest

from sandbox_agent.engine.channel import Channel, HandsLostError
from sandbox_agent.engine.hands import Given, Hands
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.workspaces.base import Kind, Owner
from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.snapshot import LOST_TOO_LARGE, OWN, Node
from sandbox_agent.workspaces.store import Store
from sandbox_agent.workspaces.walked import TooManyEntriesError

NOW_NS = 9_000_000_000
STATE = b"f 644 7 7 1 11 4 1.000000000 2.000000000 "
LATER = b"f 644 7 7 1 11 4 1.000000000 8.990000000 "


def frame(letter: bytes, body: bytes = b"") -> bytes:
    return wire.HEADER.pack(len(body), letter) + body


def whole(now: bytes = b"%d" % NOW_NS, before: bytes = STATE, after: bytes = STATE, data: bytes = b"text") -> bytes:
    return frame(wire.WHOLE, b"\0".join((now, before, after, data)))


class Saying:
    """A sandbox, and the one process in it, which says this whatever it is asked."""

    def __init__(self, said: bytes) -> None:
        self.said = [frame(wire.HELLO), said]

    async def open(self, argv: Sequence[str], *, cwd: str) -> Saying:
        return self

    async def send(self, data: bytes) -> None:
        pass

    async def receive(self) -> bytes:
        return self.said.pop(0) if self.said else b""

    async def aclose(self) -> None:
        self.said.clear()

    async def exit_code(self) -> int:
        return 0


def hands(said: bytes) -> Hands:
    return Hands(cast(Sandbox, Saying(said)), Owner(7, 7))


async def give(store: Store, said: bytes, count: int = 1, limit_bytes: int = 1000) -> list[Given]:
    return await hands(said + frame(wire.END)).give(["f"] * count, store, limit_bytes, most_bytes=1000)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


async def test_small_files_come_in_one_frame_each(store: Store) -> None:
    """Their content is in the store, and counts once."""
    one, same, empty = await give(store, whole() + whole() + whole(before=STATE.replace(b" 4 ", b" 0 "), data=b""), 3)
    assert one.node is not None
    assert empty.node is not None
    node = Node(Kind.FILE, 0o644, 4, one.node.sha256, None, None, None, 10**9, OWN, OWN, 11, 1, 2 * 10**9)
    assert one == Given(node, added_bytes=4, cost_bytes=4)
    assert same == Given(node, added_bytes=0, cost_bytes=4)
    assert store.read(one.node.sha256 or "", 4) == b"text"
    assert (empty.node.size_bytes, empty.stable) == (0, False)


async def test_a_file_that_changed_while_it_was_read_or_just_before_is_told(store: Store) -> None:
    """Its times prove nothing then."""
    torn, racy = await give(store, whole(after=LATER) + whole(before=LATER, after=LATER), 2)
    assert (torn.stable, racy.stable, racy.racy) == (False, True, True)


async def test_what_is_more_than_may_be_added_is_not_kept(store: Store) -> None:
    """Nor is it in the store, while the next one that fits is."""
    small = whole(before=STATE.replace(b" 4 ", b" 2 "), after=STATE.replace(b" 4 ", b" 2 "), data=b"ab")
    large, fits = await give(store, whole() + small, 2, limit_bytes=3)
    assert large == Given(lost=LOST_TOO_LARGE, cost_bytes=4)
    assert fits.added_bytes == 2


@pytest.mark.parametrize(
    "said",
    [
        whole(now=b"now"),
        whole(now=b"9" * 5000),
        whole(before=b"no state"),
        whole(after=b"d 755 7 7 1 11 4 1.000000000 2.000000000 "),
        whole(data=b"longer than it says"),
        whole(data=b""),
        whole(before=STATE.replace(b" 4 ", b" 2000 "), data=b"x" * 2000),
        frame(wire.WHOLE),
        frame(wire.WHOLE, b"\0\0"),
        frame(wire.WALKED, b"f"),
        frame(wire.STATE, b"9" * 5000 + b" " + STATE),
        whole()[:-2],
        wire.HEADER.pack(2**31, wire.WHOLE),
    ],
)
async def test_an_answer_of_another_form_ends_the_process(store: Store, said: bytes) -> None:
    """What came before it is not kept either: who says such a thing is not our program."""
    with pytest.raises(HandsLostError):
        await give(store, whole() + said, 2)
    assert not store.folder.exists()


async def test_a_tree_of_too_many_entries_is_said_to_be(store: Store) -> None:
    """In one line, and the process stays."""
    with pytest.raises(TooManyEntriesError, match="more than 1,000,000 entries"):
        await hands(frame(wire.END, b"many")).walk((), whole=False)


async def test_an_empty_part_of_a_walk_is_no_part_of_one() -> None:
    """There could be any number of them."""
    with pytest.raises(HandsLostError):
        await hands(frame(wire.WALKED) + frame(wire.END, b"all")).walk((), whole=True)


class Dripping(Saying):
    """Never says anything wrong, and never comes to an end."""

    async def receive(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        return self.said.pop(0) if len(self.said) > 1 else frame(wire.WALKED, b"x")


async def test_an_answer_without_end_is_given_up() -> None:
    """Each of its frames is in time, the whole of it is not."""
    channel = Channel(cast(Sandbox, Dripping(b"")), in_all_s=0.05)
    await channel.send(wire.WALK, b"all")
    with anyio.fail_after(20):
        with pytest.raises(HandsLostError, match="in time"):  # noqa: PT012 - which of the frames is the last is not known
            while True:
                await channel.receive(60)
