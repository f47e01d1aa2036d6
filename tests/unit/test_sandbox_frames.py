"""What comes up from the container is hostile: it is parsed to fixed forms or the runner counts as dead."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.sandboxes import frames
from sandbox_agent.sandboxes.base import FileChangedError, FileKind, NotRegularFileError
from sandbox_agent.sandboxes.calls import Call, ExecCall, FileCall, ResolveCall, StreamCall
from sandbox_agent.sandboxes.frames import Frame, FrameReader, MalformedError
from sandbox_agent.sandboxes.runner import wire

RESULT = wire.RESULT_BODY.pack(0, 0, 3, 0, 0.5, 0, 0, 0.0, 0)
META = wire.META_BODY.pack(0o644, 3, 3, bytes(32))
PATH = wire.PATH_BODY.pack(wire.KIND_FILE, 1, 0o644, 5) + b"/a"


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=50))), st.data())
def test_frames_come_out_as_they_were_cut(sent: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    """However the stream is divided."""
    stream = b"".join(wire.frame(kind, call, body) for kind, call, body in sent)
    reader, got = FrameReader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += reader.feed(stream[:size])
        stream = stream[size:]

    assert got == [Frame(*frame) for frame in sent]


def test_a_frame_longer_than_any_of_ours_is_malformed() -> None:
    """Before its body is waited for."""
    with pytest.raises(MalformedError):
        FrameReader().feed(wire.HEADER.pack(wire.MAX_BODY_BYTES + 1, wire.STDOUT, 1))


@given(st.binary(max_size=4000))
def test_no_bytes_do_more_than_be_malformed(stream: bytes) -> None:
    """Frames or MalformedError, and never more kept than one frame."""
    reader = FrameReader()
    try:
        for frame in reader.feed(stream):
            assert len(frame.body) <= wire.MAX_BODY_BYTES
    except MalformedError:
        pass


@given(
    st.sampled_from(["exec", "stream", "file", "resolve"]),
    st.lists(
        st.tuples(
            st.integers(16, 28),
            st.one_of(st.binary(max_size=60), st.sampled_from([RESULT, META, PATH, b"abc", wire.COUNT.pack(1)])),
        ),
        max_size=12,
    ),
)
def test_a_call_takes_what_belongs_to_it_or_is_malformed(kind: str, sent: list[tuple[int, bytes]]) -> None:
    """Any frames in any order: bounded memory, one end, no other error."""
    call: Call = {"exec": ExecCall(8), "stream": StreamCall(), "file": FileCall(4), "resolve": ResolveCall(2)}[kind]
    try:
        for number, body in sent:
            call.take(number, body)
    except MalformedError:
        return
    if isinstance(call, ExecCall):
        assert len(call.stdout) <= 8
        assert len(call.stderr) <= 8
    if isinstance(call, FileCall):
        assert len(call.data) <= 4
    if isinstance(call, ResolveCall):
        assert len(call.places) <= 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        RESULT + b"x",
        RESULT[:-1],
        wire.RESULT_BODY.pack(-1, 0, 0, 0, 0.0, 0, 0, 0.0, 0),
        wire.RESULT_BODY.pack(256, 0, 0, 0, 0.0, 0, 0, 0.0, 0),
        wire.RESULT_BODY.pack(0, 8, 0, 0, 0.0, 0, 0, 0.0, 0),
        wire.RESULT_BODY.pack(0, 0, 0, 0, float("nan"), 0, 0, 0.0, 0),
        wire.RESULT_BODY.pack(0, 0, 0, 0, float("inf"), 0, 0, 0.0, 0),
        wire.RESULT_BODY.pack(0, 0, 0, 0, -1.0, 0, 0, 0.0, 0),
        wire.RESULT_BODY.pack(0, 0, 0, 0, 0.0, 0, 0, -1.0, 0),
        wire.RESULT_BODY.pack(0, 0, 0, 0, 0.0, 0, 0, float("nan"), 0),
    ],
)
def test_a_result_out_of_range_is_malformed(body: bytes) -> None:
    """Every field has its bounds."""
    with pytest.raises(MalformedError):
        frames.ended(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        PATH[:-2],
        wire.PATH_BODY.pack(9, 1, 0o644, 5) + b"/a",
        wire.PATH_BODY.pack(1, 1, 0o10000, 5) + b"/a",
        wire.PATH_BODY.pack(1, 1, 0o644, 5) + b"relative",
        wire.PATH_BODY.pack(1, 1, 0o644, 5) + b"/nul\0",
    ],
)
def test_a_path_out_of_range_is_malformed(body: bytes) -> None:
    """A resolved path is absolute and could be a name."""
    with pytest.raises(MalformedError):
        frames.place(body)


def test_a_path_keeps_its_bytes() -> None:
    """Those that are no UTF-8 as surrogate escapes."""
    body = wire.PATH_BODY.pack(wire.KIND_DIRECTORY, 1, 0o755, 5) + b"/bad \xff"

    assert frames.place(body) == frames.Place(FileKind.DIRECTORY, 1, 0o755, 5, "/bad \udcff")


def test_a_file_larger_than_asked_for_is_malformed() -> None:
    """Announced, or sent beyond what was announced."""
    with pytest.raises(MalformedError):
        FileCall(2).take(wire.META, META)
    call = FileCall(3)
    call.take(wire.META, META)
    with pytest.raises(MalformedError):
        call.take(wire.STDOUT, b"1234")


def test_a_file_shorter_than_announced_is_malformed() -> None:
    """An end that comes early is not an end."""
    call = FileCall(3)
    call.take(wire.META, META)
    call.take(wire.STDOUT, b"12")
    with pytest.raises(MalformedError):
        call.take(wire.DONE, b"")


@pytest.mark.parametrize(("output", "total"), [(b"12", 3), (b"123", 2), (b"12345678", 9)])
def test_output_that_is_not_as_long_as_said_is_malformed(output: bytes, total: int) -> None:
    """Kept is everything, or as much as may be kept."""
    call = ExecCall(8)
    call.take(wire.STDOUT, output)
    body = wire.RESULT_BODY.pack(0, 0, total, 0, 0.0, 0, 0, 0.0, 0)
    if (output, total) == (b"12345678", 9):
        call.take(wire.RESULT, body)
        assert call.finished
    else:
        with pytest.raises(MalformedError):
            call.take(wire.RESULT, body)


def test_more_output_than_was_asked_for_is_malformed() -> None:
    """A stream has a window."""
    call = StreamCall()
    for _ in range(wire.WINDOW_BYTES // wire.CHUNK_BYTES):
        call.take(wire.STDOUT, bytes(wire.CHUNK_BYTES))
    with pytest.raises(MalformedError):
        call.take(wire.STDOUT, b"x")


def test_more_taken_than_was_sent_is_malformed() -> None:
    """Acknowledgements are counted."""
    call = ExecCall(8)
    call.unacknowledged = 5
    call.take(wire.ACK, wire.COUNT.pack(5))
    with pytest.raises(MalformedError):
        call.take(wire.ACK, wire.COUNT.pack(1))


def test_nothing_comes_after_the_end() -> None:
    """Not even a second end."""
    call = ResolveCall(0)
    call.take(wire.DONE, b"")
    with pytest.raises(MalformedError):
        call.take(wire.DONE, b"")


def test_a_failure_is_the_error_of_the_contract() -> None:
    """By kind, by errno where the system said it, with the path."""
    changed = frames.failure(wire.FAIL_BODY.pack(wire.FAIL_FILE_CHANGED, 116) + b"why").as_os_error("/p")
    other = frames.failure(wire.FAIL_BODY.pack(wire.FAIL_NOT_REGULAR, 22) + b"why").as_os_error("/p")
    system = frames.failure(wire.FAIL_BODY.pack(wire.FAIL_OS, 13) + b"why").as_os_error("/p")

    assert (type(changed), type(other), type(system)) == (FileChangedError, NotRegularFileError, PermissionError)
    assert (system.filename, system.strerror) == ("/p", "why")


@pytest.mark.parametrize("body", [b"", struct.pack(">BH", 7, 0), wire.FAIL_BODY.pack(0, 0) + bytes(1000)])
def test_a_failure_out_of_range_is_malformed(body: bytes) -> None:
    """Unknown kinds and long texts."""
    with pytest.raises(MalformedError):
        frames.failure(body)
