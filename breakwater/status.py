"""`breakwater status`: what it does at the moment, for a person, for a prompt (`--line`) or for a program (`--json`)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from breakwater import asking
from breakwater.cli import HOST, CommandError, Parser, common

LINE_AT_MOST = 80
"""Characters of `--line`."""
LINE_SECONDS = 1.0
"""A prompt does not wait longer."""
DECISIONS = 3
STATES = {"closed": "ok", "half_open": "about to be probed", "probing": "probing", "open": "paused"}


def main(words: Sequence[str]) -> int:
    parser = Parser(prog="breakwater status", description="Says what Breakwater does at the moment.")
    common(parser)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--line", action="store_true", help="one line of at most 80 characters; there always is one")
    forms.add_argument("--json", action="store_true", help="everything, as http://breakwater.internal/status.json has it")
    asked = parser.parse_args(words)
    found = asking.who(asked.port, LINE_SECONDS if asked.line else asking.SECONDS)
    if asked.line:
        print(line(found.status) if found.status else "Breakwater is off")
        return 0
    if not found.status:
        raise CommandError(f"no Breakwater at {HOST}:{asked.port}: {found.kind.value} listens there (breakwater start)")
    if asked.json:
        print(json.dumps(found.status, ensure_ascii=False, indent=2))
    else:
        print("\n".join(lines(found.status, asked.port, time.time())))
    return 0


def line(status: Mapping[str, Any]) -> str:
    """What matters most, first: who is paused and for how long, then what was sent and what was spared."""
    rows = status["upstreams"]
    paused = [f"{row['name']} {_state(row)}" for row in rows if row["state"] != "closed"]
    counts = f"{sum(row['sent'] for row in rows)} sent, {sum(row['avoided'] for row in rows)} refused here"
    mode = "" if status.get("mode") == "enforce" else f" ({status.get('mode')})"
    text = f"Breakwater{mode}: {' · '.join(paused) or 'ok'} · {counts}"
    return _plain(text if len(text) <= LINE_AT_MOST else text[: LINE_AT_MOST - 1] + "…")


def lines(status: Mapping[str, Any], port: int, now: float) -> list[str]:
    """Some lines for a person: upstreams in use or paused, and the newest decisions."""
    rows = [row for row in status["upstreams"] if row["sent"] or row["avoided"] or row["state"] != "closed"]
    said = [f"Breakwater {status['version']} at {HOST}:{port}, {status['mode']}; http://{HOST}:{port}/ says more"]
    width = max((len(_name(row)) for row in rows), default=0)
    for row in rows:
        counts = f"{row['sent']} sent, {row['challenges']} challenged, {row['avoided']} refused here"
        said.append(f"  {_name(row):<{width}}  {_state(row)}; {counts}")
    said += [f"  {words}" for words in _waiting(status)]
    idle = len(status["upstreams"]) - len(rows)
    said.append(f"  {idle} {'more ' if rows else ''}upstreams without a request so far")
    said += [
        f"  {_ago(now - row['wall'])} ago: {row['comment'] or row['reason']}" for row in status.get("decisions", ())[:DECISIONS]
    ]
    said += [f"  fault: {kind}: {words}" for kind, words in status.get("faults", {}).items()]
    return [_plain(each) for each in said]


def _waiting(status: Mapping[str, Any]) -> Iterator[str]:
    """Who waits here unsent, a line for each upstream and reason."""
    waits: dict[tuple[str, str], list[float]] = {}
    for row in status.get("waiting", ()):
        waits.setdefault((row["upstream"], row["reason"]), []).append(row["waited"])
    for (name, why), waited in waits.items():
        yield f"{name}: {len(waited)} waiting here ({why}), the longest for {max(waited):.0f} s"


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['name']} {row['account']}" if row.get("account") else str(row["name"])


def _state(row: Mapping[str, Any]) -> str:
    left = row.get("seconds_left")
    seconds = f" {left:.0f} s" if row["state"] == "open" and left is not None else ""
    return STATES.get(row["state"], str(row["state"])) + seconds


def _ago(seconds: float) -> str:
    minutes = seconds / 60
    return f"{max(seconds, 0):.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def _plain(text: str) -> str:
    """Text without what could steer a terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
