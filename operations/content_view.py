"""The content view "Breakwater": why a flow was decided as it was, and what a stream said, as text.

It shows `flow.metadata["breakwater"]` and the answer as text, on mitmproxy 11 (`View`) and 12 (`Contentview`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from mitmproxy import contentviews, http

from operations.flow_adapter import METADATA
from policies.answer import encodings
from policies.answer.answer_text import assemble

EXCERPT_AT_MOST = 4096
"""Characters of the replaced body that are shown; the flow keeps fewer."""
VALUE_AT_MOST = 600
"""Characters of one line."""
FOLD_AT = 80
LINES_AT_MOST = 20_000
NOTHING = "Breakwater did not decide anything about this flow."

TRACE = {
    "reason": "reason",
    "finding": "finding",
    "row": "recognised by",
    "code": "upstream's code",
    "upstream": "upstream",
    "wire": "wire",
    "model": "model",
    "breaker_before": "breaker before",
    "breaker_after": "breaker after",
    "waits": "waits",
    "queued_seconds": "waited unsent",
    "queued_for": "waited for",
    "told": "told to wait",
    "attempts": "sends upstream",
    "not_sent_again": "not sent again",
    "hold_seconds": "headers held",
}
"""Key of the metadata, and how it is called; in the order in which it is shown. What is absent is left out."""

UNITS = {"queued_seconds": " s", "hold_seconds": " s", "waits": " s", "told": " s"}

# Both are meant to be subclassed; which of them exists depends on mitmproxy's version.
_contentviews: Any = contentviews
_Base: Any = getattr(contentviews, "Contentview", None) or getattr(contentviews, "View", object)


class BreakwaterView(_Base):  # type: ignore[misc]
    name = "Breakwater"
    syntax_highlight = "none"

    def prettify(self, data: bytes, metadata: Any) -> str:
        """Text of the view, for mitmproxy 12."""
        del data
        return describe(getattr(metadata, "flow", None))

    def __call__(self, data: bytes, *, flow: object = None, **_: object) -> tuple[str, Iterator[list[tuple[str, str]]]]:
        """Title and lines of (style, text), for mitmproxy 11."""
        del data
        return "Breakwater", ([("text", line)] for line in describe(flow).split("\n"))

    def render_priority(self, data: bytes, metadata: object = None, **known: object) -> float:
        """Above the built-in views for the answer of a flow that was decided; else never chosen by itself."""
        del data
        flow = known.get("flow", getattr(metadata, "flow", None))
        message = known.get("http_message", getattr(metadata, "http_message", None))
        return 2.0 if _noted(flow) and isinstance(message, http.Response) else -1.0


def register() -> None:
    """Add the view, in the place of one of that name: a reloaded addon registers again."""
    unregister()
    _contentviews.add(BreakwaterView())


def unregister() -> None:
    """Take the view away, where mitmproxy can: 12 has no public way, and there `add` replaces."""
    if hasattr(contentviews, "registry"):
        return
    if (view := _contentviews.get(BreakwaterView.name)) is not None:
        _contentviews.remove(view)


def describe(flow: object) -> str:
    """What `explain` says, and the answer of a stream as text. Never raises, always bounded."""
    decided, body = _noted(flow), _body(flow)
    if not decided or not body:
        return explain(flow)
    answer = assemble(str(decided.get("wire", "")), body).splitlines() or ["(no answer text in it)"]
    lines = [*explain(flow).split("\n"), "", "── the answer as text ──", *answer]
    return "\n".join(lines[:LINES_AT_MOST])


def explain(flow: object) -> str:
    """The comment, the decision trace, what names this flow in a command, and the replaced body. Never raises, always bounded."""
    decided = _noted(flow)
    if not decided:
        return NOTHING
    comment, identity, excerpt = getattr(flow, "comment", ""), getattr(flow, "id", ""), _value(decided.get("excerpt", ""))
    lines = [*_folded(_line(comment)), ""] if comment else []
    lines += [f"{_line(name):<16} {_line(value)}{UNITS.get(key, '')}" for key, name, value in _trace(decided)]
    lines += [f"{'in a command':<16} @{identity}"] if identity else []
    if excerpt:
        lines += ["", "── the upstream's answer that was replaced ──", *_folded(excerpt[:EXCERPT_AT_MOST])]
    return "\n".join(lines[:LINES_AT_MOST])


def _noted(flow: object) -> Mapping[str, object]:
    metadata = getattr(flow, "metadata", None)
    decided = metadata.get(METADATA) if isinstance(metadata, Mapping) else None
    return decided if isinstance(decided, Mapping) else {}


def _body(flow: object) -> bytes:
    """The upstream's body, or its beginning, decoded; empty for an answer of our own."""
    response = getattr(flow, "response", None)
    if not isinstance(response, http.Response) or "x-breakwater" in response.headers:
        return b""
    body, encoding = response.raw_content or b"", response.headers.get("content-encoding", "")
    decoder = encodings.decoder(encoding, 4 * len(body)) if encoding else None
    return decoder.feed(body) if decoder else body


def _trace(decided: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Key, name and value of what is noted, in the order of `TRACE`, and then what has no name of its own."""
    for key in (*TRACE, *(key for key in decided if key not in TRACE)):
        value = decided.get(key)
        if key != "excerpt" and value is not None and value not in ("", [], ()):
            yield key, TRACE.get(key, str(key).replace("_", " ")), _value(value)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, list | tuple):
        return ", ".join(_value(each) for each in value[:50])
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_value(each)}" for key, each in list(value.items())[:50])
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _line(text: str) -> str:
    """Text on one line, at most `VALUE_AT_MOST` characters."""
    line = " ".join(text[: 4 * VALUE_AT_MOST].split())
    return line if len(line) <= VALUE_AT_MOST else f"{line[:VALUE_AT_MOST]}…"


def _folded(text: str) -> list[str]:
    """Lines of `FOLD_AT` characters: mitmweb does not fold long ones."""
    return [piece for line in text.splitlines() for piece in textwrap.wrap(line, FOLD_AT) or [""]]
