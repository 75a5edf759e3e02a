"""When state is shared: from the start of a proxy, or from a change of its settings, to its end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from operations import reload
from operations.shared_state import SharedState
from policies.breaker import Transition

if TYPE_CHECKING:
    from operations.controller import Controller


def follow(controller: Controller) -> None:
    """Share over the server that the settings name, or no more."""
    url, shared = controller.state.settings.shared, controller.shared
    if url == (shared.full_url if shared else None):
        return
    leave(controller)
    if url is not None:
        changed = partial(_changed, controller)
        controller.shared = SharedState(controller.state, url, changed, controller.counters.lost, controller.store.rekey)
        controller.shared.start()


def leave(controller: Controller) -> None:
    """Go on alone; what was learnt stays."""
    shared, controller.shared = controller.shared, None
    if shared is not None:
        shared.leave()
        reload.keep(shared.server.close())


def _changed(controller: Controller, moved: list[Transition]) -> None:
    controller.log_transitions(moved)
    controller.waiting.look()
