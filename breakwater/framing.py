"""The framing of an answer, looked up once: mitmproxy asks for `transfer-encoding` again with every chunk that it sends."""

from __future__ import annotations

from typing import Any

from mitmproxy import http

NAME = "transfer-encoding"


class Headers(http.Headers):
    """mitmproxy's headers, which know the value of that one header as long as none of them has changed."""

    def get(self, key: str, default: Any = None) -> Any:
        if key != NAME:
            return super().get(key, default)
        known: Any = self.__dict__.get("known")
        if known is None or known[0] is not self.fields:  # each change makes a new tuple
            known = self.__dict__["known"] = (self.fields, super().get(NAME))
        return default if known[1] is None else known[1]


class Framing:
    """An addon that gives each answer such headers."""

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        headers: Any = flow.response and flow.response.headers
        if type(headers) is http.Headers:
            headers.__class__ = Headers
