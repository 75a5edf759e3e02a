"""What many processes share beside their breakers: told waits, blocked accounts and learnt windows, as rows that end by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import msgspec

from policies.calls import Call
from policies.refusal_memory import Entry, Key, RefusalMemory, Remembered
from policies.saved import LONGEST_SECONDS
from policies.windows import LIFETIME, Learnt, Windows

RowKind = Literal["wait", "block", "window"]
LONGEST_TEXT = 500
"""Characters of a name in a row that is believed."""


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A told wait or a blocked account; times are seconds of the server's clock, 0 where it was taken back."""

    account: str
    about: str
    """Digest of what was asked; of a block, the upstream."""
    upstream: str
    model: str = ""
    code: str | None = None
    left: float = 0.0
    """Its whole length."""
    until: float = 0.0
    forget_at: float = 0.0
    rounds: int = 0


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """A learnt window, or that it was taken back."""

    row: Learnt
    gone: bool = False


Row = Refusal | Window
Tell = Callable[[RowKind, Row], None]
Read = TypeVar("Read", Refusal, Window)

# Theory of operation
# ===================
#
# Whatever changes a row here is told, with the times of this process: whoever takes it to the server turns them into the
# server's (``moved``). What is heard from others is taken up without being told again. Of two rows of one name the later
# end holds, so it does not matter who was first.


def name_of(row: Row) -> str:
    """What tells a row from others of its kind."""
    if isinstance(row, Refusal):
        return f"{row.account}:{row.about}"
    return f"{row.row.upstream}:{row.row.model}:{row.row.thinking:d}{row.row.long_context:d}"


def moved(row: Row, shift: float) -> Row:
    """The row on a clock that shows ``shift`` seconds more."""
    if isinstance(row, Window) or not row.until:
        return row
    return msgspec.structs.replace(row, until=row.until + shift, forget_at=row.forget_at + shift)


def lasts(row: Row, wall: float, now: float) -> float:
    """Seconds after which nothing is left of a row; what was taken back is said for some minutes."""
    if isinstance(row, Window):
        return row.row.when + LIFETIME - wall if not row.gone else LONGEST_TEXT
    return max(row.forget_at - now, 1.0) if row.until else LONGEST_TEXT


def read(text: str | bytes, kind: type[Read], now: float) -> Read | None:
    """Row out of its text; None where it is none, or is to last longer than any may. ``now``: the server's seconds."""
    try:
        row = msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        return None
    if isinstance(row, Refusal):
        texts = (row.account, row.about, row.upstream, row.model, row.code or "")
        latest = now + LONGEST_SECONDS
        if max(map(len, texts)) > LONGEST_TEXT or not (row.until <= latest and row.forget_at <= latest):
            return None
        if not (0 <= row.rounds <= 16 and 0 <= row.left <= LONGEST_SECONDS):
            return None
    return row


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
        if row.forget_at <= now or (old is not None and (old.refusal.kind not in ("wait", "blocked") or old.until >= row.until)):
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
