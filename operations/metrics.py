"""The counters, and the state beside them, as Prometheus text: one registry of our own, which page and metrics both read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from policies.kinds import Kind, Reason

if TYPE_CHECKING:
    from operations.status import Status, UpstreamRow

STATES = ("closed", "half_open", "probing", "open")
"""From the mildest: where each account has its own breaker, an upstream shows the gravest."""

HOLD_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 100.0)
"""Upper edges in seconds; everything longer falls into the last, open one."""

WAIT_BUCKETS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 280.0)
"""Upper edges in seconds."""

LEFT = frozenset({"sent", "patience", "client_left", "released"})
"""How a wait can end."""

OTHER = "other"
"""What a reason, kind or fault is counted as that is none of ours: no text from outside becomes a label."""

FAULTS = frozenset({
    "request", "responseheaders", "response", "judge", "tap", "settle", "clock", "due", "unsent", "look",
    "evidence", "watch", "line",
})  # fmt: skip
"""Where a fault of our own can be."""

CONNECTED = "connected"
"""Of the server of a shared state."""

OPENMETRICS = "application/openmetrics-text"

Child = TypeVar("Child", Counter, Histogram)
Measure = TypeVar("Measure", Counter, Gauge, Histogram)


@dataclass(frozen=True, slots=True)
class Series:
    """One series: a row of the table in docs/metrics.md."""

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
    Series("breakwater_queue_waiting", "gauge", ("upstream",), "requests",
           "Requests that wait here unsent now."),
    Series("breakwater_queue_seconds", "histogram", ("upstream",), "seconds",
           "How long requests waited here unsent, whatever ended it."),
    Series("breakwater_queue_left_total", "counter", ("upstream", "how"), "requests",
           "Waits that ended: sent, patience (its client would have left), client_left, released (by hand or by a new config)."),
    Series("breakwater_concurrency_limit", "gauge", ("upstream",), "calls",
           "The smallest learnt number of calls at a time of any account and model."),
    Series("breakwater_refusals_remembered", "gauge", ("upstream", "kind"), "refusals",
           "Refusals that are remembered now."),
    Series("breakwater_windows_learnt", "gauge", ("upstream",), "windows",
           "Context windows learnt from overflow texts and still valid."),
    Series("breakwater_shared_connected", "gauge", ("server",), "0 or 1",
           "1 while state is shared over this server, 0 while it is lost; without `shared:` there is none."),
    Series("breakwater_shared_losses_total", "counter", ("server",), "losses",
           "Times that the server of the shared state was lost."),
    Series("breakwater_faults_total", "counter", ("kind",), "faults",
           "Faults of the addon's own; each let its traffic through unchanged."),
)  # fmt: skip

_BY_NAME = {row.name: row for row in SERIES}


class _Children(dict[tuple[str, ...], Child], Generic[Child]):
    """Children of one series by their labels, bound when first asked for: `labels` costs as much as four additions."""

    def __init__(self, parent: Child, closed: Iterable[str] | None = None) -> None:
        """``closed``: all that the last label can be; everything else is counted as `OTHER`."""
        super().__init__()
        self.parent: Child = parent
        self._closed = None if closed is None else frozenset(closed)

    def __missing__(self, labels: tuple[str, ...]) -> Child:
        known = self._closed is None or labels[-1] in self._closed
        child: Child = self.parent.labels(*(labels if known else (*labels[:-1], OTHER)))
        if known:  # what is not known is bound again each time: nothing grows with it
            self[labels] = child
        return child


class _Counted(_Children[Counter]):
    """Counter that is called with its labels and adds one."""

    def __call__(self, *labels: str) -> None:
        self[labels].inc()


@dataclass(frozen=True, slots=True)
class Holds:
    """Hold times of one upstream."""

    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Counts:
    """What has been counted since the start."""

    sends: Mapping[str, int] = field(default_factory=dict)
    """By upstream, re-sends included."""
    avoided: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By upstream and reason."""
    findings: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By upstream and kind."""
    replaced: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By upstream and reason."""
    resends: Mapping[str, int] = field(default_factory=dict)
    in_stream: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Refusals after the first answer frame, by upstream and kind."""
    opened: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    holds: Mapping[str, Holds] = field(default_factory=dict)

    def avoided_at(self, upstream: str) -> int:
        return sum(number for (name, _), number in self.avoided.items() if name == upstream)

    def found(self, upstream: str, kind: str) -> int:
        return self.findings.get((upstream, kind), 0)

    def as_json(self) -> dict[str, object]:
        told: dict[str, object] = {each.name: _nested(getattr(self, each.name)) for each in fields(self)}
        told["in_stream_refusals"] = told.pop("in_stream")
        return told | {"holds": {name: {"count": h.count, "seconds": round(h.seconds, 3)} for name, h in self.holds.items()}}


class Counters:
    """Counters of one run, each a series of prometheus_client's: what it counts, and of what labels, stands in `SERIES`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.gauges = {row.name: self._make(Gauge, row.name) for row in SERIES if row.type == "gauge"}
        self.opened = self._counted("breakwater_breaker_opened_total")
        self.sent = self._counted("breakwater_upstream_sends_total")
        self.avoided = self._counted("breakwater_sends_avoided_total", Reason)
        self.found = self._counted("breakwater_findings_total", Kind)
        self.replaced = self._counted("breakwater_answers_replaced_total", Reason)
        self.resent = self._counted("breakwater_resends_total")
        self.refused_in_stream = self._counted("breakwater_in_stream_refusals_total", Kind)
        self.lost = self._counted("breakwater_shared_losses_total")
        self.fault = self._counted("breakwater_faults_total", FAULTS)
        self._left = self._counted("breakwater_queue_left_total", LEFT)
        self._holds = _Children(self._make(Histogram, "breakwater_hold_seconds", buckets=HOLD_BUCKETS))
        self._waits = _Children(self._make(Histogram, "breakwater_queue_seconds", buckets=WAIT_BUCKETS))

    def _make(self, kind: Callable[..., Measure], name: str, **options: object) -> Measure:
        return kind(name, _BY_NAME[name].meaning, _BY_NAME[name].labels, registry=self.registry, **options)

    def _counted(self, name: str, closed: Iterable[str] | None = None) -> _Counted:
        return _Counted(self._make(Counter, name), closed)

    def held(self, upstream: str, seconds: float) -> None:
        """Response headers were held for so long before they went out."""
        self._holds[upstream,].observe(max(seconds, 0.0))

    def waited(self, upstream: str, how: str, seconds: float) -> None:
        """A request's wait in line ended."""
        self._left(upstream, how)
        self._waits[upstream,].observe(seconds)

    def freeze(self) -> Counts:
        """A copy of what has been counted, read from the series that the metrics show."""
        seconds = _values(self._holds.parent, "_sum")
        return Counts(
            sends=_values(self.sent.parent),
            avoided=_values(self.avoided.parent),
            findings=_values(self.found.parent),
            replaced=_values(self.replaced.parent),
            resends=_values(self.resent.parent),
            in_stream=_values(self.refused_in_stream.parent),
            opened=_values(self.opened.parent),
            faults=_values(self.fault.parent),
            holds={name: Holds(count, seconds[name]) for name, count in _values(self._holds.parent, "_count").items()},
        )


def render(status: Status, accept: str = "") -> tuple[str, bytes]:
    """Content type and text: OpenMetrics where the Accept header names it, else Prometheus text, whatever it says."""
    gauges, limits = status.counters.gauges, dict[str | int | float, float]()
    for gauge in gauges.values():
        gauge.clear()
    gauges["breakwater_info"].labels(status.version, status.mode).set(1)
    for upstream in status.upstreams:
        gauges["breakwater_queue_waiting"].labels(upstream.name)
    _show_breakers(gauges, status.upstreams)
    for refusal in status.refusals:
        gauges["breakwater_refusals_remembered"].labels(refusal.upstream, refusal.kind).inc()
    for table in status.tables:
        for row in table.rows:
            if table.title == "waiting":
                gauges["breakwater_queue_waiting"].labels(row[0]).inc()
            elif table.title == "shared":
                gauges["breakwater_shared_connected"].labels(row[0]).set(row[1] == CONNECTED)
            else:
                limits[row[0]] = min(float(row[3]), limits.get(row[0], float("inf")))
                gauges["breakwater_concurrency_limit"].labels(row[0]).set(limits[row[0]])
    for window in status.windows:
        gauges["breakwater_windows_learnt"].labels(window.upstream).inc()
    # Asked for in words of our own: choose_encoder raises on a version that is no number.
    encode, content_type = choose_encoder(f"{OPENMETRICS}; version=1.0.0" if OPENMETRICS in accept.lower() else "")
    return content_type, encode(_Plain(status.counters.registry))


class _Plain(Collector):
    """A registry without the times of creation, which Prometheus text would show as series of their own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


def _show_breakers(gauges: Mapping[str, Gauge], rows: Iterable[UpstreamRow]) -> None:
    strikes: dict[str, int] = {}
    for row in sorted(rows, key=_gravity):  # of an upstream's several the gravest comes last, and stays
        strikes[row.name] = max(row.strikes, strikes.get(row.name, 0))
        for state in STATES:
            gauges["breakwater_breaker_state"].labels(row.name, state).set(row.state == state)
        gauges["breakwater_breaker_seconds_left"].labels(row.name).set(row.seconds_left or 0.0)
        gauges["breakwater_breaker_strikes"].labels(row.name).set(strikes[row.name])


def _gravity(row: UpstreamRow) -> tuple[int, float]:
    return STATES.index(row.state), row.seconds_left or 0.0


def _values(series: Collector, ending: str = "_total") -> dict[Any, Any]:
    """Values of the samples whose names end so, by their label, or by their labels where there are two."""
    return {
        tuple(sample.labels.values()) if len(sample.labels) > 1 else next(iter(sample.labels.values())): sample.value
        if ending == "_sum"
        else int(sample.value)
        for metric in series.collect()
        for sample in metric.samples
        if sample.name.endswith(ending)
    }


def _nested(counts: Mapping[Any, object]) -> dict[str, object]:
    """Counts by two labels as one mapping within the other; those by one label as they are."""
    nested: dict[str, Any] = {}
    for labels, number in counts.items():
        if isinstance(labels, tuple):
            nested.setdefault(labels[0], {})[labels[1]] = number
        else:
            nested[labels] = number
    return nested
