"""What many processes share: the value of a breaker, and told waits, blocked accounts and windows, as rows that end by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from policies.breaker import LEASE_SECONDS, BreakerState
from policies.calls import Call
from policies.refusal_memory import Entry, Key, RefusalMemory, Remembered
from policies.saved import LONGEST_SECONDS
from policies.settings import DAY
from policies.windows import LIFETIME, Learnt, Windows

MARGIN_SECONDS = 1.0
"""Seconds after the end of a lease before another may take the probe; more than any two processes' clocks differ."""
GONE_SECONDS = 500.0
"""For which it is said that a row was taken back."""
RowKind = Literal["wait", "block", "window"]
_Text = Annotated[str, Meta(max_length=500)]
_Natural = Annotated[int, Meta(ge=0)]
_FURTHER = {state: rank for rank, state in enumerate(("closed", "open", "half_open", "probing"))}
"""Of two values with one end, the one that is further along holds."""


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """The breaker as it is shared; all times are seconds of the server's clock."""

    version: _Natural = 0
    state: BreakerState = BreakerState.CLOSED
    strikes: _Natural = 0
    epoch: int = 0
    opened_at: float = 0.0
    ends: float = 0.0
    """End of the window; while closed, the moment of closing, 0 where it was never open."""
    lease: str = ""
    """Of the probe: the process that has it, and a number."""
    until: float = 0.0
    """End of the lease for everybody but its owner."""

    @property
    def says(self) -> Value:
        """What it says of the breaker, whatever its number."""
        return msgspec.structs.replace(self, version=0, epoch=0)

    def sound(self, now: float) -> bool:
        """Tell whether it lasts no longer than any breaker may."""
        return max(self.ends, self.until) <= now + DAY + LEASE_SECONDS + MARGIN_SECONDS

    def next_version(self, now: float) -> int:
        """Version of what replaces it: microseconds of the server's clock, so that it grows after a loss of all as well."""
        return max(self.version + 1, int(now * 1e6))


def later(one: Value, other: Value) -> Value:
    """The one of two values that holds where neither knew of the other: the later end wins."""
    best = max(one, other, key=_order)
    return msgspec.structs.replace(best, epoch=max(one.epoch, other.epoch), version=max(one.version, other.version))


def _order(value: Value) -> tuple[Any, ...]:
    return value.ends, _FURTHER[value.state], value.until, value.strikes, value.opened_at, value.lease


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A told wait or a blocked account; times are seconds of the server's clock, 0 where it was taken back."""

    account: _Text
    about: _Text
    """Keyed digest of what was asked; of a block, the upstream."""
    upstream: _Text
    model: _Text = ""
    code: _Text | None = None
    left: Annotated[float, Meta(ge=0, le=LONGEST_SECONDS)] = 0.0
    """Its whole length."""
    until: float = 0.0
    forget_at: float = 0.0
    rounds: Annotated[int, Meta(ge=0, le=16)] = 0

    @property
    def name(self) -> str:
        """What tells it from others of its kind."""
        return f"{self.account}:{self.about}"

    def sound(self, now: float) -> bool:
        """Tell whether it lasts no longer than any may."""
        return max(self.until, self.forget_at) <= now + LONGEST_SECONDS

    def moved(self, shift: float) -> Refusal:
        """The row on a clock that shows ``shift`` seconds more."""
        return msgspec.structs.replace(self, until=self.until + shift, forget_at=self.forget_at + shift) if self.until else self

    def lasts(self, _wall: float, now: float) -> float:
        """Seconds after which nothing is left of it."""
        return max(self.forget_at - now, 1.0) if self.until else GONE_SECONDS


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """A learnt window, or that it was taken back; its time is of the wall clock."""

    row: Learnt
    gone: bool = False

    @property
    def name(self) -> str:
        """What tells it from other windows."""
        return f"{self.row.upstream}:{self.row.model}:{self.row.thinking:d}{self.row.long_context:d}"

    def sound(self, _now: float) -> bool:
        """Whoever takes it up bounds it."""
        return True

    def moved(self, _shift: float) -> Window:
        """The row itself: no clock of a process stands in it."""
        return self

    def lasts(self, wall: float, _now: float) -> float:
        """Seconds after which nothing is left of it."""
        return GONE_SECONDS if self.gone else self.row.when + LIFETIME - wall


Row = Refusal | Window
Tell = Callable[[RowKind, Row], None]
Read = TypeVar("Read", Value, Refusal, Window)

# Theory of operation
# ===================
#
# Whatever changes a row here is told, with the times of this process: whoever takes it to the server turns them into the
# server's (``moved``). What is heard from others is taken up without being told again. Of two rows of one name the later
# end holds, so it does not matter who was first.


def read(text: str | bytes, kind: type[Read], now: float) -> Read | None:
    """Row or value out of its text; None where it is none, or is to last longer than any may. ``now``: the server's seconds."""
    try:
        row = msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        return None
    return row if row.sound(now) else None


def holds(theirs: str, own: str) -> bool:
    """True where what the server has of a row lasts as long as what is known here, to a second."""
    if theirs == own:
        return True
    try:
        there, here = (msgspec.json.decode(text, type=Refusal) for text in (theirs, own))
    except msgspec.MsgspecError:
        return False
    return there.until >= here.until - 1.0


class SharedRefusals(RefusalMemory):
    """The refusal memory, told to others."""

    tell: Tell | None = None

    def refused(self, call: Call, *given: Any, **named: Any) -> int:
        told = super().refused(call, *given, **named)
        key = (call.account, call.digest)
        self._say("wait", key, self._requests[key])
        return told

    def answered(self, call: Call) -> None:
        if self.any_for(call.account) and (entry := self._requests.get(key := (call.account, call.digest))):
            super().answered(call)
            self._say("wait", key, entry, over=True)

    def block(self, call: Call, code: str | None, now: float, seconds: float) -> None:
        super().block(call, code, now, seconds)
        key = (call.account, call.surface.upstream)
        self._say("block", key, self._accounts[key])

    def reset(self, upstream: str | None = None) -> int:
        before = [*self._entries()]
        number = super().reset(upstream)
        for kind, key, entry in before:
            if upstream in (None, entry.refusal.upstream):
                self._say(kind, key, entry, over=True)
        return number

    def rows(self, now: float) -> Iterator[tuple[RowKind, Refusal]]:
        """Every row that still matters."""
        for kind, key, entry in [*self._entries()]:
            if entry.forget_at > now:
                yield kind, _row(key, entry)

    def hear(self, kind: RowKind, row: Refusal, now: float) -> None:
        """Take up a row of others, on this process's clock."""
        key = (row.account, row.about)
        held = self._accounts if kind == "block" else self._requests
        old = held.get(key)
        if not row.until:
            if kind == "block":
                held.pop(key, None)
            elif old is not None and old.refusal.kind == "wait":
                self._forget(key)
            return
        if row.forget_at <= now or (
            old is not None and (old.refusal.kind not in ("wait", "blocked") or old.until >= row.until)
        ):
            return
        refusal = Remembered("blocked" if kind == "block" else "wait", row.left, row.upstream, row.model, row.code)
        entry = Entry(refusal, row.until, row.forget_at, max(row.rounds, old.rounds if old else 0))
        (self._block if kind == "block" else self._remember)(key, entry, now)

    def _entries(self) -> Iterator[tuple[RowKind, Key, Entry]]:
        for key, entry in self._requests.items():
            if entry.refusal.kind == "wait":
                yield "wait", key, entry
        for key, entry in self._accounts.items():
            yield "block", key, entry

    def _say(self, kind: RowKind, key: Key, entry: Entry, *, over: bool = False) -> None:
        if self.tell is not None and entry.refusal.kind in ("wait", "blocked"):
            row = _row(key, entry)
            self.tell(kind, msgspec.structs.replace(row, until=0.0, forget_at=0.0) if over else row)


def _row(key: Key, entry: Entry) -> Refusal:
    said = entry.refusal
    return Refusal(*key, said.upstream, said.model, said.code, said.left, entry.until, entry.forget_at, entry.rounds)


class SharedWindows(Windows):
    """The learnt windows, told to others."""

    tell: Tell | None = None

    def succeeded(self, *given: Any, **named: Any) -> bool:
        if not self._learnt:
            return False
        before = {**self._learnt}
        taken = super().succeeded(*given, **named)
        self._say_gone(before)
        return taken

    def forget(self, model: str) -> int:
        before = {**self._learnt}
        number = super().forget(model)
        self._say_gone(before)
        return number

    def hear(self, window: Window) -> bool:
        """Take up a row of others; True where one was taken back by it."""
        if window.gone:
            return self._learnt.pop(window.row.key, None) is not None
        old = self._learnt.get(window.row.key)
        if old is None or old.when < window.row.when:
            super()._keep(window.row)
        return False

    def _keep(self, row: Learnt) -> None:
        super()._keep(row)
        if self.tell is not None:
            self.tell("window", Window(row))

    def _say_gone(self, before: dict[Any, Learnt]) -> None:
        for key in before.keys() - self._learnt.keys():
            if self.tell is not None:
                self.tell("window", Window(before[key], gone=True))
