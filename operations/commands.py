"""The commands of the console and mitmweb. mitmdump has no prompt: the status page has the same as buttons."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Protocol

from mitmproxy import command, exceptions, flow, http

from operations import status_of
from operations.actions import act
from operations.content_view import explain
from operations.controller import Controller
from operations.export import corpus_line

logger = logging.getLogger("breakwater")


class Owner(Protocol):
    controller: Controller | None


class Commands:
    """Each answers with what it did, in words. No addon of its own: mitmproxy asks every addon at every hook."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def _desk(self) -> Controller:
        if self._owner.controller is None:
            raise exceptions.CommandError("Breakwater has not started.")
        return self._owner.controller

    def _act(self, action: str, upstream: str | None = None, model: str | None = None) -> str:
        try:
            said = act(self._desk(), action, upstream, model)
        except ValueError as error:
            raise exceptions.CommandError(str(error)) from error
        logger.log(logging.INFO, "Breakwater: %s", said)
        return said

    @command.command("breakwater.status")
    def status(self) -> str:
        """Breakers, decisions and learnt windows, as JSON."""
        return json.dumps(status_of.status(self._desk()).as_json(), ensure_ascii=False, indent=2)

    @command.command("breakwater.report")
    def report(self) -> str:
        """What the exchanges so far say about why replays are refused."""
        return status_of.report_text(self._desk())

    @command.command("breakwater.open")
    def open(self, upstream: str) -> str:
        """Open an upstream's breaker for a full window."""
        return self._act("open", upstream)

    @command.command("breakwater.close")
    def close(self, upstream: str) -> str:
        """Close an upstream's breaker."""
        return self._act("close", upstream)

    @command.command("breakwater.reset")
    def reset(self, upstream: str) -> str:
        """Close an upstream's breaker and forget its remembered refusals."""
        return self._act("reset", upstream)

    @command.command("breakwater.windows")
    def windows(self) -> str:
        """The context windows that were learnt."""
        rows = [
            f"{row.upstream} {row.model}{' (thinking)' if row.thinking else ''}: {row.tokens} tokens, {row.source}"
            for row in status_of.status(self._desk()).windows
        ]
        return "\n".join(rows) or "No window has been learnt."

    @command.command("breakwater.forget")
    def forget(self, model: str) -> str:
        """Forget what was learnt about a model's window, and the overflows remembered for it."""
        return self._act("forget", None, model)

    @command.command("breakwater.explain")
    def explain(self, flows: Sequence[flow.Flow]) -> str:
        """Say why flows were decided as they were."""
        return "\n\n".join(explain(one) for one in flows if isinstance(one, http.HTTPFlow))

    @command.command("breakwater.export")
    def export(self, flows: Sequence[flow.Flow]) -> str:
        """Anonymised corpus lines of refusals, to be sent to the project."""
        return "\n".join(corpus_line(self._desk().state, one) for one in flows if isinstance(one, http.HTTPFlow))
