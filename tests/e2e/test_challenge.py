"""A challenge never reaches the client as an answer; an answer reaches it untouched."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from mitmproxy.net import encoding

from tests.e2e.lab.client import Answer, Connection, ask
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Gate, Place, Reply
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import (
    COMPLETIONS,
    HTML,
    JSON,
    MESSAGES,
    MTOP,
    PAGE,
    QWEN_WEB,
    SSE,
    account,
    anthropic,
    anthropic_message,
    asked,
    compact,
    event,
    openai,
    openai_message,
    page,
    qwen_web,
    streamed,
    whole,
)

Places = Callable[..., Place]

PING = event({"type": "ping"})
COMMENT = b": keep-alive\n\n"
CHALLENGE = event(MTOP)

FORMS = {
    "a JSON body": whole(MTOP),
    "a JSON body with status 403": whole(MTOP, 403),
    "bare JSON under an SSE type": Reply(headers=[SSE], chunks=[compact(MTOP)]),
    "a JSON body that says it is ours": Reply(headers=[JSON, ("X-Breakwater", "answer")], chunks=[compact(MTOP)]),
    "a page that says it is ours": Reply(headers=[HTML, ("X-Breakwater", "answer")], chunks=[PAGE]),
    "a first frame": streamed([CHALLENGE]),
    "a first frame split in two": streamed([CHALLENGE[:40], CHALLENGE[40:]]),
    "a frame after a comment": streamed([COMMENT, CHALLENGE]),
    "a page": page(),
    "a page with status 403": page(403),
    "a page under a JSON type": Reply(headers=[JSON], chunks=[PAGE]),
    "a page until the connection closes": Reply(headers=[HTML], chunks=[PAGE], framing="close"),
}
WIRES = {
    "anthropic": ("zai", MESSAGES, 529, anthropic),
    "openai": ("zai", COMPLETIONS, 503, openai),
    "qwen-web": ("qwen-web", QWEN_WEB, 503, qwen_web),
}
ENCODINGS = ["gzip", "deflate", "br", "zstd"]


def assert_told(answer: Answer, wire: str, wait: int = 30) -> None:
    """It is our own refusal in this dialect, complete, and says nothing that it must not say."""
    assert answer.status == WIRES[wire][2], answer.body
    assert answer.whole
    assert answer.retry_after == wait
    assert (answer.header("x-breakwater") or "").startswith("challenge")
    assert answer.header("content-encoding") is None
    error = answer.json()["error"]
    assert error["type"] == ("overloaded_error" if wire == "anthropic" else "server_error")
    if wire != "anthropic":
        assert error["code"] == "upstream_waf_challenge" if wire == "qwen-web" else "upstream_unavailable"
    assert b"x5secdata" not in answer.raw
    assert b"punish" not in answer.raw


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_challenge_becomes_a_real_status(guarded: Proxy, place: Places, form: str, wire: str) -> None:
    family, path, _, _ = WIRES[wire]
    here = place(family).then(FORMS[form])
    assert_told(ask(guarded, here.url(path), asked(form), account(here.host)), wire)
    assert len(here.hits) == 1


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("scheme", "port"), [("http", None), ("https", None), ("https", 8443)])
def test_clear_or_tls_to_either_protocol(guarded: Proxy, place: Places, wire: str, scheme: str, port: int | None) -> None:
    family, path, _, frames = WIRES[wire]
    here = place(family).then(streamed([CHALLENGE]), streamed(frames()))
    assert_told(ask(guarded, here.url(path, scheme, port), asked("one"), account(here.host)), wire)
    passed = ask(guarded, here.url(path, scheme, port), asked("two"), account(here.host))
    assert (passed.status, passed.body) == (200, b"".join(frames()))


@pytest.mark.parametrize("code", ENCODINGS)
@pytest.mark.parametrize("form", [compact(MTOP), PAGE, CHALLENGE], ids=["json", "page", "frame"])
def test_an_encoded_challenge_is_seen(guarded: Proxy, place: Places, code: str, form: bytes) -> None:
    kind = {PAGE: HTML, CHALLENGE: SSE}.get(form, JSON)
    data = encoding.encode(form, code)
    reply = Reply(headers=[kind, ("content-encoding", code)], chunks=[data[:20], data[20:]], framing="chunked")
    here = place().then(reply)
    assert_told(ask(guarded, here.url(MESSAGES), asked(), account(here.host)), "anthropic")


@pytest.mark.parametrize("code", ENCODINGS)
def test_an_encoded_answer_passes_byte_for_byte(guarded: Proxy, place: Places, code: str) -> None:
    data = encoding.encode(b"".join(anthropic(*["word "] * 50)), code)
    pieces = [data[:30], data[30:60], data[60:]]
    here = place().then(Reply(headers=[SSE, ("content-encoding", code)], chunks=pieces, framing="chunked"))
    answer = ask(guarded, here.url(MESSAGES), asked(), account(here.host))
    assert (answer.status, answer.header("content-encoding"), answer.body) == (200, code, data)


@pytest.mark.parametrize("end", ["cut", "abort"])
@pytest.mark.parametrize("length", [None, 16000])
def test_a_page_that_is_cut_is_still_the_challenge(guarded: Proxy, place: Places, end: str, length: int | None) -> None:
    cut = Reply(headers=[HTML], chunks=[PAGE[:-20]], framing="chunked", end=end)  # type: ignore[arg-type]
    if length:
        cut = Reply(headers=[HTML, ("content-length", str(length))], chunks=[PAGE], end=end)  # type: ignore[arg-type]
    here = place().then(cut)
    assert_told(ask(guarded, here.url(MESSAGES), asked(), account(here.host)), "anthropic")


@pytest.mark.parametrize("wire", WIRES)
def test_a_challenge_in_any_chunking_is_seen(guarded: Proxy, place: Places, wire: str) -> None:
    family, path, _, _ = WIRES[wire]
    data = COMMENT + CHALLENGE
    here = place(family).then(streamed([data[index : index + 1] for index in range(len(data))]))
    assert_told(ask(guarded, here.url(path), asked(), account(here.host)), wire)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("size", [1, 7, 64, 100000])
def test_an_answer_in_any_chunking_passes_unchanged(guarded: Proxy, place: Places, wire: str, size: int) -> None:
    family, path, _, frames = WIRES[wire]
    data = b"".join(frames("RGV587", "哎哟喂,被挤爆啦", "aliyun_waf_aa"))
    here = place(family).then(streamed([data[start : start + size] for start in range(0, len(data), size)]))
    answer = ask(guarded, here.url(path), asked(), account(here.host))
    assert (answer.status, answer.whole, answer.body) == (200, True, data)
    assert answer.header("x-breakwater") is None


@pytest.mark.parametrize(("path", "message"), [(MESSAGES, anthropic_message), (COMPLETIONS, openai_message)])
@pytest.mark.parametrize("text", ["Hello", '{"ret":["RGV587_ERROR::SM"]}', PAGE.decode(), "哎哟喂,被挤爆啦"])
def test_a_whole_answer_passes_byte_for_byte(
    guarded: Proxy, place: Places, path: str, message: Callable[[str], dict[str, object]], text: str
) -> None:
    here = place().then(whole(message(text)))
    answer = ask(guarded, here.url(path), asked(stream=False), account(here.host))
    assert (answer.status, answer.body) == (200, compact(message(text)))


def test_the_request_goes_on_byte_for_byte_and_header_for_header(guarded: Proxy, place: Places) -> None:
    here = place().then(whole(anthropic_message()))
    odd = [
        ("Authorization", "Bearer sk-x"),
        ("X-Odd-CASE", " spaced "),
        ("accept-encoding", "zstd, br"),
        ("x-b", "1"),
        ("x-b", "2"),
    ]
    body = b'{ "model":"glm-5.2",\t"messages":[{"role":"user","content":"\\u4f60 \xe5\xa5\xbd"}], "stream" : false }'
    ask(guarded, here.url(MESSAGES + "?beta=true"), body, odd)
    hit = here.hits[0]
    assert (hit.path, hit.body) == (MESSAGES + "?beta=true", body)
    sent = [(name.encode(), value.strip().encode()) for name, value in odd]
    assert [pair for pair in hit.headers if pair[0] not in (b"host", b"content-length")] == sent


def test_frames_pass_one_by_one_after_the_first_answer_frame(guarded: Proxy, place: Places) -> None:
    frames, gates = anthropic("one", "two", "three"), [Gate(), Gate(), Gate()]
    script: Sequence[bytes | Gate] = [*frames[:3], gates[0], frames[3], gates[1], frames[4], gates[2], *frames[5:]]
    here = place().then(streamed(script))
    with Connection(guarded, here.url(MESSAGES)) as connection:
        connection.send(asked(), account(here.host))
        answer = connection.head()
        while len(answer.body) < len(b"".join(frames[:3])):
            connection.piece(answer)
        for gate, frame in zip(gates, frames[3:5], strict=False):
            gate.open()
            assert connection.piece(answer) == frame
        gates[2].open()
        connection.rest(answer)
    assert answer.body == b"".join(frames)


def test_preamble_keeps_the_headers_back_and_is_not_lost(guarded: Proxy, place: Places) -> None:
    gate, frames = Gate(), anthropic("one")
    here = place().then(streamed([frames[0], PING, COMMENT, gate, *frames[1:]]))
    with Connection(guarded, here.url(MESSAGES)) as connection:
        connection.send(asked(), account(here.host))
        gate.wait_reached()
        assert connection.silent_for(0.3)
        gate.open()
        answer = connection.answer()
    assert answer.body == frames[0] + PING + COMMENT + b"".join(frames[1:])


def test_a_challenge_after_preamble_still_becomes_a_real_status(guarded: Proxy, place: Places) -> None:
    here = place().then(streamed([anthropic()[0], PING, CHALLENGE]))
    assert_told(ask(guarded, here.url(MESSAGES), asked(), account(here.host)), "anthropic")


def test_preamble_alone_is_held_no_longer_than_the_settings_say(quick: Proxy, place: Places) -> None:
    gate, frames = Gate(), anthropic("one")
    here = place().then(streamed([frames[0], gate, *frames[1:]]))
    with Connection(quick, here.url(MESSAGES)) as connection:
        connection.send(asked(), account(here.host))
        gate.wait_reached()
        began = time.monotonic()
        answer = connection.head()
        assert answer.head_at - began < 2
        assert connection.piece(answer) == frames[0]
        gate.open()
        connection.rest(answer)
    assert answer.body == b"".join(frames)


def test_silence_after_the_headers_is_held_no_longer_than_the_settings_say(quick: Proxy, place: Places) -> None:
    gate, frames = Gate(), anthropic("one")
    here = place().then(streamed([gate, *frames]))
    with Connection(quick, here.url(MESSAGES)) as connection:
        connection.send(asked(), account(here.host))
        gate.wait_reached()
        began = time.monotonic()
        answer = connection.head()
        assert 1 < answer.head_at - began < 6
        gate.open()
        connection.rest(answer)
    assert (answer.status, answer.body) == (200, b"".join(frames))


@pytest.mark.parametrize("wire", WIRES)
def test_a_challenge_after_the_first_answer_frame_ends_the_stream_with_an_error_frame(
    guarded: Proxy, place: Places, wire: str
) -> None:
    family, path, _, frames = WIRES[wire]
    begun = b"".join(frames("one")[:3])
    here = place(family).then(streamed([begun, CHALLENGE, *frames("two")]))
    answer = ask(guarded, here.url(path), asked(), account(here.host))
    assert answer.status == 200
    assert answer.whole
    assert answer.body.startswith(begun)
    rest = answer.body[len(begun) :]
    assert b"retry_after" in rest
    assert b"error" in rest
    assert b"RGV587_ERROR::SM" not in rest
    assert b"x5secdata" not in rest
    assert b"two" not in rest
    assert rest.endswith(b"data: [DONE]\n\n") == (wire != "anthropic")


@pytest.mark.parametrize("code", ENCODINGS)
def test_an_encoded_stream_is_cut_at_a_late_challenge(guarded: Proxy, place: Places, code: str) -> None:
    begun, gate = b"".join(anthropic(*["word"] * 40)[:-3]), Gate()
    head = encoding.encode(begun, code)
    # Two members in one body would not decode everywhere: the challenge is the tail of one encoded whole.
    data = encoding.encode(begun + CHALLENGE, code)
    here = place().then(
        Reply(
            headers=[SSE, ("content-encoding", code)],
            chunks=[data[: len(head) // 2], gate, data[len(head) // 2 :]],
            framing="chunked",
        )
    )
    with Connection(guarded, here.url(MESSAGES)) as connection:
        connection.send(asked(), account(here.host))
        gate.wait_reached()
        gate.open()
        answer = connection.answer()
    assert answer.status in (200, 529)
    assert not answer.whole or answer.status == 529
    assert b"x5secdata" not in answer.raw


def test_a_stream_with_a_content_length_is_cut_at_a_late_challenge(guarded: Proxy, place: Places) -> None:
    gate, begun = Gate(), b"".join(anthropic("one")[:3])
    here = place().then(Reply(headers=[SSE], chunks=[begun, gate, CHALLENGE, b"data: {}\n\n"]))
    with Connection(guarded, here.url(MESSAGES)) as connection:
        connection.send(asked(), account(here.host))
        answer = connection.head()
        connection.piece(answer)
        gate.open()
        connection.rest(answer)
    assert (answer.status, answer.body, answer.whole) == (200, begun, False)


@pytest.mark.parametrize("leave", [Connection.close, Connection.reset])
@pytest.mark.parametrize("preamble", [b"", PING])
def test_a_client_that_leaves_during_the_hold_is_noticed_at_once(
    guarded: Proxy, place: Places, leave: Callable[[Connection], None], preamble: bytes
) -> None:
    gate = Gate()
    here = place().then(streamed([*([preamble] if preamble else []), gate], end="hang"))
    connection = Connection(guarded, here.url(MESSAGES))
    connection.send(asked(), account(here.host))
    gate.wait_reached()
    gate.open()
    assert connection.silent_for(0.1)
    left = time.monotonic()
    leave(connection)
    assert here.wait_left(here.hits[0]) - left < 1


def test_a_client_that_leaves_before_the_headers_is_noticed_at_once(guarded: Proxy, place: Places) -> None:
    here = place().then(streamed(anthropic(), before=Gate()))
    connection = Connection(guarded, here.url(MESSAGES))
    connection.send(asked(), account(here.host))
    hit = here.wait_hits(1)[0]
    left = time.monotonic()
    connection.close()
    assert here.wait_left(hit) - left < 1


def test_a_large_json_body_streams_on_above_the_held_bytes(guarded: Proxy, place: Places) -> None:
    gate = Gate()
    body = compact(anthropic_message("x" * 400_000))
    here = place().then(Reply(headers=[JSON], chunks=[body[:350_000], gate, body[350_000:]]))
    with Connection(guarded, here.url(MESSAGES)) as connection:
        connection.send(asked(stream=False), account(here.host))
        answer = connection.head()
        gate.open()
        connection.rest(answer)
    assert (answer.status, answer.body) == (200, body)


def test_a_connection_is_used_again_after_an_answer_of_our_own(guarded: Proxy, place: Places) -> None:
    here = place().then(whole(MTOP), streamed(anthropic("one")), streamed([CHALLENGE]), whole(anthropic_message()))
    with Connection(guarded, here.url(MESSAGES)) as connection:
        statuses = []
        for turn in range(4):
            connection.send(asked(f"turn {turn}"), account(here.host))
            statuses.append(connection.answer().status)
    assert statuses == [529, 200, 529, 200]


def test_a_wait_of_the_upstream_is_told_as_it_is(guarded: Proxy, place: Places) -> None:
    reply = Reply(headers=[JSON, ("Retry-After", "17")], chunks=[compact(MTOP)])
    here = place().then(reply)
    assert ask(guarded, here.url(MESSAGES), asked(), account(here.host)).retry_after == 17


def test_headers_that_belong_to_the_challenge_do_not_reach_the_client(guarded: Proxy, place: Places) -> None:
    dropped = [("x-should-retry", "false"), ("retry-after-ms", "5"), ("anthropic-ratelimit-unified-status", "rejected")]
    here = place().then(Reply(headers=[JSON, *dropped], chunks=[compact(MTOP)]))
    answer = ask(guarded, here.url(MESSAGES), asked(), account(here.host))
    assert answer.status == 529
    assert [name for name, _ in dropped if answer.header(name)] == []


def test_a_host_that_is_not_configured_is_left_alone(guarded: Proxy, upstream: Upstream) -> None:
    here = upstream.place("other.test").then(whole(MTOP))
    answer = ask(guarded, here.url(MESSAGES), asked(), account(here.host))
    assert (answer.status, answer.body) == (200, compact(MTOP))


def test_a_host_that_is_not_configured_is_not_even_decrypted(guarded: Proxy, upstream: Upstream) -> None:
    here = upstream.place("sealed.test").then(whole(MTOP))
    with Connection(guarded, here.url(MESSAGES, "https"), ca_path=upstream.ca_path) as connection:
        connection.send(asked(), account(here.host))
        answer = connection.answer()
    assert (answer.status, answer.body) == (200, compact(MTOP))
