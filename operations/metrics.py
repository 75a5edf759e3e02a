"""The state as Prometheus text, in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from operations.status import HOLD_BUCKETS, Histogram, Status, UpstreamRow

STATES = ("closed", "half_open", "probing", "open")
"""From the mildest: where each account has its own breaker, an upstream shows the gravest."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series: a row of the README's table."""

    name: str
    type: str
    labels: tuple[str, ...]
    unit: str
    meaning: str


SERIES = (
    Series("breakwater_info", "gauge", ("version", "mode"), "", "Always 1; carries version and mode."),
    Series("breakwater_breaker_state", "gauge", ("upstream", "state"), "0 or 1",
           "1 for the state the breaker is in (closed, half_open, probing, open), 0 for the others."),
    Series("breakwater_breaker_seconds_left", "gauge", ("upstream",), "seconds",
           "What is left of the open window or of the probe's lease; 0 while closed."),
    Series("breakwater_breaker_strikes", "gauge", ("upstream",), "strikes",
           "Challenges in a row since the last answer."),
    Series("breakwater_breaker_opened_total", "counter", ("upstream",), "openings",
           "Times the breaker opened, a challenged probe included."),
    Series("breakwater_upstream_sends_total", "counter", ("upstream",), "requests",
           "Generation requests sent upstream, re-sends included."),
    Series("breakwater_sends_avoided_total", "counter", ("upstream", "reason"), "requests",
           "Requests answered here instead of being sent, by reason code."),
    Series("breakwater_findings_total", "counter", ("upstream", "kind"), "answers",
           "What upstream answers were, by kind."),
    Series("breakwater_answers_replaced_total", "counter", ("upstream", "reason"), "answers",
           "Upstream answers replaced by a truthful one, by reason code."),
    Series("breakwater_resends_total", "counter", ("upstream",), "requests",
           "Requests sent again in place with the headers still held."),
    Series("breakwater_in_stream_refusals_total", "counter", ("upstream", "kind"), "streams",
           "Refusals that came after the first answer frame."),
    Series("breakwater_hold_seconds", "histogram", ("upstream",), "seconds",
           "How long response headers were held before they went out."),
    Series("breakwater_refusals_remembered", "gauge", ("upstream", "kind"), "refusals",
           "Refusals that are remembered now."),
    Series("breakwater_windows_learnt", "gauge", ("upstream",), "windows",
           "Context windows learnt from overflow texts and still valid."),
    Series("breakwater_faults_total", "counter", ("kind",), "faults",
           "Faults of the addon's own; each let its traffic through unchanged."),
)  # fmt: skip

_Values = Mapping[tuple[str, ...], float]
_BY_NAME = {row.name: row for row in SERIES}


def render(status: Status, accept: str = "") -> tuple[str, bytes]:
    """Content type and text; OpenMetrics where the Accept header asks for it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusCollector(lambda: status))
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)


class StatusCollector(Collector):
    """Reads a fresh `Status` at each scrape; holds nothing."""

    def __init__(self, read: Callable[[], Status]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        status = self._read()
        counts = status.counts
        yield _gauge("breakwater_info", {(status.version, status.mode): 1})
        yield from _breakers(status)
        yield _counter("breakwater_breaker_opened_total", _single(counts.opened))
        yield _counter("breakwater_upstream_sends_total", _single(counts.sends))
        yield _counter("breakwater_sends_avoided_total", counts.avoided)
        yield _counter("breakwater_findings_total", counts.findings)
        yield _counter("breakwater_answers_replaced_total", counts.replaced)
        yield _counter("breakwater_resends_total", _single(counts.resends))
        yield _counter("breakwater_in_stream_refusals_total", counts.in_stream)
        yield _holds(counts.holds)
        yield _gauge("breakwater_refusals_remembered", _tally((row.upstream, row.kind) for row in status.refusals))
        yield _gauge("breakwater_windows_learnt", _tally((row.upstream,) for row in status.windows))
        yield _counter("breakwater_faults_total", _single(counts.faults))


def _breakers(status: Status) -> Iterator[Metric]:
    gravest: dict[str, UpstreamRow] = {}
    for row in status.upstreams:
        if row.name not in gravest or _gravity(row) > _gravity(gravest[row.name]):
            gravest[row.name] = row
    states: _Values = {(name, state): int(row.state == state) for name, row in gravest.items() for state in STATES}
    yield _gauge("breakwater_breaker_state", states)
    left: _Values = {(name,): row.seconds_left or 0.0 for name, row in gravest.items()}
    yield _gauge("breakwater_breaker_seconds_left", left)
    strikes: _Values = {(name,): max(row.strikes for row in status.upstreams if row.name == name) for name in gravest}
    yield _gauge("breakwater_breaker_strikes", strikes)


def _gravity(row: UpstreamRow) -> tuple[int, float]:
    return STATES.index(row.state), row.seconds_left or 0.0


def _gauge(name: str, values: _Values) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, _BY_NAME[name].meaning, labels=_BY_NAME[name].labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _counter(name: str, values: Mapping[tuple[str, str], int] | Mapping[tuple[str], int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name.removesuffix("_total"), _BY_NAME[name].meaning, labels=_BY_NAME[name].labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _holds(holds: Mapping[str, Histogram]) -> HistogramMetricFamily:
    name = "breakwater_hold_seconds"
    family = HistogramMetricFamily(name, _BY_NAME[name].meaning, labels=_BY_NAME[name].labels)
    edges = (*map(str, HOLD_BUCKETS), "+Inf")
    for upstream, histogram in holds.items():
        below = 0
        buckets: list[tuple[str, float]] = []
        for edge, count in zip(edges, histogram.counts, strict=True):
            below += count
            buckets.append((edge, below))
        family.add_metric([upstream], buckets, histogram.seconds)
    return family


def _single(counts: Mapping[str, int]) -> dict[tuple[str], int]:
    return {(label,): number for label, number in counts.items()}


def _tally(labels: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    tally: dict[tuple[str, ...], float] = {}
    for label in labels:
        tally[label] = tally.get(label, 0) + 1
    return tally
