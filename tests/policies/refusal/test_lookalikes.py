from __future__ import annotations

import itertools
import json

from policies.answer.shapes import FINISH_REASONS
from policies.kinds import Family, Head, Kind, Role, Wire
from policies.refusal import challenges, overflow
from policies.refusal.codes import MARKERS
from policies.refusal.error_kinds import TABLES
from policies.refusal.recogniser import Recogniser
from tests.policies.refusal.envelope_forms import GENERAL, answers, dump
from tests.policies.refusal.replies import corpus, read, surface
from tests.policies.refusal.test_codes import SPOKEN
from tests.policies.refusal.test_overflow import STATED
from tests.policies.refusal.test_pages import CHALLENGES
from tests.rows import over

HEAD = Head(200, (("content-type", "application/json"),))
MARKED = sorted(
    {
        *challenges.VERDICTS,
        *challenges.PUNISH,
        *MARKERS,
        *FINISH_REASONS,
        *overflow.CODES,
        *CHALLENGES.values(),
        *(words for words, _ in STATED),
        *itertools.chain.from_iterable(SPOKEN.values()),
        '{"ret":["FAIL_SYS_USER_VALIDATE","RGV587_ERROR::SM::哎哟喂,被挤爆啦,请稍后重试"],"data":{"url":"/_____tmd_____/punish?x5secdata=1"}}',
        'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","code":"1305"}}\n\n',
        "id:1\nevent:error\n:HTTP_STATUS/429\ndata:{}\n\n",
        '"error":{"code":"3007"}',
        '"finish_reason":"sensitive"',
        "response.failed",
        "FRONTEND_CAPTCHA_REQUIRED",
        "upstream_waf_challenge",
    }
)
ROWS = sorted(
    {
        (family, code)
        for family, tables in TABLES.items()
        if family is not None
        for _, rows in tables
        for row in rows
        for code in row.codes.split()
    }
)


@over("family", Family)
def test_no_marker_fires_on_what_a_model_wrote(family: Family) -> None:
    """The answers take turns: each marker comes in every other one, and for two families in both halves."""
    for number, marker in enumerate(MARKED, list(Family).index(family)):
        for name, body in list(answers(marker).items())[number % 2 :: 2]:
            findings = read(Recogniser(), surface(family), HEAD, body)
            assert [finding.kind for finding in findings] == [Kind.ANSWER], (name, marker)


def test_no_refusal_of_the_corpus_fires_inside_an_answer() -> None:
    for reply in corpus():
        if not reply.body:
            continue
        for name, body in answers(reply.body.decode("utf-8", "replace")).items():
            findings = read(Recogniser(), reply.surface, HEAD, body)
            assert [finding.kind for finding in findings] == [Kind.ANSWER], (name, reply.id)


@over("family", Family)
def test_a_document_that_a_path_beside_serves_is_no_challenge(family: Family) -> None:
    for marker in MARKED:
        if marker in CHALLENGES.values() or marker.startswith(("{", "event:", "id:")):
            continue
        for page in (
            f"<html><body><h1>Errors</h1><p>{marker}</p></body></html>",
            f"# Errors\n\n{marker}\n",
            json.dumps({"data": [{"text": marker}]}),
        ):
            finding = Recogniser().document(surface(family, Wire.OTHER, Role.OTHER), Head(200), page.encode(), whole=True)
            assert finding.kind is Kind.ANSWER, page


def test_a_message_that_quotes_json_of_its_caller_is_read_by_its_own_code() -> None:
    """The two forms of what is quoted take turns, and so do the words before it, of which each code has every other one."""
    forms = (GENERAL["error.code"], GENERAL["top level message"])
    befores = (
        "Invalid tool arguments: ",
        "messages[3].content is ",
        "Error parsing tool arguments: ",
        "could not read ",
        "Expecting value: line 1 column 402: ",
        "Invalid request body: ",
        "The upstream tool said: ",
        "field b'",
    )
    for (row, (family, code)), (number, before) in itertools.product(enumerate(ROWS), enumerate(befores)):
        if (row + number) % 2:
            continue
        quoted = forms[number % 2](code, "quoted").decode()
        body = json.dumps({"error": {"code": "9999", "message": before + quoted}}).encode()
        finding = Recogniser().document(surface(family), Head(400), body, whole=True)
        assert finding.kind is Kind.CALLER_ERROR, (code, before)


def test_a_code_beside_an_answer_is_not_an_error() -> None:
    for family, code in ROWS:
        for body in (
            {"choices": [{"message": {"content": "hi"}}], "code": code, "message": "x"},
            {"choices": [{"message": {"content": "hi"}}], "success": False, "error": None},
            {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}], "code": code},
            {"output": {"text": "hi"}, "code": code, "message": ""},
        ):
            assert Recogniser().document(surface(family), HEAD, json.dumps(body).encode(), whole=True).kind is Kind.ANSWER


@over("family", Family)
def test_code_that_a_model_wrote_for_an_interpreter_is_no_code_of_the_upstream(family: Family) -> None:
    link = "https://chat.qwen.ai/_____tmd_____/punish?x5secdata=1"
    for written in ("FAIL_SYS_USER_VALIDATE", "RGV587", "1305", "3007", "upstream_waf_challenge"):
        done = {"type": "response.code_interpreter_call_code.done", "output_index": 0, "code": written, "url": link}
        assert [finding.kind for finding in read(Recogniser(), surface(family), HEAD, b"data: " + dump(done) + b"\n\n")] == [
            Kind.ANSWER
        ]


@over("error", [None, {}, "", [], False, 0])
def test_an_empty_error_is_none(error: object) -> None:
    for body in (
        {"error": error, "choices": [{"message": {"content": "x"}}]},
        {"error": error, "object": "response", "output": [{"type": "message"}]},
    ):
        assert Recogniser().document(surface(Family.ZAI), HEAD, json.dumps(body).encode(), whole=True).kind is Kind.ANSWER


HOLLOW = {"message": "", "type": "", "param": "", "code": None}


@over("family", Family)
@over("error", [HOLLOW, {"code": 0, "message": ""}, [HOLLOW]])
def test_an_error_that_says_nothing_is_none_beside_an_answer(family: Family, error: object) -> None:
    for name, body in answers("hi").items():
        lead, framed, data = body.rpartition(b"data:")
        for key in ("error", "errors"):
            value = dump({**json.loads(data), key: error})
            whole = lead + framed + value + b"\n\n" if framed else value
            found = read(Recogniser(), surface(family), HEAD, whole)
            assert [finding.kind for finding in found] == [Kind.ANSWER], (name, key)
    assert Recogniser().document(surface(family), HEAD, dump({"error": error}), whole=True).kind is not Kind.ANSWER


def test_one_familys_code_means_nothing_to_another() -> None:
    for family, code in (
        ("dashscope", "1302"),
        ("dashscope", "3007"),
        ("zai", "3007"),
        ("zai", "3012"),
        ("zai", "Arrearage"),
        ("zai", "RateLimited"),
    ):
        body = json.dumps({"error": {"code": code, "message": "x"}}).encode()
        assert Recogniser().document(surface(Family(family)), Head(400), body, whole=True).kind is Kind.CALLER_ERROR


def test_a_running_stream_is_mostly_unsuspicious() -> None:
    recogniser = Recogniser()
    for family in Family:
        for name, body in answers("An ordinary sentence of an ordinary answer.").items():
            if body.startswith((b"data", b"event", b"id")):
                assert not recogniser.suspicion(surface(family))(body), name
