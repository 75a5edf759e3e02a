"""The page as an app that all its tests share, and a fresh source behind it for each."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from mitmproxy import http

from operations.page import HOST, answer, make_app
from tests.operations.page_source import Ask, SourceStub


@pytest.fixture(scope="session")
def page_app() -> tuple[Flask, SourceStub]:
    source = SourceStub()
    return make_app(source), source


@pytest.fixture
def source(page_app: tuple[Flask, SourceStub]) -> SourceStub:
    page_app[1].start_again()
    return page_app[1]


@pytest.fixture
def ask(page_app: tuple[Flask, SourceStub], source: SourceStub) -> Ask:
    def send(
        path: str = "/",
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        host: str = HOST,
    ) -> Any:
        request = http.Request.make(method, f"http://{HOST}/", body)
        for name, value in {"Host": host, **(headers or {})}.items():
            request.headers[name] = value
        request.path = path
        return answer(page_app[0], request)

    return send
