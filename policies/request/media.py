"""What images, files and recordings cost: priced by kind and size, since their bytes are no text."""

from __future__ import annotations

import binascii
import math
import re
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


class Kind(NamedTuple):
    """One form of a part: which field holds the thing, and how it is priced."""

    field: str
    price: Callable[[Any, str], int]
    source: str


def may_hold(body: bytes) -> bool:
    """False where a body has no part that is priced apart from its text."""
    return any(marker in body for marker in (b'"image', b'"input_', b'"document"', b'"file', b'"audio', b'"video'))


def price(part: Mapping[str, Any]) -> int | None:
    """Tokens of an image, document, audio, video or file part; None for a part that is text."""
    kind = part.get("type")
    if isinstance(kind, str):
        for form in FORMS.get(kind, ()):
            if form.field in part:
                return _priced(form, part[form.field])
        return None
    for form in UNTYPED:
        if isinstance(part.get(form.field), str | list) and part.keys() <= _NATIVE_KEYS:
            return _priced(form, part[form.field])
    return None


def _priced(form: Kind, value: Any) -> int | None:
    """None where the field holds text after all: a document's own words count as words."""
    if isinstance(value, Mapping):
        if value.get("type") in ("text", "content"):
            return None
        media = str(value.get("media_type") or value.get("format") or "")
        for name in ("data", "file_data", "b64_json", "url"):
            if isinstance(value.get(name), str):
                return form.price(value[name], media)
        return form.price(None, media)
    return form.price(value, "")


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


def _remote_document(_value: Any, _media: str) -> int:
    return DOCUMENT_FLAT


def _audio(value: Any, media: str) -> int:
    count, named = _bytes_of(value)
    if count is None:
        return AUDIO_FLAT
    form = (media or named).rpartition("/")[2].lower()
    return max(1, math.ceil(count / BYTES_PER_AUDIO_TOKEN.get(form, BYTES_PER_COMPRESSED_AUDIO_TOKEN)))


def _video(value: Any, _media: str) -> int:
    """A list of frames is so many images."""
    return min(len(value) * IMAGE_FLAT, 10 * VIDEO_FLAT) if isinstance(value, list) else VIDEO_FLAT


def _nothing(_value: Any, _media: str) -> int:
    return 0


_NATIVE_KEYS = frozenset({"image", "audio", "video", "file", "fps", "min_pixels", "max_pixels", "total_pixels"})

FORMS: dict[str, tuple[Kind, ...]] = {
    "image": (
        Kind("source", _image, "docs.anthropic.com vision"),
        Kind("image", _image, "chat.qwen.ai, QwenLM qwen-vl"),
        Kind("image_url", _image, "gateways"),
        Kind("url", _image, "chat.qwen.ai files"),
        Kind("data", _image, "modelcontextprotocol.io image content"),
    ),
    "document": (Kind("source", _document, "docs.anthropic.com pdf-support"),),
    "image_url": (Kind("image_url", _image, "platform.openai.com chat"),),
    "input_audio": (Kind("input_audio", _audio, "platform.openai.com chat"),),
    "audio": (Kind("audio", _audio, "QwenLM qwen-audio"), Kind("data", _audio, "modelcontextprotocol.io audio content")),
    "audio_url": (Kind("audio_url", _audio, "QwenLM qwen-audio"),),
    "video": (Kind("video", _video, "help.aliyun.com vision"), Kind("url", _video, "chat.qwen.ai files")),
    "video_url": (Kind("video_url", _video, "help.aliyun.com vision"),),
    "file": (
        Kind("file", _document, "platform.openai.com chat"),
        Kind("url", _document, "chat.qwen.ai files"),
        Kind("file_data", _document, "platform.openai.com responses"),
    ),
    "input_image": (
        Kind("image_url", _image, "platform.openai.com responses"),
        Kind("file_id", _image, "platform.openai.com responses"),
    ),
    "input_file": (
        Kind("file_data", _document, "platform.openai.com responses"),
        Kind("file_url", _remote_document, "platform.openai.com responses"),
        Kind("file_id", _remote_document, "platform.openai.com responses"),
    ),
    "image_generation_call": (Kind("result", _image, "platform.openai.com responses"),),
    "redacted_thinking": (Kind("data", _nothing, "docs.anthropic.com extended thinking"),),
}
"""Parts with a ``type``, by the field that holds the thing."""

UNTYPED: tuple[Kind, ...] = (
    Kind("image", _image, "DashScope native"),
    Kind("audio", _audio, "DashScope native"),
    Kind("video", _video, "DashScope native"),
    Kind("file", _document, "DashScope native"),
)
"""Parts of DashScope's native wire, which have no ``type``."""


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
    try:
        data = binascii.a2b_base64(_whole(value[start : start + HEADER_CHARACTERS]))
    except (ValueError, binascii.Error):
        return None
    return _png(data) or _gif(data) or _webp(data) or _jpeg(data)


def _whole(text: str) -> str:
    return text[: len(text) - len(text) % 4]


def _sized(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if width and height else None


def _png(data: bytes) -> tuple[int, int] | None:
    if data[:8] != b"\x89PNG\r\n\x1a\n" or len(data) < 24:
        return None
    return _sized(int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"))


def _gif(data: bytes) -> tuple[int, int] | None:
    if data[:6] not in {b"GIF87a", b"GIF89a"} or len(data) < 10:
        return None
    return _sized(int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))


def _webp(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return None
    form = data[12:16]
    if form == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if form == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8 ":
        width, height = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
        return _sized(width & 0x3FFF, height & 0x3FFF)
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            return _sized(int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big"))
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
