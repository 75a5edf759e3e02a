"""Every real answer of the corpus through a real mitmdump: what the client gets is what its label says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from policies.kinds import Wire
from tests.e2e.conftest import Proxies
from tests.e2e.lab.client import Connection
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Hit, Place
from tests.e2e.lab.script import Reply as Scripted
from tests.e2e.lab.upstream import Upstream
from tests.policies.refusal.replies import Reply, corpus
from tests.policies.refusal.test_mutated_corpus import MUTATIONS, applies, plain

BUILT_IN = (
    "chat.qwen.ai",
    "portal.qwen.ai",
    "dashscope.aliyuncs.com",
    "dashscope-intl.aliyuncs.com",
    "dashscope-us.aliyuncs.com",
    "cn-hongkong.dashscope.aliyuncs.com",
    "coding.dashscope.aliyuncs.com",
    "coding-intl.dashscope.aliyuncs.com",
    "api.z.ai",
    "open.bigmodel.cn",
    "zcode.z.ai",
    "chat.z.ai",
)
SAMPLE = [reply for reply in corpus() if reply.label["request"]["host"] in BUILT_IN and not reply.cut][::2]
SPELLINGS = ("gzip", "crlf", "br", "bom", "zstd", "as it came")


@dataclass
class Got:
    """What came back to the client."""

    status: int
    body: bytes
    headers: list[tuple[str, str]]
    whole: bool
    hits: list[Hit] = field(default_factory=list)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


@pytest.fixture(scope="module")
def watched(proxies: Proxies) -> Proxy:
    """No breaker: every case is judged by itself."""
    return proxies({"breaker": {"open_seconds": 0}})


@pytest.fixture(scope="module")
def places(upstream: Upstream) -> dict[str, Place]:
    hosts = {reply.label["request"]["host"] for reply in corpus()}
    return {host: upstream.place(host) for host in hosts}


def scripted(reply: Reply, *, body: bytes | None = None, coding: str = "") -> Scripted:
    """The answer on the wire: with its own chunks, or ``body`` in one piece under a content coding."""
    pairs = [*reply.head.headers]
    if coding:
        pairs.append(("content-encoding", coding))
    chunks = reply.chunks if body is None else (body,)
    streams = "event-stream" in reply.head.media_type and not reply.head.get("content-length")
    end = "cut" if reply.cut else "whole"
    return Scripted(reply.head.status, pairs, chunks, "chunked" if streams else "length", end)  # type: ignore[arg-type]


def asked(reply: Reply) -> tuple[bytes | None, list[tuple[str, str]]]:
    """Body and headers; each case has a credential of its own, so that none remembers another."""
    body = reply.label["request"].get("body")
    headers = [("authorization", f"Bearer sk-{reply.id}"), ("content-type", "application/json")]
    return None if body is None else json.dumps(body, ensure_ascii=False).encode(), headers


def over_http1(proxy: Proxy, place: Place, reply: Reply) -> Got:
    request, (body, headers) = reply.label["request"], asked(reply)
    before = len(place.hits)
    place.then(scripted(reply))
    with Connection(proxy, place.url(request["path"])) as connection:
        connection.send(body, headers, request["method"])
        answer = connection.answer(request["method"])
    return Got(answer.status, answer.body, answer.headers, answer.whole, place.hits[before:])


def real_status(reply: Reply) -> set[int] | None:
    """The statuses that the label allows where the answer must not pass as it came, else None."""
    kind, expect, status = reply.label["kind"], reply.label["expect"], reply.head.status
    if kind in ("challenge", "overload"):
        return {529 if reply.surface.wire is Wire.ANTHROPIC else 503}
    if status >= 400 or expect == "pass":
        return None
    if expect == "real error":
        return set(range(400, 600))
    if expect.startswith("real "):
        return {int(expect.split()[1].rstrip(","))}
    return {429} if kind in ("rate_limit", "quota") else None


def check(reply: Reply, got: Got, sent: bytes) -> None:
    assert len(got.hits) == 1
    assert b"x5secdata" not in got.body or reply.label["kind"] == "ok"
    if reply.label["request"]["host"] not in BUILT_IN:
        passed(reply, got, sent)
    elif "in-stream" in reply.label["expect"]:
        ended_inside(reply, got)
    elif (statuses := real_status(reply)) is not None:
        replaced(reply, got, statuses)
    else:
        passed(reply, got, sent)
        waits(reply, got)


def replaced(reply: Reply, got: Got, statuses: set[int]) -> None:
    kind, label = reply.label["kind"], reply.label
    assert got.status in statuses
    assert got.header("x-breakwater")
    error = json.loads(got.body)
    assert isinstance(error.get("error", error), dict)
    for name in ("content-encoding", "x-should-retry", "retry-after-ms", "transfer-encoding"):
        wanted = "false" if name == "x-should-retry" and kind in ("quota", "auth") else None
        assert got.header(name) == wanted
    told = got.header("retry-after")
    if kind in ("challenge", "overload", "rate_limit") or (got.status == 429 and kind == "other_error"):
        assert told is not None
        assert 1 <= int(told) <= 59
        own = label["retry_after_source"] in ("header", "body")
        assert not own or int(told) == min(label["retry_after_hint"], 59)
    else:
        assert told is None


def ended_inside(reply: Reply, got: Got) -> None:
    """A refusal after the stream began: its status if nothing had gone out, else a last frame with the wait."""
    if got.status != 200:
        assert got.header("retry-after")
    elif reply.surface.wire is Wire.RESPONSES:
        assert b"event: response.failed" in got.body
    else:
        assert b'"retry_after":' in got.body
    assert got.whole


def passed(reply: Reply, got: Got, sent: bytes) -> None:
    if reply.cut:
        return
    assert (got.status, got.body, got.whole) == (reply.head.status, sent, True)
    assert got.header("content-encoding") == (reply.head.get("content-encoding") or None)


def waits(reply: Reply, got: Got) -> None:
    """A wait that stands in the body becomes the header; none is invented for what does not pass by itself."""
    label, told = reply.label, got.header("retry-after")
    if label["kind"] == "rate_limit" and label["retry_after_source"] == "body":
        assert told == str(label["retry_after_hint"])
    else:
        assert told == (reply.head.get("retry-after") or None)
    if label["kind"] in ("quota", "auth"):
        assert got.header("x-should-retry") == "false"


@pytest.mark.parametrize("reply", corpus(), ids=[reply.id for reply in corpus()])
def test_the_client_gets_what_the_label_says(watched: Proxy, places: dict[str, Place], reply: Reply) -> None:
    got = over_http1(watched, places[reply.label["request"]["host"]], reply)
    check(reply, got, reply.body)


@pytest.mark.parametrize(
    ("reply", "spelling"),
    [(reply, SPELLINGS[number % len(SPELLINGS)]) for number, reply in enumerate(SAMPLE)],
    ids=[f"{reply.id}-{SPELLINGS[number % len(SPELLINGS)]}" for number, reply in enumerate(SAMPLE)],
)
def test_another_spelling_over_http2_changes_nothing(
    watched: Proxy, places: dict[str, Place], reply: Reply, spelling: str
) -> None:
    place, request, (body, headers) = places[reply.label["request"]["host"]], reply.label["request"], asked(reply)
    carried = MUTATIONS[spelling if applies(reply, spelling) else "as it came"](plain(reply))
    bare = Reply(f"{reply.id}-h2", reply.surface, carried.head, (carried.body,), reply.cut, reply.label)
    before = len(place.hits)
    place.then(scripted(bare))
    with H2Connection(watched, place.host) as connection:
        headers = [("authorization", f"Bearer sk-{bare.id}"), *headers[1:]]
        stream = connection.finish(connection.open(request["path"], body, headers, request["method"]))
    assert stream.status
    got = Got(stream.status, stream.body, stream.headers, stream.ended, place.hits[before:])
    assert [hit.protocol for hit in got.hits] == ["2"]
    if carried.head.get("content-encoding") and "in-stream" in reply.label["expect"] and got.status == 200:
        assert stream.reset  # no plain text fits into an encoded stream
    else:
        check(bare, got, carried.body)
