"""What images, files and recordings cost: priced by kind and size, since their bytes are no text."""

from __future__ import annotations

import binascii
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PATCH = 28
"""Pixels on the side of one image token (help.aliyun.com vision: 28 by 28; docs.anthropic.com: area / 750)."""
IMAGE_MOST = 1_280
"""Tokens; larger images are scaled down before they are read (help.aliyun.com vision)."""
IMAGE_FLAT = 1_000
"""Tokens of an image whose size cannot be read here."""
DOCUMENT_FLAT = 2_000
DOCUMENT_LEAST = 500
BYTES_PER_DOCUMENT_TOKEN = 40
"""A page of a PDF has about 70 KB and 1,500 to 3,000 tokens (docs.anthropic.com pdf-support)."""
AUDIO_FLAT = 750
BYTES_PER_AUDIO_TOKEN = {"wav": 1_280, "pcm": 1_280, "pcm16": 1_280}
"""25 tokens a second (help.aliyun.com audio) at 32 KB a second; compressed forms at half of that."""
BYTES_PER_COMPRESSED_AUDIO_TOKEN = 640
VIDEO_FLAT = 4_000
BYTES_PER_TEXT_TOKEN = 4
"""A text file that is sent as base64."""
HEADER_CHARACTERS = 131_072
"""Of a base64 image, decoded to find its pixel size; a JPEG's may stand behind a preview."""

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,", re.IGNORECASE)
_NATIVE_KEYS = frozenset({"image", "audio", "video", "file", "fps", "min_pixels", "max_pixels", "total_pixels"})

Price = Callable[[Any, str], int]
"""Tokens of a thing and of the media type that is stated beside it, empty where none is."""


def may_hold(body: bytes) -> bool:
    """False where a body has no part that is priced apart from its text."""
    return any(marker in body for marker in (b'"image', b'"input_', b'"document"', b'"file', b'"audio', b'"video'))


def price(part: Mapping[str, Any]) -> int | None:
    """Tokens of an image, document, audio, video or file part; None for a part that is text."""
    kind = part.get("type")
    for form in _OF_TYPE.get(kind if isinstance(kind, str) else None, ()):
        value = part.get(form.field)
        native = isinstance(value, str | list) and part.keys() <= _NATIVE_KEYS
        if form.field in part and (native or form.type is not None):
            return _priced(form.price, value)
    return None


def _priced(price: Price, value: Any) -> int | None:
    """None where the field holds text after all: a document's own words count as words."""
    if not isinstance(value, Mapping):
        return price(value, "")
    if value.get("type") in ("text", "content"):
        return None
    given = (value[name] for name in ("data", "file_data", "b64_json", "url") if isinstance(value.get(name), str))
    return price(next(given, None), str(value.get("media_type") or value.get("format") or ""))


def _image(value: Any, _media: str) -> int:
    size = pixels(value) if isinstance(value, str) else None
    if size is None:
        return IMAGE_FLAT
    width, height = size
    return max(4, min(IMAGE_MOST, math.ceil(width / PATCH) * math.ceil(height / PATCH))) + 2


def _document(value: Any, media: str) -> int:
    count, named = _bytes_of(value)
    media = (media or named).lower()
    if count is None:
        return DOCUMENT_FLAT
    if media.startswith("image/"):
        return _image(value, media)
    if media.startswith("audio/"):
        return _audio(value, media)
    if media.startswith("text/") or media.endswith("json"):
        return math.ceil(count / BYTES_PER_TEXT_TOKEN)
    return max(DOCUMENT_LEAST, math.ceil(count / BYTES_PER_DOCUMENT_TOKEN))


def _audio(value: Any, media: str) -> int:
    count, named = _bytes_of(value)
    if count is None:
        return AUDIO_FLAT
    form = (media or named).rpartition("/")[2].lower()
    return max(1, math.ceil(count / BYTES_PER_AUDIO_TOKEN.get(form, BYTES_PER_COMPRESSED_AUDIO_TOKEN)))


def _video(value: Any, _media: str) -> int:
    """A list of frames is so many images."""
    return min(len(value) * IMAGE_FLAT, 10 * VIDEO_FLAT) if isinstance(value, list) else VIDEO_FLAT


def _flat(tokens: int) -> Price:
    return lambda _value, _media: tokens


class Form(NamedTuple):
    """One form of a part: its ``type``, which field holds the thing, and how it is priced."""

    type: str | None
    """None on DashScope's native wire, whose parts have none."""
    field: str
    price: Price
    source: str


_CHAT, _RESPONSES = "platform.openai.com chat", "platform.openai.com responses"
FORMS: tuple[Form, ...] = (
    Form("image", "source", _image, "docs.anthropic.com vision"),
    Form("image", "image", _image, "chat.qwen.ai, QwenLM qwen-vl"),
    Form("image", "image_url", _image, "gateways"),
    Form("image", "url", _image, "chat.qwen.ai files"),
    Form("image", "data", _image, "modelcontextprotocol.io image content"),
    Form("document", "source", _document, "docs.anthropic.com pdf-support"),
    Form("image_url", "image_url", _image, _CHAT),
    Form("input_audio", "input_audio", _audio, _CHAT),
    Form("audio", "audio", _audio, "QwenLM qwen-audio"),
    Form("audio", "data", _audio, "modelcontextprotocol.io audio content"),
    Form("audio_url", "audio_url", _audio, "QwenLM qwen-audio"),
    Form("video", "video", _video, "help.aliyun.com vision"),
    Form("video", "url", _video, "chat.qwen.ai files"),
    Form("video_url", "video_url", _video, "help.aliyun.com vision"),
    Form("file", "file", _document, _CHAT),
    Form("file", "url", _document, "chat.qwen.ai files"),
    Form("file", "file_data", _document, _RESPONSES),
    Form("input_image", "image_url", _image, _RESPONSES),
    Form("input_image", "file_id", _image, _RESPONSES),
    Form("input_file", "file_data", _document, _RESPONSES),
    Form("input_file", "file_url", _flat(DOCUMENT_FLAT), _RESPONSES),
    Form("input_file", "file_id", _flat(DOCUMENT_FLAT), _RESPONSES),
    Form("image_generation_call", "result", _image, _RESPONSES),
    Form("redacted_thinking", "data", _flat(0), "docs.anthropic.com extended thinking"),
    Form(None, "image", _image, "DashScope native"),
    Form(None, "audio", _audio, "DashScope native"),
    Form(None, "video", _video, "DashScope native"),
    Form(None, "file", _document, "DashScope native"),
)
"""Of the fields of one type the first that is there counts."""
_OF_TYPE = {form.type: [other for other in FORMS if other.type == form.type] for form in FORMS}


def _bytes_of(value: Any) -> tuple[int | None, str]:
    """Decoded bytes of base64, and the media type that a data URL names; None for a remote thing."""
    if not isinstance(value, str):
        return None, ""
    match = _DATA_URL.match(value)
    if match is None and value[:8].lower().startswith(("http:", "https:", "file:", "oss:", "data:")):
        return None, ""
    characters = len(value) - (match.end() if match else 0)
    return characters * 3 // 4, (match[1] or "") if match else ""


def pixels(value: str) -> tuple[int, int] | None:
    """Width and height that the header of a base64 image (bare, or a data URL) states; None where it cannot be read."""
    match = _DATA_URL.match(value)
    start = match.end() if match else 0
    text = value[start : start + HEADER_CHARACTERS]
    try:
        width, height = _size(binascii.a2b_base64(text[: len(text) // 4 * 4]))
    except (ValueError, struct.error):
        return None
    return (width, height) if width and height else None


def _size(data: bytes) -> tuple[int, ...]:
    """Width and height, 0 where none is stated; raises ``struct.error`` where the header is cut."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return struct.unpack_from(">II", data, 16)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return struct.unpack_from("<HH", data, 6)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp_size(data[12:16], data)
    return _jpeg_size(data)


def _webp_size(form: bytes, data: bytes) -> tuple[int, ...]:
    if form == b"VP8X":
        low, middle, high = struct.unpack_from("<HHH", data, 24)  # two numbers of 24 bits, each less one
        return (low | (middle & 0xFF) << 16) + 1, (middle >> 8 | high << 8) + 1
    if form == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return (width & 0x3FFF, height & 0x3FFF) if form == b"VP8 " else (0, 0)


def _jpeg_size(data: bytes) -> tuple[int, ...]:
    at = 2
    while data[:2] == b"\xff\xd8" and at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            return struct.unpack_from(">HH", data, at + 5)[::-1]
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0
