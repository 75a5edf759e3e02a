"""A raw HTTP/1.1 client: sees every byte, when it came, and can leave at any moment."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from tests.e2e.lab.proxy import Front

TIMEOUT_SECONDS = 20.0
Pairs = Sequence[tuple[str, str]]
Way = Callable[[socket.socket, Front, str, int, Sequence[str]], Any]
"""Opens what a client speaks through: from a connection to the proxy, for a host, a port and protocols of TLS."""


@dataclass
class Answer:
    """What came back. `raw` is everything on the wire, head included."""

    status: int
    headers: list[tuple[str, str]]
    head_at: float
    """Monotonic seconds when the head was complete."""
    body: bytes = b""
    """Without chunk framing, content coding untouched."""
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    """Every read of body bytes with its time; of a chunked body every chunk."""
    whole: bool = True
    """False where the connection ended before the body did."""
    raw: bytes = b""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def retry_after(self) -> int | None:
        value = self.header("retry-after")
        return None if value is None else int(value)

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Connection:
    """One connection through the proxy; to an https url by CONNECT, unless `absolute` or another way (`ways.py`) is named."""

    def __init__(
        self,
        proxy: Front,
        url: str,
        *,
        absolute: bool = False,
        ca_path: Path | None = None,
        way: Way | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._netloc = parts.netloc
        self._tunnel = parts.scheme == "https" and not absolute
        self._target = url if not self._tunnel else url[len(f"https://{parts.netloc}") :]
        self._buffer = b""
        self._seen = b""
        self._socket: Any = socket.create_connection(("127.0.0.1", proxy.port), TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if way:
            self._socket = way(self._socket, proxy, self._host, parts.port or 443, ["http/1.1"])
        elif self._tunnel:
            self._socket = tunnel(self._socket, proxy, self._host, parts.port or 443, ["http/1.1"], ca_path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def send(self, body: bytes | None = None, headers: Pairs = (), method: str = "POST", target: str | None = None) -> None:
        """Send one request; `target` instead of the path of the url."""
        lines = [f"{method} {target or self._target} HTTP/1.1", f"host: {self._netloc}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body is not None:
            lines.append(f"content-length: {len(body)}")
        self.write("\r\n".join(lines).encode("latin1") + b"\r\n\r\n" + (body or b""))

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def head(self) -> Answer:
        """Read up to the end of the headers."""
        self._seen = b""
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                raise ConnectionResetError(f"no answer, only {self._buffer!r}")
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        self._seen = head + b"\r\n\r\n"
        first, *lines = head.decode("latin1").split("\r\n")
        pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        return Answer(int(first.split(" ")[1]), pairs, time.monotonic(), raw=self._seen)

    def piece(self, answer: Answer) -> bytes:
        """Read the next chunk (of a chunked body) or what is there next; empty at the end."""
        data = self._chunk(answer) if answer.header("transfer-encoding") else self._plain(answer)
        if data:
            answer.pieces.append((time.monotonic(), data))
            answer.body += data
        answer.raw = self._seen
        return data

    def rest(self, answer: Answer, method: str = "POST") -> Answer:
        """Read the body to its end, or to where it was cut."""
        if method == "HEAD" or answer.status in (204, 304) or answer.status < 200:
            return answer
        while self.piece(answer):
            pass
        return answer

    def answer(self, method: str = "POST") -> Answer:
        return self.rest(self.head(), method)

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Leave with an RST, as a killed process does."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def silent_for(self, seconds: float) -> bool:
        """True where not a byte comes within this time."""
        if self._buffer:
            return False
        self._socket.settimeout(seconds)
        try:
            return not self._more()
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(TIMEOUT_SECONDS)

    def ended(self) -> bool:
        """Block until the proxy closes; True where nothing more came before that."""
        return not self._buffer and not self._more()

    def _chunk(self, answer: Answer) -> bytes:
        size = int(self._line() or b"-1", 16)
        if size < 0:
            answer.whole = False
            return b""
        while len(self._buffer) < size + 2:
            if not self._more():
                answer.whole = False
                return self._take(size)
        return self._take(size + 2)[:-2]

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            if not self._more():
                return b""
        return self._take(self._buffer.index(b"\r\n") + 2).strip()

    def _plain(self, answer: Answer) -> bytes:
        length = answer.header("content-length")
        left = None if length is None else int(length) - len(answer.body)
        if left == 0:
            return b""
        if not self._buffer and not self._more():
            answer.whole = left is None
            return b""
        return self._take(len(self._buffer) if left is None else min(left, len(self._buffer)))

    def _take(self, count: int) -> bytes:
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        self._seen += taken
        return taken

    def _more(self) -> bool:
        try:
            data = self._socket.recv(65536)
        except (ConnectionResetError, ssl.SSLEOFError):
            data = b""
        self._buffer += data
        return bool(data)


def tunnel(
    plain: socket.socket, proxy: Front, host: str, port: int, protocols: Sequence[str], ca_path: Path | None = None
) -> ssl.SSLSocket:
    """CONNECT through the proxy and speak TLS inside, trusting `ca_path` alone: without one, the proxy's own authority."""
    connect(plain, host, port)
    return trusting(ca_path or proxy.ca_path, protocols).wrap_socket(plain, server_hostname=host)


def connect(opened: Any, host: str, port: int) -> None:
    """Ask the proxy at the other end for a tunnel."""
    opened.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        data = opened.recv(4096)
        assert data, f"the proxy closed on CONNECT: {head!r}"
        head += data
    assert head.startswith(b"HTTP/1.1 200"), head


def trusting(ca_path: Path, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    """A client's TLS that trusts one authority alone."""
    context = ssl.create_default_context(cafile=str(ca_path))
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def ask(
    proxy: Front,
    url: str,
    body: bytes | None = None,
    headers: Pairs = (),
    method: str = "POST",
    *,
    absolute: bool = False,
    way: Way | None = None,
    target: str | None = None,
) -> Answer:
    """One request on a connection of its own."""
    with Connection(proxy, url, absolute=absolute, way=way) as connection:
        connection.send(body, headers, method, target)
        return connection.answer(method)
