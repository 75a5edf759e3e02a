"""What a shared server gets to see: nothing that was asked, answered or proves who asks, and no hash that could be guessed from."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

from policies.kinds import Wire
from policies.request.body import NOTHING, MessageList, asked, read_body
from tests.e2e.conftest import Proxies
from tests.e2e.lab.fleet import connection, wait_for
from tests.e2e.lab.script import Place
from tests.e2e.lab.shared_server import SharedServer, needs_server
from tests.e2e.lab.wires import MESSAGES
from tests.e2e.test_private import CANARIES, HEADERS, TOKEN, Client, body, provoke

pytestmark = needs_server

Places = Callable[..., Place]
KINDS = ("key", "breaker:", "wait:", "block:", "window:", "index:wait")


class Recording(Client):
    """A client that remembers what it asked."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.bodies: list[bytes] = []

    def ask(self, place: Place, reply: Any, path: str = MESSAGES, data: bytes | None = None, **more: Any) -> int:
        self.bodies.append(data if data is not None else body(f"a body of its own {len(self.bodies)}", **more))
        return super().ask(place, reply, path, self.bodies[-1], **more)


def plain_digest(wire: Wire, data: bytes) -> str:
    fields = read_body(data)
    return asked(wire, data, fields, MessageList(wire, fields or NOTHING))


def plain_hashes(data: bytes) -> set[str]:
    """Beginnings of what the usual hashes make of a text without a key."""
    sizes = (8, 16, 20, 32, 64)
    whole = [hashlib.new(name, data) for name in ("md5", "sha1", "sha256", "sha512")]
    return {one.hexdigest()[:16] for one in whole + [hashlib.blake2b(data, digest_size=size) for size in sizes]}


def test_no_canary_and_no_plain_hash_of_one_is_told_to_the_server(
    proxies: Proxies, place: Places, server: SharedServer
) -> None:
    server.ask("ACL", "SETUSER", "cnry-user-6q", "on", ">cnry-password-6q", "~*", "&*", "+@all")
    url = f"redis://cnry-user-6q:cnry-password-6q@127.0.0.1:{server.port}/0?client_name=breakwater"
    replays = {"gap_seconds": 60, "base_seconds": 0}
    proxy = proxies.fresh(
        {"windows": {"tiny": 1000}, "replay": replays, "shared": url, "breaker": {"scope": "account"}}
    ).start()
    said: list[str] = []
    over = threading.Event()
    watch = threading.Thread(target=lambda: said.extend(server.watch(60.0, over)))
    try:
        wait_for(lambda: connection(proxy) == "connected", "it never joined")
        watch.start()
        client = Recording(proxy)
        provoke(client, place)
        wait_for(lambda: all(f"breakwater:v1:{kind}" in server.everything() for kind in KINDS), "not every kind was shared")
    finally:
        over.set()
        proxy.end()
    watch.join()
    seen = "\n".join(said) + server.everything()
    secrets = {*CANARIES.values(), "cnry-user-6q", "cnry-password-6q"}
    assert not {secret for secret in secrets if secret in seen}
    texts = [*secrets, *(value for _, value in (*HEADERS, *TOKEN)), *(value.removeprefix("Bearer ") for _, value in HEADERS)]
    hashes = set().union(*(plain_hashes(text.encode()) for text in texts), *map(plain_hashes, client.bodies))
    hashes |= {plain_digest(wire, data) for data in client.bodies for wire in Wire}
    assert not {one for one in hashes if one in seen}
