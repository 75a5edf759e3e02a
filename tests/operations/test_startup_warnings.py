"""What is worth a warning about the options of a start."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import ctx

from operations import startup
from tests.rows import over


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    """Gives the warnings of a start with these options."""

    def start(**options: Any) -> str:
        usual = {
            "mode": ["regular"],
            "listen_host": "127.0.0.1",
            "stream_large_bodies": None,
            "connection_strategy": "lazy",
        }
        monkeypatch.setattr(ctx, "options", SimpleNamespace(**{**usual, **options}), raising=False)
        monkeypatch.setattr(startup, "_said", set())
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            startup.warn()
        return caplog.text

    return start


@over(
    ("mode", "host", "beyond"),
    [
        (["regular"], "127.0.0.1", False),
        (["regular"], "", True),
        (["regular@127.0.0.1:8080"], "", False),
        (["regular@127.0.0.1:8080", "reverse:https://api.z.ai@8082"], "", True),
        (["regular@127.0.0.1:8080", "reverse:https://api.z.ai@8082"], "127.0.0.1", False),
        (["regular@127.0.0.1:8080", "reverse:https://api.z.ai@127.0.0.1:8082"], "", False),
        (["regular@0.0.0.0:8080"], "127.0.0.1", True),
        (["socks5@[::1]:1080"], "", False),
        (["regular@[::]:8080"], "127.0.0.1", True),
        (["regular@localhost:8080"], "", False),
    ],
)
def test_each_mode_that_listens_beyond_loopback_is_warned_of(warned: Any, mode: list[str], host: str, beyond: bool) -> None:
    assert ("listening beyond loopback" in warned(mode=mode, listen_host=host)) is beyond


def test_the_warning_about_large_bodies_names_the_option(warned: Any) -> None:
    assert warned() == ""
    assert "stream_large_bodies hides large requests" in warned(stream_large_bodies="1")
