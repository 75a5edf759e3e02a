"""What a person may do: the commands of the console and mitmweb, and the page's buttons, since mitmdump has no prompt.

Flows killed by hand in mitmweb, and those whose clients have gone, are settled here too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from mitmproxy import command, connection, exceptions, flow, http
from mitmproxy.flow import Error

import hold
from operations.clock import clock
from operations.content_view import explain
from operations.controller import Controller
from operations.export import corpus_line
from operations.status import Status, report_of, report_text, status_of
from policies.breaker import Breaker, Transition
from policies.comments import Comment, Text, say

logger = logging.getLogger("breakwater")

WHICH = Text("Which model's window should be forgotten?", "要忘记哪个模型的窗口？")
FORGOT = Text(
    "Forgot {windows} learnt window(s), {limits} learnt limit(s) and {overflows} remembered overflow(s) of {model}.",
    "已忘记 {model} 的 {windows} 个学到的窗口、{limits} 个学到的并发上限和 {overflows} 次记住的溢出。",
)
UNKNOWN = Text("No upstream {name!r}; there are {known}.", "没有名为 {name!r} 的上游；现有 {known}。")
OPENED = Text("Breaker of {name} opened.", "{name} 的熔断器已打开。")
CLOSED = Text("Breaker of {name} closed.", "{name} 的熔断器已关闭。")
RESET = Text(
    "Breaker of {name} closed; {number} remembered refusal(s) forgotten.",
    "{name} 的熔断器已关闭；已忘记 {number} 条记住的拒绝。",
)
DISABLED = Text(
    "The breaker of {name} is disabled (breaker.open_seconds: 0).", "{name} 的熔断器已停用（breaker.open_seconds: 0）。"
)


class Owner(Protocol):
    controller: Controller | None


class Commands:
    """Each answers with what it did, in words. No addon of its own: mitmproxy asks every addon at every hook."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def _controller(self) -> Controller:
        if self._owner.controller is None:
            raise exceptions.CommandError("Breakwater has not started.")
        return self._owner.controller

    def _act(self, action: str, upstream: str | None = None, model: str | None = None) -> str:
        try:
            said = str(act(self._controller(), action, upstream, model))
        except ValueError as error:
            raise exceptions.CommandError(str(error)) from error
        logger.info("Breakwater: %s", said)
        return said

    @command.command("breakwater.status")
    def status(self) -> Sequence[str]:
        """A line for each upstream in use or paused, and for who waits; the page has the rest."""
        return _lines(status_of(self._controller()))

    @command.command("breakwater.report")
    def report(self) -> Sequence[str]:
        """What the exchanges so far say about why replays are refused."""
        return report_text(report_of(self._controller())).splitlines()

    @command.command("breakwater.open")
    def open(self, upstream: str) -> str:
        """Open an upstream's breaker for a full window."""
        return self._act("open", upstream)

    @command.command("breakwater.close")
    def close(self, upstream: str) -> str:
        """Close an upstream's breaker."""
        return self._act("close", upstream)

    @command.command("breakwater.reset")
    def reset(self, upstream: str) -> str:
        """Close an upstream's breaker and forget its remembered refusals."""
        return self._act("reset", upstream)

    @command.command("breakwater.windows")
    def windows(self) -> Sequence[str]:
        """The context windows that were learnt."""
        rows = [
            f"{row.upstream} {row.model}{' (thinking)' if row.thinking else ''}: {row.tokens} tokens, {row.source}"
            for row in status_of(self._controller()).windows
        ]
        return rows or ["No window has been learnt."]

    @command.command("breakwater.forget")
    def forget(self, model: str) -> str:
        """Forget what was learnt about a model's window, and the overflows remembered for it."""
        return self._act("forget", None, model)

    @command.command("breakwater.explain")
    def explain(self, flows: Sequence[flow.Flow]) -> Sequence[str]:
        """Say why flows were decided as they were; @ and a flow's id names the one that was clicked."""
        return "\n\n".join(explain(one) for one in flows if isinstance(one, http.HTTPFlow)).splitlines()

    @command.command("breakwater.export")
    def export(self, flows: Sequence[flow.Flow]) -> str:
        """Anonymised corpus lines of refusals, to be sent to the project."""
        return "\n".join(corpus_line(self._controller().state, one) for one in flows if isinstance(one, http.HTTPFlow))


def _lines(status: Status) -> list[str]:
    """A line for each upstream that is in use or paused, then who waits and what failed."""
    paused = "would be paused" if status.mode == "observe" else "paused"
    words = {"closed": "passing", "half_open": "next one is the trial", "probing": "on trial", "open": paused}
    said = [f"Breakwater {status.version}, {status.mode}"]
    for row in sorted((row for row in status.upstreams if row.busy), key=lambda row: row.state != "open"):
        left = f" for {row.seconds_left:.0f} s" if row.state == "open" and row.seconds_left is not None else ""
        name = f"{row.name} {row.account}".strip()
        counts = f"{row.sent} sent, {row.challenges} challenged, {row.avoided} refused here"
        said.append(f"{name}: {words.get(row.state, row.state)}{left}; {counts}")
    idle = sum(not row.busy for row in status.upstreams)
    said.append(f"{idle} upstreams without a request so far")
    for table in status.tables:
        said += [
            f"{table.title}: " + ", ".join(f"{k} {v}" for k, v in zip(table.columns, row, strict=True)) for row in table.rows
        ]
    return said + [f"fault: {words}" for words in status.faults.values()]


def act(controller: Controller, action: str, upstream: str | None, model: str | None) -> Comment:
    """Do it and say what was done; ValueError, with the comment that says why, where it cannot be."""
    controller.unsaved = True
    if action == "forget":
        if not model:
            raise ValueError(say(WHICH))
        windows = controller.state.windows.forget(model)
        overflows = controller.state.refusals.forget_overflows(None, model)
        limits = controller.state.line.limits.forget(model)
        controller.waiting.look()
        return say(FORGOT, windows=windows, limits=limits, overflows=overflows, model=model)
    if not upstream or controller.state.surfaces.upstream(upstream) is None:
        known = ", ".join(row.name for row in controller.state.settings.upstreams)
        raise ValueError(say(UNKNOWN, name=upstream or "", known=known))
    breakers = controller.state.breakers.named(upstream)
    now = clock().now
    controller.log_transitions([moved for breaker in breakers if (moved := _move(breaker, action, now))])
    if action in ("close", "reset"):
        controller.state.line.release(upstream, now)
    controller.waiting.look()
    if action == "reset":
        forgotten = controller.state.refusals.reset(upstream)
        return say(RESET, name=upstream, number=forgotten)
    if action == "open" and any(breaker.closed for breaker in breakers):
        raise ValueError(say(DISABLED, name=upstream))
    return say(OPENED if action == "open" else CLOSED, name=upstream)


def is_killed(killed: http.HTTPFlow) -> bool:
    return killed.error is not None and killed.error.msg == Error.KILLED_MESSAGE


def settle_killed(controller: Controller) -> None:
    """Settle what was killed by hand, and end it: mitmproxy says so with the upstream's next bytes, and a probe cannot wait."""
    for killed in [each for each in controller.live if is_killed(each)]:
        controller.error(killed)
        killed.intercepted = True  # one that was intercepted would wait for ever, and its client with it
        killed.resume()  # type: ignore[no-untyped-call]
        hold.wake(killed)  # its layer hears of the kill now, and not with the upstream's next bytes


def settle_left(controller: Controller, client: connection.Client) -> None:
    """Settle what a client has left behind: a stream that still waits for its upstream connection never hears of it."""
    for left in [each for each in controller.live if each.client_conn is client]:
        try:
            controller.error(left)
        except Exception as fault:  # noqa: BLE001 - the border: one that cannot be settled keeps no other
            controller.fault("settle", left, fault)


def _move(breaker: Breaker, action: str, now: float) -> Transition | None:
    return {"open": breaker.open, "close": breaker.close, "reset": breaker.reset}[action](now)
