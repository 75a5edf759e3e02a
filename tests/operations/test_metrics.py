import dataclasses
import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from operations.metrics import FAULTS, SERIES, Counters, Series, render
from operations.status import RefusalRow, Status, Table, UpstreamRow, WindowRow
from tests.rows import over


def full_status() -> Status:
    counters = Counters()
    counters.sent("qwen-chat")
    counters.avoided("qwen-chat", "breaker_open")
    counters.found("qwen-chat", "challenge")
    counters.replaced("qwen-chat", "challenge_captcha")
    counters.resent("zcode")
    counters.refused_in_stream("zai", "rate_limit")
    counters.opened("qwen-chat")
    counters.fault("judge")
    counters.held("zai", 0.2)
    counters.held("zai", 0.3)
    counters.held("zai", 500)
    counters.waited("zai", "sent", 12.0)
    counters.lost("redis://127.0.0.1:6379/0")
    return Status(
        1000.0,
        "0.1.0",
        "enforce",
        (
            UpstreamRow("qwen-chat", ("chat.qwen.ai",), state="open", seconds_left=12.5, strikes=3),
            UpstreamRow("zai", ("api.z.ai",), strikes=1),
        ),
        windows=(WindowRow("zai", "glm-5", 202745), WindowRow("zai", "glm-5.1", 202745)),
        refusals=(RefusalRow("wait", "zai", "ab", 3.0), RefusalRow("wait", "zai", "cd", 3.0)),
        tables=(
            Table("shared", ("server", "connection", "why"), (("redis://127.0.0.1:6379/0", "connected", ""),)),
            Table("waiting", ("upstream", "model"), (("zai", "glm-5"), ("zai", "glm-5"))),
            Table("limits", ("upstream", "account", "model", "slots"), (("zai", "a", "m", 3), ("zai", "b", "m", 2))),
        ),
        counters=counters,
    )


def samples(status: Status) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    _, text = render(status)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(status: Status, name: str, **labels: str) -> float:
    return samples(status)[name, frozenset(labels.items())]


def test_every_series_stands_in_the_table_with_its_type_and_labels_and_every_row_is_sent() -> None:
    rows = {row.name: row for row in SERIES}
    seen = set()
    for family in text_string_to_metric_families(render(full_status())[1].decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        row = rows[name]
        assert family.type == row.type
        assert family.documentation == row.meaning
        assert family.samples, f"{name} has no sample"
        for sample in family.samples:
            assert sample.name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") == name
            assert set(sample.labels) - {"le"} == set(row.labels)
        seen.add(name)
    assert seen == set(rows)


def test_names_begin_with_breakwater_and_appear_once() -> None:
    names = [row.name for row in SERIES]
    assert len(set(names)) == len(names)
    assert all(name.startswith("breakwater_") for name in names)
    assert all(row.name.endswith("_total") == (row.type == "counter") for row in SERIES)


def test_values_are_those_of_the_status() -> None:
    status = full_status()
    assert value(status, "breakwater_info", version="0.1.0", mode="enforce") == 1
    assert value(status, "breakwater_breaker_state", upstream="qwen-chat", state="open") == 1
    assert value(status, "breakwater_breaker_state", upstream="qwen-chat", state="closed") == 0
    assert value(status, "breakwater_breaker_state", upstream="zai", state="closed") == 1
    assert value(status, "breakwater_breaker_seconds_left", upstream="qwen-chat") == 12.5
    assert value(status, "breakwater_breaker_strikes", upstream="zai") == 1
    assert value(status, "breakwater_sends_avoided_total", upstream="qwen-chat", reason="breaker_open") == 1
    assert value(status, "breakwater_windows_learnt", upstream="zai") == 2
    assert value(status, "breakwater_refusals_remembered", upstream="zai", kind="wait") == 2
    assert value(status, "breakwater_faults_total", kind="judge") == 1
    assert value(status, "breakwater_queue_waiting", upstream="zai") == 2
    assert value(status, "breakwater_queue_waiting", upstream="qwen-chat") == 0
    assert value(status, "breakwater_queue_left_total", upstream="zai", how="sent") == 1
    assert value(status, "breakwater_concurrency_limit", upstream="zai") == 2


def test_the_buckets_of_the_hold_are_cumulative() -> None:
    status = full_status()
    assert value(status, "breakwater_hold_seconds_bucket", upstream="zai", le="0.1") == 0
    assert value(status, "breakwater_hold_seconds_bucket", upstream="zai", le="0.25") == 1
    assert value(status, "breakwater_hold_seconds_bucket", upstream="zai", le="0.5") == 2
    assert value(status, "breakwater_hold_seconds_bucket", upstream="zai", le="100.0") == 2
    assert value(status, "breakwater_hold_seconds_bucket", upstream="zai", le="+Inf") == 3
    assert value(status, "breakwater_hold_seconds_count", upstream="zai") == 3
    assert value(status, "breakwater_hold_seconds_sum", upstream="zai") == pytest.approx(500.5)


def test_an_upstream_with_a_breaker_for_each_account_shows_the_gravest() -> None:
    rows = (
        UpstreamRow("zai", state="half_open", account="aa", strikes=1),
        UpstreamRow("zai", state="open", account="bb", seconds_left=5, strikes=3),
        UpstreamRow("zai", state="closed", account="cc"),
    )
    status = Status(0.0, "1", "enforce", rows)
    assert value(status, "breakwater_breaker_state", upstream="zai", state="open") == 1
    assert value(status, "breakwater_breaker_state", upstream="zai", state="half_open") == 0
    assert value(status, "breakwater_breaker_seconds_left", upstream="zai") == 5
    assert value(status, "breakwater_breaker_strikes", upstream="zai") == 3


def test_a_scraper_that_asks_for_openmetrics_gets_it() -> None:
    content_type, text = render(full_status(), "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    families = openmetrics_families(text.decode())  # type: ignore[no-untyped-call]
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert names == {row.name for row in SERIES}


ODD = [
    "", "*/*", "application/openmetrics-text; version=x", "application/openmetrics-text;version=", "text/plain;version=x",
    "text/plain;version=1.0.0;escaping=\u00e9", "application/openmetrics-text;version=\u0661.\u0660.0", ",;=,;;q=", "x" * 5000,
    "Application/OpenMetrics-Text",
]  # fmt: skip


@over("accept", ODD)
def test_whatever_is_asked_for_is_answered_in_one_of_two_forms(accept: str) -> None:
    content_type, text = render(full_status(), accept)
    content_type.encode("ascii")
    if content_type.startswith("application/openmetrics-text"):
        assert list(openmetrics_families(text.decode()))  # type: ignore[no-untyped-call]
    else:
        assert content_type.startswith("text/plain")
        assert list(text_string_to_metric_families(text.decode()))


def test_what_a_gauge_no_longer_has_is_gone_at_the_next_scrape() -> None:
    status = full_status()
    render(status)
    later = dataclasses.replace(status, refusals=(), upstreams=())
    assert not [name for name, _ in samples(later) if "remembered" in name or "breaker_state" in name]
    assert value(later, "breakwater_upstream_sends_total", upstream="qwen-chat") == 1


def test_page_and_metrics_read_one_set_of_counters() -> None:
    status = full_status()
    status.counters.sent("qwen-chat")
    assert status.counters.freeze().sends == {"qwen-chat": 2}
    assert value(status, "breakwater_upstream_sends_total", upstream="qwen-chat") == 2
    assert status.as_json()["counts"] == status.counters.freeze().as_json()


def test_text_from_outside_is_no_label() -> None:
    counters = Counters()
    for number in range(2000):
        word = f"a model wrote {number}"
        counters.fault(word)
        counters.avoided("zai", word)
        counters.found("zai", word)
        counters.replaced("zai", word)
        counters.refused_in_stream("zai", word)
    counts = counters.freeze()
    assert counts.faults == {"other": 2000}
    for pairs in (counts.avoided, counts.findings, counts.replaced, counts.in_stream):
        assert pairs == {("zai", "other"): 2000}
    assert "wrote" not in render(Status(0.0, "1", "enforce", counters=counters))[1].decode()


def test_every_fault_of_the_source_has_a_label_of_its_own() -> None:
    root = Path(__file__).parents[2]
    source = "".join(path.read_text() for path in (root / "addon.py", *(root / "operations").glob("*.py")))
    named = set(re.findall(r"(?:fault|safely)\(\s*\"(\w+)\"", source))
    assert named
    assert named <= FAULTS


def test_a_fresh_start_is_valid_text() -> None:
    assert value(Status(0.0, "1", "observe"), "breakwater_info", version="1", mode="observe") == 1


PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


@over("row", SERIES, ids=lambda row: row.name)
def test_the_page_of_metrics_has_each_series_with_its_type_labels_unit_and_meaning(row: Series) -> None:
    labels = f"{{{', '.join(row.labels)}}}"
    line = f"| `{row.name}`{labels} | {row.type} | {row.unit or '–'} | {row.meaning} |"
    assert " ".join(line.split()) in " ".join(PAGE.read_text(encoding="utf-8").split())
