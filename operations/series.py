"""The series of the metrics: what each is called, counts and means."""

from __future__ import annotations

from dataclasses import dataclass

CONNECTED = "connected"
"""Of the server of a shared state."""


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
