"""What the page puts first, folds, hides and draws."""

from __future__ import annotations

import dataclasses
import json

from operations.page_text import WORDS
from operations.status import Table, UpstreamRow
from operations.timeline import Bar
from tests.operations.page_source import Ask, SourceStub, status


def test_what_is_paused_or_in_use_comes_first_and_what_is_idle_is_folded(ask: Ask, source: SourceStub) -> None:
    rows = (UpstreamRow("idle-one"), UpstreamRow("in-use", sent=1), UpstreamRow("held-up", state="open", seconds_left=9))
    source.shown = status(upstreams=rows)
    text = ask().text
    assert (
        text.index('"name">held-up')
        < text.index('"name">in-use')
        < text.index('<details id="idle">')
        < text.index('"name">idle-one')
    )
    source.shown = status(upstreams=rows[:1])
    assert '<details id="idle" open>' in ask().text


def test_what_is_only_observed_has_words_and_a_colour_of_its_own(ask: Ask, source: SourceStub) -> None:
    paused = (UpstreamRow("held-up", state="open", seconds_left=9),)
    source.shown = dataclasses.replace(status(upstreams=paused), mode="observe")
    for language, words in (("en", "would be paused"), ("zh", "本应暂停")):
        text = ask(f"/?lang={language}").text
        assert 'class="verdict watch"' in text
        assert text.count(words) >= 2
        assert ">paused<" not in text
        assert WORDS["avoided"].told(language) not in text


def test_evidence_is_a_table_with_what_is_named_first_and_gone_where_none_is_kept(ask: Ask, source: SourceStub) -> None:
    told = {
        "en": (
            "A · gap under 1 s",
            "D · fresh TLS connection",
            "+84%",
            "+76% to +88%",
            "the likely cause",
            "Too few",
            "400 exchanges",
        ),
        "zh": ("A · 间隔小于 1 秒", "D · 新的 TLS 连接", "+84%", "+76% 至 +88%", "很可能是原因", "样本太少", "共 400 次请求"),
    }
    for language, words in told.items():
        text = ask(f"/?lang={language}").text
        for shown in (*words, "126/144", "10/256", "3/9", "&lt; 0.001"):
            assert shown in text, shown
        assert text.index(words[0]) < text.index(words[1])
        assert WORDS["with"].told(language) in text
    source.shown = status(report=None)
    for language in told:
        text = ask(f"/?lang={language}").text
        assert WORDS["report"].told(language) not in text
        assert WORDS["trigger"].told(language) not in text


def test_further_tables_are_shown_where_they_have_rows(ask: Ask, source: SourceStub) -> None:
    tables = (Table("waiting", ("upstream", "wait"), (("zai", "<b>7 s</b>"),)), Table("limits", ("account", "slots"), ()))
    source.shown = status(tables=tables)
    text = ask("/?lang=zh").text
    assert "排队中的请求" in text
    assert "&lt;b&gt;7 s&lt;/b&gt;" in text
    assert "学到的并发上限" not in text
    assert json.loads(ask("/status.json").text)["waiting"] == [{"upstream": "zai", "wait": "<b>7 s</b>"}]


def test_the_json_is_as_small_as_asked_for(ask: Ask) -> None:
    told = json.loads(ask("/status.json?parts=upstreams,counts").text)
    assert set(told) == {"now", "version", "mode", "upstreams", "counts"}
    assert set(json.loads(ask("/status.json?parts=").text)) == {"now", "version", "mode"}
    assert "decisions" in json.loads(ask("/status.json").text)


def test_the_last_hour_is_a_picture_of_each_upstream(ask: Ask, source: SourceStub) -> None:
    assert '<svg viewBox="0 0 600 40"' not in ask().text
    source.shown = status(timeline={"zai<b>": (Bar(590, 20.0, 10.0, 5.0, paused=True),)})
    text = ask("/?lang=zh").text
    assert "最近一小时: zai&lt;b&gt;" in text
    assert [text.count(f'<rect class="{kind}"') for kind in ("sent", "refused", "waiting", "paused")] == [1, 1, 1, 1]
