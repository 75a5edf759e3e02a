"""The lean chain calls what mitmproxy's own would call, in its order, but for what no option asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mitmproxy import exceptions, hooks, options
from mitmproxy import http as messages
from mitmproxy.addons import default_addons
from mitmproxy.addons.dumper import Dumper
from mitmproxy.proxy.layers import http
from mitmproxy.test import tflow
from mitmproxy.tools.dump import DumpMaster

from breakwater.master import ALWAYS, SLEEPERS, Lean, trust_messages
from tests.rows import over

Use = Callable[[Any], Awaitable[None]]


class Noted:
    """An addon that notes each call."""

    def __init__(self, name: str, notes: list[str], *children: Noted) -> None:
        self.name, self.notes, self.addons = name, notes, children

    def request(self, _flow: object) -> None:
        self.notes.append(f"{self.name} request")

    async def response(self, _flow: object) -> None:
        await asyncio.sleep(0)
        self.notes.append(f"{self.name} response")

    def update(self, _flows: object) -> None:
        self.notes.append(f"{self.name} update")

    def running(self) -> None:
        self.notes.append(f"{self.name} running")


class Raising:
    def __init__(self, fault: Exception) -> None:
        self.fault = fault

    def request(self, _flow: object) -> None:
        raise self.fault


def on(kind: type[DumpMaster], use: Use) -> None:
    async def run() -> None:
        made = kind(options.Options())
        await use(made)
        await made.done()

    asyncio.run(run())


def called(kind: type[DumpMaster], *extra: Callable[[list[str]], Any]) -> list[str]:
    """What is noted of one flow in a chain with these addons at its end."""
    notes: list[str] = []

    async def use(made: Any) -> None:
        made.addons.add(*(make(notes) for make in extra))
        await made.addons.trigger_event(hooks.RunningHook())
        flow = tflow.tflow(resp=True)
        for _ in range(2):
            for hook in (http.HttpRequestHook(flow), http.HttpResponseHook(flow)):
                await made.addons.handle_lifecycle(hook)

    on(kind, use)
    return notes


@over(
    "extra",
    [
        [lambda notes: Noted("one", notes), lambda notes: Noted("two", notes)],
        [lambda notes: Noted("outer", notes, Noted("inner", notes, Noted("innermost", notes)))],
        [lambda notes: Noted("one", notes), lambda _: Raising(exceptions.AddonHalt()), lambda notes: Noted("two", notes)],
        [lambda notes: Noted("one", notes), lambda _: Raising(ValueError("x")), lambda notes: Noted("two", notes)],
    ],
    ids=["two", "nested", "halted", "raising"],
)
def test_addons_are_called_as_mitmproxy_calls_them(extra: list[Callable[[list[str]], Any]]) -> None:
    lean = called(Lean, *extra)
    assert lean == called(DumpMaster, *extra)
    assert "one request" in lean or "outer request" in lean


def test_an_addon_that_comes_or_goes_later_is_noticed() -> None:
    notes: list[str] = []

    async def use(made: Any) -> None:
        hook = http.HttpRequestHook(tflow.tflow())
        await made.addons.handle_lifecycle(hook)
        late = Noted("late", notes)
        made.addons.add(late)
        await made.addons.handle_lifecycle(hook)
        made.addons.remove(late)
        await made.addons.handle_lifecycle(hook)

    on(Lean, use)
    assert notes == ["late request", "late update"]


def test_a_script_that_loads_into_another_addon_later_is_noticed() -> None:
    notes: list[str] = []

    async def use(made: Any) -> None:
        loader: Any = Noted("loader", notes)
        made.addons.add(loader)
        hook = http.HttpRequestHook(tflow.tflow())
        await made.addons.handle_lifecycle(hook)
        script = Noted("script", notes)
        made.addons.register(script)  # as mitmproxy's script addon does, and only then
        loader.addons = [script]
        await made.addons.handle_lifecycle(hook)

    on(Lean, use)
    assert notes.count("script request") == 1


@over("name", SLEEPERS)
def test_an_addon_sleeps_until_its_option_is_set_and_then_is_called(name: str) -> None:
    settings: dict[str, Any] = {
        "anticache": True,
        "anticomp": True,
        "block_list": [":~q:444"],
        "flow_detail": 1,
        "map_local": ["|a|/dev/null"],
        "map_remote": ["/a/b"],
        "modify_body": ["/a/b"],
        "modify_headers": ["/a/b"],
        "onboarding": True,
        "proxyauth": "any",
        "save_stream_file": "/dev/null",
        "hardump": "/dev/null",
        "server_replay": ["/dev/null"],
        "stickyauth": "~q",
        "stickycookie": "~q",
        "upstream_auth": "a:b",
    }

    async def use(made: Any) -> None:
        addon = made.addons.get(name)
        names = {hook for hook in hooks.all_hooks if callable(getattr(addon, hook, None))} - ALWAYS
        names -= {"load", "configure"}
        assert names, f"{name} has no hooks: nothing to spare"
        for awake in (False, True):
            if awake:
                (option,) = SLEEPERS[name]
                made.options.update(**{option: settings[option]})
            for hook in names:
                event = hooks.all_hooks[hook].__new__(hooks.all_hooks[hook])
                found = [function.__self__ for function in made.addons._look_up(event)]
                assert (addon in found) is awake, (hook, awake)

    on(Lean, use)


def test_only_addons_that_do_nothing_of_themselves_may_sleep() -> None:
    """The rows name addons and options that there are, and every option of a sleeper's own is off at first."""

    async def use(made: Any) -> None:
        names = {getattr(addon, "name", type(addon).__name__.lower()) for addon in (*default_addons(), Dumper())}
        assert set(SLEEPERS) <= names
        for wakes in SLEEPERS.values():
            assert not any(getattr(made.options, option) for option in wakes)

    on(Lean, use)


def test_a_message_is_made_without_a_check_of_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    data: Any = messages.MessageData
    monkeypatch.setattr(data, "__post_init__", data.__post_init__)  # put back afterwards
    fields: Any = (b"HTTP/1.1", messages.Headers(), "a text where bytes belong", None, 0.0, None)
    with pytest.raises(TypeError):
        data(*fields)
    trust_messages()
    assert data(*fields).http_version == b"HTTP/1.1"
