"""Side requests known by their text: the recorded ones, their look-alikes, and rows of a user."""

from __future__ import annotations

from typing import Any

from policies.request.reading import TRAITS
from policies.settings import TraitRow
from tests.policies.request.test_reading import RECORDED, read, recorded
from tests.rows import over

TITLE = "You are a title generator. You output ONLY a thread title."
SCHEMA = {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {"title": {"type": "string"}}}}}


def test_every_row_names_its_source() -> None:
    assert all(row.source and row.source != "config" for row in TRAITS)
    assert len({row.name for row in TRAITS}) == len(TRAITS)


@over(
    ("client", "trait"),
    [
        ("claude-code-2.0.76-print-warmup-haiku", "claude-code warm-up"),
        ("claude-code-2.0.76-print-warmup-plan", "claude-code warm-up"),
        ("claude-code-2.0.76-print-nonstream-fallback-of-warmup", "claude-code warm-up"),
        ("claude-code-2.1.112-interactive-title", "claude-code title 2.1.112"),
        ("claude-code-2.1.332-interactive-title", "claude-code title 2.1.332"),
        ("opencode-1.18.33-anthropic-title", "opencode title"),
        ("opencode-1.18.33-openai-compatible-title", "opencode title"),
    ],
)
def test_a_recorded_title_or_warm_up_is_known(client: str, trait: str) -> None:
    assert recorded(client).trait == trait


@over("row", [row for row in RECORDED if row["kind"] in {"main", "retry"}], ids=lambda row: row["client"])
def test_no_recorded_main_request_has_a_trait(row: dict[str, Any]) -> None:
    assert read(row["body"], row["headers"]).trait is None


@over("role", ["system", "developer"])
@over("content", [TITLE, [{"type": "input_text", "text": TITLE}]])
def test_it_is_known_on_the_wires_that_have_no_messages(role: str, content: object) -> None:
    said = [{"role": role, "content": content}, {"role": "user", "content": "what I did today"}]
    assert read({"input": said}).trait == "opencode title"
    assert read({"input": {"messages": said}}).trait == "opencode title"
    assert read({"input": TITLE}).trait is None
    assert read({"input": {"messages": TITLE}}).trait is None


def test_the_title_schema_alone_is_enough() -> None:
    assert read({"output_config": SCHEMA}).trait == "claude-code title schema"


@over(
    "body",
    [
        {"system": TITLE, "tools": [{"name": "t"}]},
        {"system": "Please: " + TITLE},
        {"messages": [{"role": "user", "content": TITLE}]},
        {"messages": [{"role": "user", "content": "hi"}, {"role": "system", "content": TITLE}]},
        {"messages": [{"role": "user", "content": "Warmup"}, {"role": "assistant", "content": "ok"}]},
        {"messages": [{"role": "user", "content": "Warmup"}, {"role": "user", "content": "Warmup"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Warmup"}, {"type": "text", "text": "more"}]}]},
        {"messages": [{"role": "user", "content": "Warmup exercises for runners?"}]},
        {"messages": [{"role": "assistant", "content": "Warmup"}]},
        {"output_config": {"format": {"type": "json_schema", "schema": {"properties": dict.fromkeys(["title", "a", "b"])}}}},
        {"output_config": {"format": {"type": "text", "schema": {"properties": {"title": {}}}}}},
        {"output_config": [], "system": 5, "messages": "Warmup"},
        {"system": [TITLE], "messages": [None]},
        {"system": None, "messages": None, "output_config": None},
        {},
    ],
)
def test_a_look_alike_has_none(body: dict[str, object]) -> None:
    assert read(body).trait is None


def test_a_system_block_or_leading_system_message_may_begin_with_blanks_or_come_second() -> None:
    assert read({"system": [{"type": "text", "text": "x"}, {"type": "text", "text": f"\n{TITLE}"}]}).trait == "opencode title"
    messages = [{"role": "system", "content": "x"}, {"role": "developer", "content": [{"type": "text", "text": TITLE}]}]
    assert read({"messages": messages}).trait == "opencode title"
    assert read({"instructions": TITLE, "input": "hi"}).trait == "opencode title"


def test_a_title_request_with_a_long_history_is_known_and_a_long_talk_is_no_warm_up() -> None:
    history = [{"role": "user", "content": "word " * 30_000}, {"role": "assistant", "content": "ok"}]
    assert read({"messages": [{"role": "system", "content": TITLE}, *history]}).trait == "opencode title"
    assert read({"messages": [{"role": "system", "content": "word " * 30_000}, *history]}).trait is None
    assert read({"messages": history}).trait is None


def test_a_row_of_a_user_counts_like_a_built_in_one() -> None:
    rows = (
        TraitRow("mine", "user", "ping"),
        TraitRow("named", "system", "Name this"),
        TraitRow("topic", "schema", "isNewTopic"),
    )
    schema = {"format": {"type": "json_schema", "schema": {"properties": {"isNewTopic": {}, "title": {}}}}}
    assert read({"messages": [{"role": "user", "content": " ping\n"}]}, traits=rows).trait == "mine"
    assert read({"system": "Name this talk"}, traits=rows).trait == "named"
    assert read({"output_config": schema}, traits=(rows[2],)).trait in {"topic", "claude-code title schema"}
    assert read({"messages": [{"role": "user", "content": "ping"}]}).trait is None
