from __future__ import annotations

import json
import time

from hypothesis import given
from hypothesis import strategies as st

from policies.answer.frames import parse
from policies.kinds import Challenge, Family, Finding, Head, Kind, Role, Wire
from policies.refusal import challenges
from policies.refusal.recogniser import Recogniser
from tests.policies.refusal.replies import corpus, surface
from tests.rows import over

META = '<meta name="aliyun_waf_aa" content="0123abcd"><meta name="aliyun_waf_bb" content="0123abcd">'
PUNISH = "https://chat.qwen.ai:443//api/v2/chat/completions/_____tmd_____/punish?x5secdata=xgTOKEN&x5step=1"
CHALLENGES = {
    "waf-pair": f"<!doctypehtml><html><head>{META}<title>验证</title></head><body></body></html>",
    "waf-single": '<!doctype html><html><head><meta name="aliyun_waf_aa" content="x"></head><body></body></html>',
    "waf-awsc": '<html><head><meta name="aliyun_waf_aa" content="x"></head><script src="https://g.alicdn.com/AWSC/AWSC/awsc.js"></script></html>',
    "verification": '<!doctype html><html><head><title>Verification</title></head><body><div id="captcha-element"></div>'
    "<script>var _waf_is_mobile = false;</script></body></html>",
    "verification-single-quotes": "<!DOCTYPE HTML><HTML><HEAD><TITLE>Verification</TITLE></HEAD><BODY><DIV ID='captcha-element'></DIV></BODY></HTML>",
    "verification-no-element": "<html><head><title>Verification</title></head><script>var _waf_is_mobile = true;</script></html>",
    "aliyun-captcha": '<html><body><div id="aliyunCaptcha-window"></div><script>window.AliyunCaptchaConfig={};initAliyunCaptcha({})</script></body></html>',
    "punish-config": f'<html><head><title>Captcha Interception</title></head><script>window._config_={{"action":"captcha","url":"{PUNISH}"}};</script></html>',
    "punish-location": f'<html><script>location.href="{PUNISH}"</script></html>',
    "punish-refresh": f'<html><head><meta http-equiv="refresh" content="0;url={PUNISH}"></head></html>',
    "punish-frame": f'<html><body><iframe src="{PUNISH}"></iframe></body></html>',
    "punish-script": '<html><script src="/_____tmd_____/page/feedback.js"></script></html>',
    "punish-form": '<html><form action="/_____tmd_____/verify?x5secdata=xgTOKEN"></form></html>',
    "interception": '<html><title>验证码拦截</title><script src="//g.alicdn.com/sd/punish/app.js"></script></html>',
    "cookie-two-scripts": "<html><script>var arg1 = '4C8B0B4F';</script><script>reload('acw_sc__v2')</script></html>",
    "slider": '<html><body><div id="nocaptcha"></div><script src="//g.alicdn.com/AWSC/AWSC/awsc.js"></script></body></html>',
    "baxia": '<html><script src="https://g.alicdn.com/sd/baxia-entry/baxiaCommon.js"></script><script>window.x5sec={}; punish()</script></html>',
    "slider-words": "<html><title>Access Verification</title><body>Please slide to verify that you're not a robot TraceID: 0a1b</body></html>",
    "cookie": "<html><script>var arg1='4C8B0B4F';function setCookie(n,v){document.cookie=n+'='+v}setCookie('acw_sc__v2', unsbox(arg1));</script></html>",
    "cookie-3": "<html><script>var arg1='4C8B0B4F';setCookie('acw_sc__v3', unsbox(arg1));</script></html>",
    "denied": '<a id="a-link" href="https://bixi.alicdn.com/punish/default.html?uuid=xgTOKEN&action=deny"></a><script>document.cookie="x5secdata=;";'
    'window._config_={"action":"deny","url":"https://bixi.alicdn.com/punish/default.html?uuid=xgTOKEN&action=deny"};</script><!--rgv587_flag:sm-->',
    "denied-frame": '<html><iframe src="https://bixi.alicdn.com/punish/default.html?uuid=xgTOKEN&action=deny"></iframe></html>',
    "clicked": f'<a id="a-link" href="{PUNISH}"></a><script>document.getElementById("a-link").click();</script>',
    "flagged": "<html><script>window._config_ = {action: 'deny'}</script><!--rgv587_flag:sm--></html>",
    "punishpage": '<html><punish-component></punish-component><script>window._config_ = {"renderTo":"#nocaptcha","action":"captcha"};'
    '</script><script src="//g.alicdn.com/bsop-static/sufei-punish/0.1.125/build/punishpage.min.js"></script></html>',
    "gfver": '<html><body onload="check()"><script>var alicfw_gfver=1;function check(){}</script></body></html>',
}
RECORDED = {reply.id: reply for reply in corpus() if reply.head.media_type == "text/html" and "405" in reply.id}
BLOCK = RECORDED["t2-zw-405-script-page"].body.decode()
SENTENCE = "Sorry, your request has been blocked as it may cause potential threats to the server's security."
PROSE = "This page explains how a web application firewall answers a client. " * 12
DOCUMENTS = {
    "words": "<html><head><title>Aliyun WAF captcha</title></head><body>aliyun_waf acw_sc__v2 var arg1 _____tmd_____ punish x5secdata</body></html>",
    "escaped": '<html><body><p>It has &lt;meta name="aliyun_waf_aa"&gt; and &lt;div id="captcha-element"&gt;</p></body></html>',
    "in-code": f"<html><body><p>Example</p><pre>{META}<title>Verification</title><div id='captcha-element'></div></pre></body></html>",
    "in-code-cookie": "<html><body><code>&lt;script&gt;var arg1='4C8B';acw_sc__v2</code></body></html>",
    "in-comment": f"<html><!-- {META} --><body>Maintenance</body></html>",
    "in-data": '<html><script type="application/json">{"x":"_____tmd_____/punish?x5secdata=1","action":"captcha","location":1}</script></html>',
    "in-state": "<html><body>"
    + PROSE
    + '<script>window.__STATE__={"text":"<meta name=\\"aliyun_waf_aa\\"> location _____tmd_____/punish"}</script></body></html>',
    "long-article": f"<html><head><title>Verification</title></head><body>{PROSE}<div id='captcha-element'></div><script>_waf_is_mobile</script></body></html>",
    "title-alone": "<html><head><title>Verification</title></head><body>Verify your email address.</body></html>",
    "block-words": "<html><body>The page says: Sorry, your request has been blocked as it may cause potential threats to the server's security.</body></html>",
    "slide-words": "<html><body>Please slide to verify the connector fits.</body></html>",
    "captcha-word": "<html><body><div id='captcha'>captcha</div></body></html>",
    "link": '<html><body><a href="https://x/_____tmd_____/punish?x5secdata=1">what is this link?</a></body></html>',
    "link-clicked-by-hand": '<html><body><a id="a-link" href="https://x/_____tmd_____/punish?x5secdata=1">what is it?</a>'
    "<script>document.getElementById('menu').click()</script></body></html>",
    "flag-in-comment": "<html><!-- rgv587_flag:sm --><body>Maintenance</body><script>start({action:'login'})</script></html>",
    "flag-in-words": "<html><body>rgv587_flag:sm<script>window._config_={action:'x'}</script></body></html>",
    "config-alone": "<html><body><script>window._config_={action:'captcha'}</script>Welcome</body></html>",
    "arg1-alone": "<html><script>var arg1='4C8B';run(arg1)</script></html>",
    "acw-tc": "<html><script>document.cookie='acw_tc=1'</script></html>",
    "state": "<html><body><div id='root'></div><script>window.__STATE__={title:'405',text:\"Sorry, your request has been "
    "blocked as it may cause potential threats to the server's security.\"}</script></body></html>",
    "slide-state": "<html><body><div id='root'></div><script>T={slide:'Please slide to verify'}</script></body></html>",
    "script-id": "<html><body><script>open({id:'captcha-element'})</script></body></html>",
    "nginx": "<html>\r\n<head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center></body></html>",
}


def found(
    page: str,
    status: int = 200,
    kind: str = "text/html; charset=utf-8",
    *,
    role: Role = Role.GENERATION,
    whole: bool = True,
) -> Finding:
    head = Head(status, (("content-type", kind), ("server", "nginx")))
    return Recogniser().document(surface(Family.QWEN_WEB, Wire.QWEN_WEB, role), head, page.encode(), whole=whole)


@over("name", CHALLENGES)
@over("status", [200, 403, 405])
@over("kind", ["text/html", "application/json", "text/event-stream", ""])
def test_a_challenge_page_is_one_under_any_status_and_type(name: str, status: int, kind: str) -> None:
    finding = found(CHALLENGES[name], status, kind)
    assert (finding.kind, finding.challenge, finding.transient) == (Kind.CHALLENGE, Challenge.CAPTCHA, False)
    assert b"xgTOKEN" not in finding.excerpt
    assert b"0123abcd" not in finding.excerpt


@over("family", Family)
def test_pages_are_known_on_every_upstream(family: Family) -> None:
    for page in CHALLENGES.values():
        assert Recogniser().document(surface(family), Head(200), page.encode(), whole=True).kind is Kind.CHALLENGE


@over("family", Family)
@over("status", [200, 403, 405])
def test_the_block_page_is_known_whichever_of_its_words_have_come(family: Family, status: int) -> None:
    head = Head(status, (("content-type", "text/html"),))
    last_place = BLOCK.index('id="block_traceid_tips"')
    for end in (len(BLOCK), BLOCK.index("block_traceid_tips:"), BLOCK.index("<script>") + 20, last_place):
        page = BLOCK[:end].encode()
        assert Recogniser().document(surface(family), head, page, whole=False).challenge is Challenge.CAPTCHA, end


@over("old", [SENTENCE, "block_message", "renderData", "errors.aliyun.com", "<title>405</title>", "traceid"])
def test_the_block_page_is_known_without_any_one_of_its_signs(old: str) -> None:
    assert found(BLOCK.replace(old, ""), 405).kind is Kind.CHALLENGE
    escaped = BLOCK.replace("server's", "server\\'s").replace("potential", "\\x70otential").replace("安全", "\\u5b89\\u5168")
    assert found(escaped.replace(old, ""), 405).kind is Kind.CHALLENGE


def test_a_405_of_another_server_is_none() -> None:
    for reply in RECORDED.values():
        kind = Kind.CHALLENGE if reply.label["kind"] == "challenge" else Kind.CALLER_ERROR
        assert Recogniser().document(reply.surface, reply.head, reply.body, whole=True).kind is kind, reply.id
    assert found("<html><title>405 Not Allowed</title><hr>Powered by Tengine</html>", 405).kind is Kind.CALLER_ERROR


SCRIPTED = {
    "verification": "<html><script>document.title='Verification';var _waf_is_mobile=false</script></html>",
    "captcha-element": "<html><script>document.write('<div id=\"captcha-element\"></div>');initAliyunCaptcha({})</script></html>",
    "captcha-element-set": "<html><script>d.id='captcha-element';s.src='https://g.alicdn.com/captcha-frontend/x.js'</script></html>",
    "slider": "<html><div id='nocaptcha'></div><script>s.src='//g.alicdn.com/AWSC/AWSC/awsc.js'</script></html>",
    "slider-words": "<html><script>t={ask:\"Please slide to verify that you're not a robot\",id:'TraceID: '}</script></html>",
    "punish": "<html><script>location.href='https:\\/\\/x\\/_____tmd_____\\/punish?x5secdata=xgTOKEN'</script></html>",
    "cookie": "<html><script>var arg1='4C8B';set('\\x61\\x63\\x77\\x5f\\x73\\x63\\x5f\\x5f\\x76\\x32')</script></html>",
    "interception": "<html><script>document.title = '滑动验证页面';punish({})</script></html>",
    "slider-textarea": "<html><title>滑动验证页面</title><textarea style='display:none'>appkey: \"CF_APP_WAF\"</textarea></html>",
    "slider-words-zh": "<html><title>访问验证</title><body>为了更好的访问体验，请滑动滑块进行验证</body></html>",
    "h5": "<html><div id='h5_captcha-element'></div><script>initAliyunCaptcha({})</script></html>",
    "waf-block": "<html><div id='waf_nc_block'></div><script src='https://g.alicdn.com/AWSC/AWSC/awsc.js'></script></html>",
    "render-data": "<html><meta name='aliyun_waf_aa' content='x'><p>One moment, this page is being looked at, please.</p>"
    "<textarea id='renderData'>{}</textarea></html>",
    "upper-case": "<HTML><META NAME='ALIYUN_WAF_AA' CONTENT='x'><META NAME='ALIYUN_WAF_BB' CONTENT='x'></HTML>",
}


@over("name", SCRIPTED)
def test_what_a_script_puts_in_counts_as_if_it_stood_in_the_page(name: str) -> None:
    assert found(SCRIPTED[name]).challenge is Challenge.CAPTCHA
    as_data = SCRIPTED[name].replace("<script>", '<script type="application/ld+json">')
    assert "<script>" not in SCRIPTED[name] or found(as_data).kind is Kind.NOTHING


def test_a_reference_of_endless_digits_is_read() -> None:
    for digits in ("9" * 5000, "x" + "f" * 5000):
        assert found(f"<html><body>&#{digits}; words</body></html>").kind is Kind.NOTHING


@over("name", DOCUMENTS)
@over("kind", ["text/html", "application/json"])
def test_a_page_that_writes_about_challenges_is_none(name: str, kind: str) -> None:
    assert found(DOCUMENTS[name], 200, kind).kind is Kind.NOTHING
    assert found(DOCUMENTS[name], 200, kind, role=Role.OTHER).kind is Kind.ANSWER
    assert found(DOCUMENTS[name], 502, kind).kind is Kind.UPSTREAM_ERROR
    assert found(DOCUMENTS[name], 404, kind).kind is Kind.CALLER_ERROR


def test_a_page_inside_a_models_answer_is_not_read() -> None:
    for page in CHALLENGES.values():
        answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": page}}]}).encode()
        assert Recogniser().document(surface(Family.ZAI), Head(200), answer, whole=True).kind is Kind.ANSWER
        delta = b"data: " + json.dumps({"choices": [{"delta": {"content": page}}]}).encode() + b"\n\n"
        finding = Recogniser().frame(surface(Family.ZAI), Head(200), parse(delta))
        assert finding is not None
        assert finding.kind is Kind.ANSWER


def test_a_page_cut_behind_its_markers_is_still_the_challenge() -> None:
    page = CHALLENGES["punish-config"]
    cut = page[: page.index("x5secdata") + 14]
    assert found(cut, whole=False).kind is Kind.CHALLENGE
    assert found(page[: page.index("<script")], whole=False).kind is Kind.NOTHING


def test_every_row_has_an_example() -> None:
    names = {
        row.name
        for page in (*CHALLENGES.values(), BLOCK)
        for row in challenges.ROWS
        if row.holds(challenges.read(page), Head(405))
    }
    assert names == {row.name for row in challenges.ROWS}


IDS = {f"page:{row.name}" for row in challenges.ROWS}
PIECES = [
    "<",
    ">",
    "<!--",
    "-->",
    "<script",
    "</script",
    "<pre>",
    "<title>",
    "<meta name=",
    "aliyun_waf_",
    '"',
    "'",
    " ",
    "x",
    "=",
    "</",
    "é",
]


@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_no_page_raises(parts: list[str]) -> None:
    assert challenges.page_row(Head(200), b"<html>" + "".join(parts).encode()) in {None, *IDS}


@given(st.binary(max_size=400))
def test_no_bytes_raise(data: bytes) -> None:
    assert challenges.page_row(Head(405), b"<" + data) in {None, *IDS}


@over("part", ["<!--", "<", "<b", "<script", "<pre>", "<a b='", "<title", '="', "<x y=", "a='"])
def test_a_hostile_page_is_read_in_time(part: str) -> None:
    started = time.process_time()
    challenges.page_row(Head(200), (part * (262144 // len(part))).encode())
    challenges.page_row(Head(200), ("<html><a " + part[-1] * 131072).encode())
    assert time.process_time() - started < 5
