"""Images, documents and recordings: priced by kind and size on every wire that carries them."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.request import media
from tests.rows import over


def png(width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header)) + b"rest" * 50


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(60)


def jpeg(width: int, height: int) -> bytes:
    preview = b"\xff\xe1" + struct.pack(">H", 20_002) + bytes(20_000)
    frame = b"\xff\xc2" + struct.pack(">HBHH", 17, 8, height, width) + bytes(10)
    return b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + bytes(14) + preview + b"\xff" + frame + bytes(40)


def webp(form: bytes, width: int, height: int) -> bytes:
    if form == b"VP8X":
        payload = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif form == b"VP8L":
        payload = b"\x2f" + (width - 1 | height - 1 << 14).to_bytes(4, "little") + bytes(8)
    else:
        payload = bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return b"RIFF" + bytes(4) + b"WEBP" + form + struct.pack("<I", len(payload)) + payload + bytes(30)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


PICTURES = {
    "png": png(560, 280),
    "gif": gif(560, 280),
    "jpeg": jpeg(560, 280),
    "webp lossy": webp(b"VP8 ", 560, 280),
    "webp lossless": webp(b"VP8L", 560, 280),
    "webp extended": webp(b"VP8X", 560, 280),
}


@over("data", PICTURES.values(), ids=PICTURES)
def test_the_pixel_size_is_read_from_the_header(data: bytes) -> None:
    assert media.pixels(encoded(data)) == (560, 280)
    assert media.pixels("data:image/x;base64," + encoded(data)) == (560, 280)


@over(
    "text",
    [
        "",
        "QUJD",
        "!!!!",
        "äöü",
        "https://a.example/b.png",
        encoded(png(5, 5))[:20],
        encoded(png(0, 9)),
        encoded(b"\xff\xd8"),
    ],
)
def test_what_has_no_header_has_no_size(text: str) -> None:
    assert media.pixels(text) is None


def carriers(data: str, media: str = "image/png") -> list[dict[str, Any]]:
    url = f"data:{media};base64,{data}"
    return [
        {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}},
        {"type": "image_url", "image_url": {"url": url, "detail": "high"}},
        {"type": "image_url", "image_url": url},
        {"type": "input_image", "image_url": url},
        {"type": "image", "data": data, "mimeType": media},
        {"type": "image", "image": url},
        {"image": url},
    ]


@over("part", carriers(encoded(png(560, 280))), ids=str)
def test_an_image_costs_its_patches_on_every_wire(part: dict[str, Any]) -> None:
    assert media.price(part) == 20 * 10 + 2


def test_a_large_image_is_capped_and_a_tiny_one_costs_little() -> None:
    large, tiny = (media.price(carriers(encoded(png(*size)))[0]) for size in ((8000, 8000), (1, 1)))
    assert large == media.IMAGE_MOST + 2
    assert tiny == 6


@over(
    "part",
    [
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
        {"type": "image_url", "image_url": None},
        {"type": "input_image", "file_id": "f"},
        {"type": "image", "source": {"type": "base64", "data": "QUJD"}},
        {"image": "https://a.example/b.png"},
    ],
)
def test_an_image_that_cannot_be_measured_costs_a_flat_price(part: dict[str, Any]) -> None:
    assert media.price(part) == media.IMAGE_FLAT


@pytest.mark.parametrize(
    "carry",
    [
        lambda data: {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}},
        lambda data: {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"},
        },
        lambda data: {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"},
    ],
)
def test_a_document_costs_by_its_bytes(carry: Any) -> None:
    prices = [media.price(carry(encoded(bytes(size)))) for size in (3, 400_000, 800_000)]
    assert prices[0] == media.DOCUMENT_LEAST
    assert prices[1] == pytest.approx(10_000, rel=0.01)
    assert prices[2] == pytest.approx(20_000, rel=0.01)


def test_a_remote_document_costs_a_flat_price_and_one_of_words_is_text() -> None:
    assert media.price({"type": "document", "source": {"type": "url", "url": "https://a.example"}}) == media.DOCUMENT_FLAT
    assert media.price({"type": "input_file", "file_id": "f"}) == media.DOCUMENT_FLAT
    assert media.price({"type": "input_file", "file_url": "https://a.example"}) == media.DOCUMENT_FLAT
    assert media.price({"type": "document", "source": {"type": "text", "data": "words"}}) is None
    assert media.price({"type": "document", "source": {"type": "content", "content": []}}) is None


def test_a_text_file_costs_as_text_and_a_picture_in_a_file_as_a_picture() -> None:
    def file(media: str, data: bytes) -> dict[str, Any]:
        return {"type": "file", "file": {"file_data": f"data:{media};base64,{encoded(data)}"}}

    assert media.price(file("text/csv", bytes(4000))) == pytest.approx(1000, abs=2)
    assert media.price(file("image/png", png(560, 280))) == 202


def test_a_recording_costs_by_its_bytes_and_form() -> None:
    def audio(form: str) -> int | None:
        return media.price({"type": "input_audio", "input_audio": {"data": encoded(bytes(640_000)), "format": form}})

    assert audio("wav") == pytest.approx(500, abs=1)
    assert audio("mp3") == pytest.approx(1000, abs=1)
    assert media.price({"type": "audio_url", "audio_url": {"url": "https://a.example"}}) == media.AUDIO_FLAT
    assert media.price({"audio": "https://a.example"}) == media.AUDIO_FLAT


def test_a_video_costs_by_its_frames_or_flat() -> None:
    assert media.price({"type": "video", "video": ["https://a.example/1"] * 4}) == 4 * media.IMAGE_FLAT
    assert media.price({"type": "video_url", "video_url": {"url": "https://a.example"}}) == media.VIDEO_FLAT


@over(
    "part",
    [
        {"type": "text", "text": "x"},
        {"type": "tool_use", "name": "n", "input": {"data": "QUJD"}},
        {"type": "image"},
        {"type": "unheard-of", "data": "QUJD", "url": "x"},
        {"image": "a word", "caption": "another"},
        {"image": {"no": "text"}},
        {"role": "user", "content": "x"},
        {"type": ["image"], "source": {}},
        {},
    ],
)
def test_everything_else_is_text(part: dict[str, Any]) -> None:
    assert media.price(part) is None


def test_a_row_says_where_it_comes_from() -> None:
    assert all(form.source for form in media.FORMS)


def test_a_body_that_may_hold_one_is_told_by_its_bytes() -> None:
    assert not media.may_hold(b'{"messages":[{"role":"user","content":"hi"}]}')
    assert media.may_hold(b'{"content":[{"type":"image_url"}]}')


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just(encoded(jpeg(3, 3))[:40]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "data", "url", "media_type", "format", "file_data"]), inner)
    ),
    max_leaves=8,
)


@given(
    st.sampled_from([*(form.type for form in media.FORMS if form.type), "x"]),
    st.dictionaries(st.sampled_from(["source", "image_url", "file", "data", "video"]), VALUES),
)
def test_any_part_is_priced_or_text(kind: str, part: dict[str, Any]) -> None:
    price = media.price({"type": kind, **part})
    assert price is None or price >= 0
    media.price(part)


@given(st.binary(max_size=80), st.sampled_from([b"", b"\xff\xd8\xff", b"RIFF0000WEBP", b"GIF89a", b"\x89PNG\r\n\x1a\n"]))
def test_any_header_is_read_without_an_exception(data: bytes, start: bytes) -> None:
    found = media.pixels(encoded(start + data))
    assert found is None or (len(found) == 2 and all(0 <= side < 2**32 for side in found))
