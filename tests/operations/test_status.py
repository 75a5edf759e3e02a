import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from operations.metrics import Counters
from operations.status import DecisionRow, RefusalRow, Status, Table, UpstreamRow, WindowRow
from tests.operations.page_source import REPORT, said


def test_counters_start_at_nothing() -> None:
    counts = Counters().freeze()
    assert counts.sends == {}
    assert counts.holds == {}
    assert counts.avoided_at("zai") == 0
    assert counts.found("zai", "challenge") == 0


def test_each_method_adds_one_under_its_labels() -> None:
    counters = Counters()
    counters.sent("zai")
    counters.sent("zai")
    counters.avoided("zai", "breaker_open")
    counters.avoided("zai", "remembered_wait")
    counters.found("zai", "overload")
    counters.replaced("zai", "overload")
    counters.resent("zai")
    counters.refused_in_stream("zai", "rate_limit")
    counters.opened("zai")
    counters.fault("judge")
    counts = counters.freeze()
    assert counts.sends == {"zai": 2}
    assert counts.avoided == {("zai", "breaker_open"): 1, ("zai", "remembered_wait"): 1}
    assert counts.avoided_at("zai") == 2
    assert counts.avoided_at("bigmodel") == 0
    assert counts.found("zai", "overload") == 1
    assert counts.replaced == {("zai", "overload"): 1}
    assert counts.resends == {"zai": 1}
    assert counts.in_stream == {("zai", "rate_limit"): 1}
    assert counts.opened == {"zai": 1}
    assert counts.faults == {"judge": 1}


def test_what_was_frozen_no_longer_changes() -> None:
    counters = Counters()
    counters.sent("zai")
    counters.held("zai", 1)
    before = counters.freeze()
    counters.sent("zai")
    counters.held("zai", 1)
    assert before.sends == {"zai": 1}
    assert before.holds["zai"].count == 1


@given(st.lists(st.floats(-1, 1000), max_size=50))
def test_every_hold_is_counted(seconds: list[float]) -> None:
    counters = Counters()
    for each in seconds:
        counters.held("zai", each)
    holds = counters.freeze().holds
    if not seconds:
        assert holds == {}
        return
    assert holds["zai"].count == len(seconds)
    assert abs(holds["zai"].seconds - sum(max(each, 0) for each in seconds)) < 0.001


def test_a_status_becomes_json_with_every_row() -> None:
    counters = Counters()
    counters.avoided("zai", "breaker_open")
    counters.held("zai", 0.5)
    status = Status(
        now_wall=1000.0,
        version="1",
        mode="enforce",
        upstreams=(UpstreamRow("zai", ("api.z.ai",), state="open", seconds_left=3.5),),
        decisions=(
            DecisionRow(999.0, "flow", "zai", "anthropic", "/v1/messages", "overload", "overload", said("why"), wait=30),
        ),
        windows=(WindowRow("zai", "glm-5", 202745),),
        refusals=(RefusalRow("wait", "zai", "ab12", 3.0),),
        report=REPORT,
        faults={"judge": said("once")},
        counters=counters,
    )
    told = json.loads(json.dumps(status.as_json()))
    assert told["upstreams"][0]["hosts"] == ["api.z.ai"]
    assert told["upstreams"][0]["seconds_left"] == 3.5
    assert told["decisions"][0]["wait"] == 30
    assert told["windows"][0]["tokens"] == 202745
    assert told["refusals"][0]["account"] == "ab12"
    assert told["decisions"][0]["comment"] == "Why"
    assert "with: 126/144" in told["report"]
    assert "evidence: true" in json.loads(json.dumps(replace(status, report=None).as_json()))["report"]
    assert told["faults"] == {"judge": "Once"}
    assert told["counts"]["avoided"] == {"zai": {"breaker_open": 1}}
    assert told["counts"]["holds"] == {"zai": {"count": 1, "seconds": 0.5}}


def test_the_revision_stays_while_only_seconds_run_down_and_changes_with_the_rest() -> None:
    row = UpstreamRow("zai", state="open", seconds_left=41.0)
    waiting = Table("waiting", ("upstream", "waited", "longest"), (("zai", 3, 22),))
    first = Status(1.0, "1", "enforce", upstreams=(row,), refusals=(RefusalRow("wait", "zai", "ab", 9.0),), tables=(waiting,))
    later = replace(
        first,
        now_wall=3.0,
        upstreams=(replace(row, seconds_left=39.0),),
        refusals=(RefusalRow("wait", "zai", "ab", 7.0),),
        tables=(replace(waiting, rows=(("zai", 5, 20),)),),
    )
    assert later.revision() == first.revision()
    assert replace(later, tables=(replace(waiting, rows=(("zcode", 5, 20),)),)).revision() != first.revision()
    assert replace(later, upstreams=(replace(row, state="half_open"),)).revision() != first.revision()
    assert replace(later, mode="observe").revision() != first.revision()
    assert later.as_json("revision") == {"now": 3.0, "version": "1", "mode": "enforce", "revision": first.revision()}
