"""What a client is told: challenges in a 200, stated waits, a plan of two, challenges in a row, a title over the window."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from bench.installed import Venv
from bench.peer_lab.served import Heard, Served
from bench.peer_lab.systems import System
from bench.peer_lab.upstream import PeerUpstream, Refusal

SDKS = Venv("sdks-1", ("anthropic==2.14.0", "openai==3.57.0"))
SDK_CALLS = Path(__file__).with_name("sdk_calls.py")
PLAN_CALLS = 10
PLAN_LIMIT_SECONDS = 240
CALL_SECONDS = 3.0
"""How long one call lasts on the plan of two."""
TITLE_BYTES = 1_400_000
"""About 400,000 tokens: twice the window of the model that is named."""
ROW_OF_CHALLENGES = 10

FORMS: tuple[tuple[str, Refusal, bool], ...] = (
    ("challenge in a 200: JSON", "json", False),
    ("challenge in a 200: JSON, to a client that streams", "json", True),
    ("challenge in a 200: first frame of a stream", "frame", True),
    ("challenge in a 200: page", "page", False),
    ("challenge in a 200: page, to a client that streams", "page", True),
)
WAIT = "overload (1305 in a 429) that asks for 120 s"
TITLE = "title over the window"
IN_A_ROW = f"{ROW_OF_CHALLENGES} challenges in a row"
PLAN = {which: f"ten at once on a plan of two, {which} time" for which in ("first", "second")}
ROWS = (*(title for title, _, _ in FORMS), WAIT, TITLE, IN_A_ROW, *PLAN.values())


async def behave(system: System, cache: Path, upstream: PeerUpstream) -> dict[str, str]:
    """Every row for one gateway, by its title. Each group has a process of its own, so that none meets another's."""
    cells: dict[str, str] = {}
    upstream.reset()
    async with Served(system, cache, upstream) as served:
        for title, refusal, stream in FORMS:
            cells[title] = await _form(served, upstream, title, refusal, stream=stream)
        cells[WAIT] = await _form(served, upstream, "wait", "wait", stream=False)
        cells[TITLE] = await _title(served, upstream)
    upstream.reset()
    async with Served(system, cache, upstream) as served:
        cells[IN_A_ROW] = await _row(served, upstream)
    upstream.reset()
    async with Served(system, cache, upstream) as served:
        for title in PLAN.values():
            cells[title] = await _plan(served, cache, upstream)
    return cells


async def _form(served: Served, upstream: PeerUpstream, account: str, refusal: Refusal, *, stream: bool) -> str:
    upstream.reset(refusal)
    name = account.translate({ord(each): "-" for each in " :,"})
    began = time.monotonic()
    heard = await asyncio.to_thread(served.ask, served.body(account, stream=stream), account=name)
    seconds, sends = time.monotonic() - began, upstream.sends
    upstream.reset()
    await asyncio.to_thread(served.ask, served.body(f"after {account}"))
    return f"{_told(heard)}{_after(seconds)}; {_sends(sends)}"


async def _title(served: Served, upstream: PeerUpstream) -> str:
    upstream.reset("overflow")
    heard = await asyncio.to_thread(served.ask, served.title(TITLE_BYTES), account="title")
    return f"{_told(heard)}; {_sends(upstream.sends)}"


async def _row(served: Served, upstream: PeerUpstream) -> str:
    """Three one after the other, then the rest at once, from a client that retries nothing."""
    upstream.reset("json")
    began = time.monotonic()
    heard = [await asyncio.to_thread(served.ask, served.body(f"turn {number}")) for number in range(3)]
    rest = range(3, ROW_OF_CHALLENGES)
    heard += await asyncio.gather(*(asyncio.to_thread(served.ask, served.body(f"turn {number}")) for number in rest))
    statuses = sorted({each.status for each in heard})
    return f"{', '.join(map(str, statuses))}{_after(time.monotonic() - began)}; {_sends(upstream.sends)}"


async def _plan(served: Served, cache: Path, upstream: PeerUpstream) -> str:
    upstream.reset(plan=2, call_seconds=CALL_SECONDS)
    base = f"http://127.0.0.1:{served.place.port}"
    headers = json.dumps(served.system.headers(served.place))
    command = [str(SDKS.program(cache)), str(SDK_CALLS), served.system.wire, base, str(PLAN_CALLS), headers]
    began = asyncio.get_running_loop().time()
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), PLAN_LIMIT_SECONDS)
        answered = int(printed)
    except TimeoutError:
        process.kill()
        return f"not ended after {PLAN_LIMIT_SECONDS} s; {_sends(upstream.sends)}, {upstream.refused} refused"
    seconds = asyncio.get_running_loop().time() - began
    return f"{answered} of {PLAN_CALLS} answered in {seconds:.0f} s; {_sends(upstream.sends)}, {upstream.refused} refused"


def _told(heard: Heard) -> str:
    if not heard.status:
        return "no answer"
    wait = f", Retry-After {heard.retry_after}" if heard.retry_after else ""
    if heard.status != 200:
        return f"{heard.status}{wait}"
    if b"RGV587" in heard.body or b"_waf_is_mobile" in heard.body:
        return f"200, the challenge as it came{wait}"
    return f"200, {'an error in it' if b'error' in heard.body else 'an empty answer'}{wait}"


def _after(seconds: float) -> str:
    return f" after {seconds:.0f} s" if seconds >= 1 else ""


def _sends(count: int) -> str:
    return f"{count} send{'' if count == 1 else 's'}"
