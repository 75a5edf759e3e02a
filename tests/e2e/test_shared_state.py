"""Two real proxies on one state file: an account that one found blocked is not sent by the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.conftest import NO_QUEUE, Proxies, upstream_rows
from tests.e2e.lab.client import ask
from tests.e2e.lab.operated import until
from tests.e2e.lab.script import Place
from tests.e2e.lab.wires import MESSAGES, MTOP, ZCODE, account, asked, whole

Places = Callable[..., Place]

BLOCKED = {"code": 3012, "msg": "Unusual activity"}


def test_two_proxies_on_one_file_forget_nothing_and_learn_from_each_other(
    proxies: Proxies, place: Places, tmp_path: Path
) -> None:
    path = tmp_path / "shared.json"
    config: dict[str, Any] = {
        "upstreams": upstream_rows(), **NO_QUEUE, "breaker": {"strikes": 1}, "state_path": str(path), "replay": {"gap_seconds": 60, "base_seconds": 0},
    }  # fmt: skip
    one, other = proxies.fresh(config), proxies.fresh(config)
    first, second, opened = place("zcode"), place("zcode"), place()

    def held(name: str, count: int) -> bool:
        return path.exists() and len(json.loads(path.read_text())[name]) >= count

    try:
        one.start()
        other.start()
        first.then(whole(BLOCKED, 400))
        assert ask(one, first.url(ZCODE), asked(), account("b")).header("x-breakwater") == "challenge_blocked"
        until(lambda: held("refusals", 1), "the first proxy's save")
        second.then(whole(BLOCKED, 400))
        assert ask(other, second.url(ZCODE), asked(), account("c")).header("x-breakwater") == "challenge_blocked"
        until(lambda: held("refusals", 2), "both accounts in the file")
        again = ask(other, first.url(ZCODE), asked("more"), account("b"))
        assert (again.status, again.header("x-breakwater")) == (529, "account_blocked")

        opened.then(whole(MTOP))
        assert ask(other, opened.url(MESSAGES), asked(), account("d")).status == 529
        until(lambda: held("breakers", 1), "the breaker in the file")
        first.then(whole(MTOP))
        ask(one, first.url(ZCODE), asked("else"), account("e"))
        until(lambda: held("breakers", 2), "the first proxy's next save")
        for known, credential in ((second, "c"), (opened, "x")):
            url = known.url(MESSAGES if known is opened else ZCODE)
            assert ask(one, url, asked("again"), account(credential)).status == 529
        assert (len(first.hits), len(second.hits), len(opened.hits)) == (2, 1, 1)
    finally:
        one.process.kill()
        other.end()
        one.end()

    third = proxies.fresh(config).start()
    try:
        for known, credential in ((first, "b"), (second, "c"), (opened, "x")):
            url = known.url(MESSAGES if known is opened else ZCODE)
            assert ask(third, url, asked("later"), account(credential)).status == 529
        assert (len(first.hits), len(second.hits), len(opened.hits)) == (2, 1, 1)
    finally:
        third.stop()
