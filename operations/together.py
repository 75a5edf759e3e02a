"""What goes to one peer in one step goes in one write: a head with its body, the chunks that came in one packet.

mitmproxy hands each of them to the socket by itself; for a stream of 60 chunks that came in six packets those are 60 system
calls, and as many packets for the client to read. The bytes and their order stay as they are.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

WRITE_BYTES = 65536
"""Of one write at most: a larger body is not copied to go with its head."""


def together(commands: Iterator[Any], sends: type[Any]) -> Generator[Any, Any, None]:
    """The commands of one step; those in a row that send to one connection as one. ``sends``: mitmproxy's ``SendData``."""
    parts: list[bytes] = []
    size, peer = 0, None
    for command in commands:
        is_data = type(command) is sends
        if parts and not (is_data and command.connection is peer and size + len(command.data) <= WRITE_BYTES):
            yield sends(peer, b"".join(parts))
            parts, size = [], 0
        if is_data:
            parts.append(command.data)
            size, peer = size + len(command.data), command.connection
        else:
            yield command
    if parts:
        yield sends(peer, b"".join(parts))
