import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policies.answer.frames import Frame, Framer, parse
from tests.rows import over


def frames_of(framer: Framer, chunk: bytes) -> list[Frame]:
    return [parse(raw) for raw in framer.split(chunk)]


def fed(data: bytes, size: int | None = None, limit: int = 1 << 20) -> Any:
    framer = Framer(limit)
    size = size or max(len(data), 1)
    frames = [frame for at in range(0, len(data), size) for frame in frames_of(framer, data[at : at + size])]
    return frames, framer


@over("end", [b"\n", b"\r\n", b"\r"])
@over("size", [1, 2, 3, 7, 1000])
def test_every_line_end_and_chunking_gives_the_same_frames(end: bytes, size: int) -> None:
    data = b"event: a" + end + b"data: 1" + end * 2 + b"data:2" + end + b"data: 3" + end * 2 + b"data: tail"
    frames, framer = fed(data, size)
    assert [(frame.event, frame.data) for frame in frames] == [(b"a", b"1"), (b"", b"2\n3")]
    assert framer.rest == b"data: tail"
    assert b"".join(frame.raw for frame in frames) + framer.rest == data


def test_a_crlf_split_over_chunks_is_one_line_end() -> None:
    framer = Framer()
    assert frames_of(framer, b"data: 1\r\n\r") == []
    assert frames_of(framer, b"\ndata: 2") == [Frame(b"", b"1", (), b"data: 1\r\n\r\n")]


def test_a_byte_order_mark_stays_in_the_raw_bytes_only() -> None:
    frames, _ = fed(b"\xef\xbb\xbfdata: 1\n\n", 1)
    assert frames == [Frame(b"", b"1", (), b"\xef\xbb\xbfdata: 1\n\n")]


def test_a_comment_with_a_single_newline_belongs_to_the_frame_that_follows() -> None:
    frames, _ = fed(b": ping\ndata: 1\n\n")
    assert frames == [Frame(b"", b"1", (b"ping",), b": ping\ndata: 1\n\n")]


def test_the_status_of_a_native_error_is_a_comment() -> None:
    (frame,), _ = fed(b'id:1\nevent:error\n:HTTP_STATUS/429\ndata:{"code":"x"}\n\n')
    assert (frame.event, frame.data, frame.comments) == (b"error", b'{"code":"x"}', (b"HTTP_STATUS/429",))


def test_a_frame_without_data_is_a_frame() -> None:
    frames, _ = fed(b"event: ping\n\n: keep-alive\n\n")
    assert [(frame.event, frame.data, frame.comments) for frame in frames] == [
        (b"ping", b"", ()),
        (b"", b"", (b"keep-alive",)),
    ]


def test_only_one_space_after_the_colon_is_taken_off() -> None:
    assert parse(b"data:  two\n\n").data == b" two"


def test_a_frame_that_has_no_blank_line_is_the_rest() -> None:
    frames, framer = fed(b'data: {"ret":[]}')
    assert frames == []
    assert parse(framer.rest).data == b'{"ret":[]}'


def test_a_frame_beyond_the_limit_is_given_up_and_nothing_is_kept() -> None:
    frames, framer = fed(b"data: 1\n\ndata: " + b"x" * 100, limit=64)
    assert [frame.data for frame in frames] == [b"1"]
    assert framer.overrun
    assert framer.rest == b""
    assert framer.split(b"\n\ndata: 2\n\n") == []


def test_a_frame_at_the_limit_is_kept() -> None:
    _, framer = fed(b"x" * 64, limit=64)
    assert not framer.overrun


def test_a_long_frame_byte_by_byte_takes_linear_time() -> None:
    def seconds(length: int) -> Any:
        chunks = [b"x"] * length
        framer = Framer()
        start = time.process_time()
        for chunk in chunks:
            framer.split(chunk)
        return time.process_time() - start

    seconds(1000)
    assert seconds(80_000) < 40 * max(seconds(8_000), 0.002)


TEXT = st.lists(
    st.sampled_from([b"data: a", b"data:b", b": c", b"event: d", b"\n", b"\r\n", b"\r", b"\n\n", b"{", b"\xef\xbb\xbf"]),
    max_size=30,
).map(b"".join)


@given(TEXT, st.lists(st.integers(1, 7), min_size=1, max_size=20))
def test_any_chunking_gives_the_same_frames_and_loses_no_byte(data: bytes, sizes: list[int]) -> None:
    whole, at_once = fed(data)
    framer, frames, at = Framer(), [], 0
    while at < len(data):
        for size in sizes:
            frames += frames_of(framer, data[at : at + size])
            at += size
    assert frames == whole
    assert framer.rest == at_once.rest
    assert b"".join(frame.raw for frame in frames) + framer.rest == data


@given(TEXT, st.integers(1, 5))
def test_a_tail_is_quiet_where_it_is_nothing_but_blank_and_comment_lines(data: bytes, size: int) -> None:
    framer = Framer()
    for at in range(0, len(data), size):
        framer.split(data[at : at + size])
        rest = framer.rest
        lines = rest.removeprefix(b"\xef\xbb\xbf").splitlines()
        whole = rest.endswith((b"\r", b"\n")) and all(not line or line.startswith(b":") for line in lines)
        assert framer.quiet() == (whole or not rest), rest


def test_lines_are_cut_at_their_newlines() -> None:
    framer = Framer(lines=True)
    assert framer.split(b"{}\r") == []
    assert framer.split(b"\n\n{") == [b"{}\r\n", b"\n"]
    assert framer.rest == b"{"
