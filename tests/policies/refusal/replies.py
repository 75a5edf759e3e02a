"""The corpus of real answers, and a driver that reads one as the proxy would."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from policies.answer.documents import Form, form_of
from policies.answer.encodings import decoder
from policies.answer.frames import Framer, bare_document, parse
from policies.calls import Surface
from policies.kinds import Family, Finding, Head, Kind, Role, Wire
from policies.refusal.recogniser import Recogniser

CORPUS = Path(__file__).parents[2] / "corpus" / "replies.jsonl"
FAMILIES = {
    "qwen-web": Family.QWEN_WEB,
    "zai-web": Family.ZAI_WEB,
    "zcode": Family.ZCODE,
    "zai": Family.ZAI,
    "bigmodel": Family.ZAI,
    "dashscope": Family.DASHSCOPE,
    "dashscope-coding": Family.DASHSCOPE,
    "qwen-portal": Family.DASHSCOPE,
    "qwen-oauth": Family.DASHSCOPE,
}
WIRES = {
    "anthropic": Wire.ANTHROPIC,
    "openai-chat": Wire.OPENAI,
    "openai-responses": Wire.RESPONSES,
    "qwen-web": Wire.QWEN_WEB,
    "zai-web": Wire.ZAI_WEB,
    "native": Wire.DASHSCOPE_NATIVE,
    "other": Wire.OTHER,
    "none": Wire.OTHER,
}


@dataclass(frozen=True)
class Reply:
    id: str
    surface: Surface
    head: Head
    chunks: tuple[bytes, ...]
    cut: bool
    label: dict[str, Any]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


def surface(family: Family, wire: Wire = Wire.OPENAI, role: Role = Role.GENERATION) -> Surface:
    return Surface("upstream", family, wire, role)


@cache
def corpus() -> tuple[Reply, ...]:
    return tuple(_reply(json.loads(line)) for line in CORPUS.read_text(encoding="utf-8").splitlines())


def _reply(case: dict[str, Any]) -> Reply:
    answer = case["response"]
    path = case["request"]["path"]
    role = Role.OTHER if case["wire"] in ("none", "other") else Role.PREPARATION if "/chats/new" in path else Role.GENERATION
    # An answer of a host that no built-in upstream has: a user's own gateway may be of any family.
    family = FAMILIES.get(case["provider"], Family.ZAI if case["wire"] == "anthropic" else Family.DASHSCOPE)
    head = Head(answer["status"], tuple((answer.get("headers") or {}).items()))
    return Reply(case["id"], surface(family, WIRES[case["wire"]], role), head, _chunks(answer), bool(answer.get("cut")), case)


def _chunks(answer: dict[str, Any]) -> tuple[bytes, ...]:
    if "chunks_b64" in answer:
        return tuple(base64.b64decode(chunk) for chunk in answer["chunks_b64"])
    if "body_b64" in answer:
        return (base64.b64decode(answer["body_b64"]),)
    if "sse" in answer:
        return tuple(frame.encode() for frame in answer["sse"])
    body = answer.get("body") or ""
    return (body.encode(),) if body else ()


def read(recogniser: Recogniser, where: Surface, head: Head, body: bytes, *, whole: bool = True) -> list[Finding]:
    """Every finding of one answer, in the order in which they come."""
    early = recogniser.head(where, head)
    decoding = decoder(head.get("content-encoding"))
    plain = decoding.feed(body) if decoding is not None else body
    findings = list(_findings(recogniser, where, head, plain, whole=whole))
    if early is not None and not any(finding.kind in (Kind.ANSWER, Kind.CHALLENGE) for finding in findings):
        return [early]
    return findings


def _findings(recogniser: Recogniser, where: Surface, head: Head, body: bytes, *, whole: bool) -> list[Finding]:
    if form_of(body[:64], head.media_type) is not Form.STREAM:
        return [recogniser.document(where, head, body, whole=whole)]
    framer, found = Framer(), list[Finding]()
    raws = framer.split(body) + ([framer.rest] if framer.rest.strip() else [])
    for number, raw in enumerate(raws):
        frame = parse(raw)
        document = bare_document(frame)
        if document is not None:
            return [*found, recogniser.document(where, head, document + b"".join(raws[number + 1 :]), whole=whole)]
        finding = recogniser.frame(where, head, frame)
        if finding is not None:
            assert not found or finding.kind is Kind.ANSWER or recogniser.suspicion(where)(raw), raw
            found.append(finding)
    return found or [Finding(Kind.NOTHING, row="preamble-only")]


def gzipped(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(body) + packer.flush()
