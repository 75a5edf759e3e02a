"""An upstream that answers as soon as it has read a request's headers, whatever is still to come of its body."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, Self


class Early:
    """Listens on `port` of 127.0.0.1 from entering to leaving, and gives every request one answer."""

    def __init__(self, wire: bytes) -> None:
        self._wire = wire
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.requests = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(20)

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._server.accept()[0],), daemon=True).start()

    def _serve(self, opened: Any) -> None:
        head = b""
        with opened, contextlib.suppress(OSError):
            while b"\r\n\r\n" not in head:
                data = opened.recv(4096)
                if not data:
                    return
                head += data
            self.requests += 1
            opened.sendall(self._wire)
            while opened.recv(65536):
                pass
