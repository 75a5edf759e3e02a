"""What of a flow's stream a hold may rely on."""

from __future__ import annotations

import weakref

from mitmproxy.test import tflow

from hold import STREAM, can_hold


class Stream:
    """Stands in for a stream that is still there."""


def test_a_flow_that_is_replayed_has_no_stream_of_ours_though_that_of_its_first_exchange_may_live() -> None:
    flow, stream = tflow.tflow(), Stream()
    setattr(flow, STREAM, weakref.ref(stream))
    assert can_hold(flow)
    flow.is_replay = "request"
    assert not can_hold(flow)


def test_a_copy_of_a_flow_has_no_stream() -> None:
    flow, stream = tflow.tflow(), Stream()
    setattr(flow, STREAM, weakref.ref(stream))
    assert not can_hold(flow.copy())  # type: ignore[no-untyped-call]
