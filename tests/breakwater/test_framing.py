"""Headers that remember one of theirs are in everything else mitmproxy's."""

from __future__ import annotations

import copy
from typing import Any

from mitmproxy import http
from mitmproxy.test import tflow

from breakwater.lean import FRAMING, Framing, Headers


def headers(**more: Any) -> Any:
    """Headers of an answer that has gone through the addon."""
    flow = tflow.tflow(resp=True)
    assert flow.response
    flow.response.headers = http.Headers(transfer_encoding="chunked", **more)
    Framing().responseheaders(flow)
    assert type(flow.response.headers) is Headers
    return flow.response.headers


def test_the_framing_is_what_it_is_also_after_a_change() -> None:
    found = headers(server="x")
    assert [found.get(FRAMING), found.get(FRAMING, "")] == ["chunked", "chunked"]
    found[FRAMING] = "gzip, chunked"
    assert found.get(FRAMING, "") == "gzip, chunked"
    del found["server"]
    assert found.get(FRAMING) == "gzip, chunked"
    del found[FRAMING]
    assert (found.get(FRAMING), found.get(FRAMING, "none")) == (None, "none")
    found.add("Transfer-Encoding", "chunked")
    assert found.get(FRAMING, "none") == "chunked"


def test_it_is_looked_up_once() -> None:
    found = headers()
    assert found.get(FRAMING) == "chunked"
    found.__dict__["known"] = (found.fields, "known")
    assert found.get(FRAMING) == "known"


def test_other_headers_copies_and_states_are_mitmproxys() -> None:
    found = headers(server="x")
    found.get(FRAMING)
    assert found.get("Server") == "x"
    assert found.get("nothing", "else") == "else"
    assert found == http.Headers(transfer_encoding="chunked", server="x")
    assert found.copy().get_state() == copy.copy(found).get_state() == found.get_state()


def test_a_flow_without_an_answer_stays_as_it_is() -> None:
    flow = tflow.tflow()
    Framing().responseheaders(flow)
    assert flow.response is None
