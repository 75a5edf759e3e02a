import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from mitmproxy import contentviews, http
from mitmproxy.test import taddons, tflow

from operations import content_view
from operations.content_view import BreakwaterView, describe, explain, register, unregister
from tests.rows import over

STREAM = b'data: {"choices":[{"delta":{"content":"It is "}}]}\n\ndata: {"choices":[{"delta":{"content":"so."}}]}\n\n'

DECIDED = {
    "reason": "challenge_captcha",
    "finding": "challenge: captcha",
    "row": "mtop-captcha",
    "code": "FAIL_SYS_USER_VALIDATE",
    "upstream": "qwen-chat",
    "wire": "openai",
    "breaker_before": "closed, 2 strikes",
    "breaker_after": "open, 59 s left",
    "waits": [30, 59],
    "attempts": 2,
    "hold_seconds": 1.23456,
    "excerpt": '{"ret":["FAIL_SYS_USER_VALIDATE"]}',
}


def answered_flow(content: bytes = b"") -> http.HTTPFlow:
    flow = tflow.tflow(resp=http.Response.make(200, content, {"content-type": "application/json"}))
    assert isinstance(flow, http.HTTPFlow)
    return flow


def decided_flow(metadata: object = None, view: bytes = b"") -> http.HTTPFlow:
    flow = answered_flow(view or (STREAM if metadata is None else b""))
    flow.metadata["breakwater"] = DECIDED if metadata is None else metadata
    flow.comment = "The upstream asked for a captcha."
    return flow


VIEWS: Any = contentviews
"""Its two versions have different names in it."""


@pytest.fixture
def registered() -> Iterator[None]:
    with taddons.context():  # type: ignore[no-untyped-call]
        register()
        yield
        unregister()


def shown(flow: http.HTTPFlow, message: http.Message | None, view_name: str = "auto") -> tuple[str, str]:
    """The text that mitmweb shows, and the name of the view that made it; by the calls of the version at hand."""
    if hasattr(contentviews, "prettify_message"):
        result = VIEWS.prettify_message(message, flow, view_name)
        return result.text, result.view_name
    assert message is not None
    title, lines, error = VIEWS.get_message_content_view(view_name, message, flow)
    assert error is None
    return "\n".join("".join(text for _, text in line) for line in lines), title.strip()


def test_a_decided_flows_answer_shows_the_trace_by_itself(registered: None) -> None:
    flow = decided_flow()
    text, name = shown(flow, flow.response)
    assert name == "Breakwater"
    lines = text.split("\n")
    assert lines[:3] == ["The upstream asked for a captcha.", "", "reason           challenge_captcha"]
    for line in (
        f"in a command     @{flow.id}",
        "recognised by    mtop-captcha",
        "upstream's code  FAIL_SYS_USER_VALIDATE",
        "breaker before   closed, 2 strikes",
        "breaker after    open, 59 s left",
        "waits            30, 59 s",
        "sends upstream   2",
        "headers held     1.235 s",
        "The upstream asked for a captcha.",
        '{"ret":["FAIL_SYS_USER_VALIDATE"]}',
    ):
        assert line in lines
    assert text.endswith("[text]\nIt is so.")


def test_the_request_of_a_decided_flow_keeps_its_own_view(registered: None) -> None:
    flow = decided_flow()
    flow.request.headers["content-type"] = "application/json"
    flow.request.content = b'{"a": 1}'
    assert shown(flow, flow.request)[1] != "Breakwater"


def test_a_flow_that_was_not_decided_keeps_its_own_view(registered: None) -> None:
    flow = answered_flow(b'{"a": 1}')
    assert shown(flow, flow.response)[1] == "JSON"


def test_the_view_can_be_asked_for_on_any_flow(registered: None) -> None:
    flow = answered_flow()
    text, _ = shown(flow, flow.response, "breakwater")
    assert text == "Breakwater did not decide anything about this flow."


def test_an_answer_without_a_body_shows_the_trace_too(registered: None) -> None:
    flow = decided_flow()
    assert flow.response is not None
    flow.response.content = b""
    assert shown(flow, flow.response)[1] == "Breakwater"


def test_registering_again_replaces(registered: None) -> None:
    register()
    flow = decided_flow()
    assert shown(flow, flow.response)[1] == "Breakwater"
    names = list(VIEWS.registry) if hasattr(contentviews, "registry") else [v.name.lower() for v in VIEWS.views]
    assert names.count("breakwater") == 1


def test_the_same_class_serves_both_versions() -> None:
    view = BreakwaterView()
    flow = decided_flow()
    title, lines = view(b"", flow=flow, http_message=flow.response, content_type=None, tcp_message=None)
    listed = [*lines]
    assert title == "Breakwater"
    assert all(isinstance(line, list) and len(line) == 1 for line in listed)
    assert "\n".join(line[0][1] for line in listed) == describe(flow)
    assert view.prettify(b"", type("Metadata", (), {"flow": flow})()) == describe(flow)
    assert view.render_priority(b"", flow=flow, http_message=flow.response) > 1
    assert view.render_priority(b"", type("Metadata", (), {"flow": flow, "http_message": flow.response})()) > 1
    assert view.render_priority(b"", flow=flow, http_message=flow.request) < 0
    assert view.render_priority(b"") < 0


def test_what_is_absent_is_left_out() -> None:
    text = describe(decided_flow({"reason": "passed", "code": None, "waits": []}))
    assert "upstream's code" not in text
    assert "waits" not in text
    assert "──" not in text


def test_keys_without_a_name_of_their_own_are_shown_too() -> None:
    assert "pacing delay     0.5" in describe(decided_flow({"reason": "passed", "pacing_delay": 0.5}))


def test_a_stream_without_answer_text_says_so() -> None:
    assert describe(decided_flow({"reason": "x"}, b": ping\n\n")).endswith("(no answer text in it)")


def test_an_encoded_stream_is_decoded() -> None:
    flow = decided_flow({"reason": "x", "wire": "openai"}, gzip.compress(STREAM))
    assert flow.response is not None
    flow.response.headers["content-encoding"] = "gzip"
    assert describe(flow).endswith("It is so.")


def test_the_explanation_leaves_the_answer_out() -> None:
    assert "challenge_captcha" in explain(decided_flow())
    assert "It is so." not in explain(decided_flow())
    flow = decided_flow()
    assert describe(flow).startswith(explain(flow))


@over(
    "metadata",
    [
        None,
        5,
        "text",
        [],
        {},
        {"excerpt": [1]},
        {5: None},
        {"reason": b"\xff"},
        {"wire": 7},
        {"waits": {"a": 1}},
    ],
)
def test_no_metadata_makes_it_raise(metadata: object) -> None:
    flow = answered_flow()
    flow.metadata["breakwater"] = metadata
    assert describe(flow)
    BreakwaterView().render_priority(b"", flow=flow, http_message=flow.response)


def test_things_that_are_no_http_flow_do_not_make_it_raise() -> None:
    assert "did not decide" in describe(None)
    assert "did not decide" in describe(tflow.ttcpflow())
    assert BreakwaterView().render_priority(b"", flow=tflow.tdnsflow(), http_message=None) < 0


def test_what_is_shown_is_bounded() -> None:
    answer = json.dumps({"choices": [{"message": {"content": "a\n" * 200_000}}]}).encode()
    text = describe(
        decided_flow(
            {
                "reason": "r" * 100_000,
                "waits": list(range(100_000)),
                "excerpt": "e" * 100_000,
                "wire": "openai",
            },
            answer,
        )
    )
    assert len(text) < 400_000
    assert text.count("\n") <= content_view.LINES_AT_MOST


def test_a_value_stays_on_its_line() -> None:
    text = describe(decided_flow({"reason": "one\ntwo\rthree"}))
    assert text.split("\n")[2] == "reason           one two three"


def test_a_saved_flow_shows_the_same() -> None:
    flow = decided_flow()
    assert describe(http.HTTPFlow.from_state(flow.get_state())) == describe(flow)


def test_an_answer_of_our_own_is_no_answer_of_a_model() -> None:
    flow = decided_flow()
    assert flow.response is not None
    flow.response.headers["x-breakwater"] = "challenge_captcha"
    assert describe(flow) == explain(flow)
