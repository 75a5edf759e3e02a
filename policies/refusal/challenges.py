"""Aliyun's challenges: the risk-control frame, mtop style, and the pages that stand where an answer should.

The frame is ``{"ret":["FAIL_SYS_USER_VALIDATE","RGV587_ERROR::SM::…"],"data":{"url":…}}``; only ``ret``, the code fields
and the punish link of an envelope are looked at. A page (WAF slider, cookie check, block page) is known by its elements (a
meta tag, an id, a script that runs), at least two of them together, so that a document that writes about them is none. What
a page's own script puts in (words, ids, a title, further scripts) is read as if it stood there. Comments, ``pre``, ``code``
and scripts that only carry data are not read.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from policies.answer import shapes
from policies.answer.shapes import text_of
from policies.kinds import Challenge, Finding, Head, Kind

PUNISH = ("_____tmd_____/punish", "/punish?", "bixi.alicdn.com/punish/")
"""Aliyun WAF slider (x5sec), and the page that denies instead; Rfym21/Qwen2API detectWafChallenge, AppsGanin/ai-free-vscode#11."""
BUSY = ("rgv587", "被挤爆")
"""Verdicts that a person sees as "crowded", the others as a slider."""
VERDICTS = ("fail_sys_user_validate", *BUSY)
"""In ``ret`` or a code field, lower case; Rfym21/Qwen2API detectWafChallenge."""
FLAG = "rgv587_flag"
"""``{"rgv587_flag":"sm","url":"…/punish?…"}``, a short form of the RGV587 verdict."""

# -- the frame ----------------------------------------------------------------------------------------------------


def verdict(body: Mapping[str, object]) -> Finding | None:
    """The challenge in an object with lower-case keys, or None. Answers and their parts are never looked into."""
    if body.get("choices") or body.get("output") or shapes.is_part(body):
        return None
    inner = (shapes.lowered(value) for key in ("data", "error", "detail") if isinstance(value := body.get(key), dict))
    return next((found for place in (body, *inner) if (found := _verdict_in(place))), None)


def _verdict_in(place: Mapping[str, object]) -> Finding | None:
    words = shapes.joined(place.get("ret"))
    if words and not shapes.is_failure(place.get("ret")):
        return None
    code = text_of(place.get("code")) or text_of(place.get("type"))
    judged = f"{words} {code if ' ' not in code else ''}".lower()
    url = place.get("url")
    punished = isinstance(url, str) and any(mark in url for mark in PUNISH)
    if not (FLAG in place or punished or any(mark in judged for mark in VERDICTS)):
        return None
    busy = FLAG in place or any(mark in judged for mark in BUSY)
    code = words.partition("::")[0] or code or "punish"
    return Finding(Kind.CHALLENGE, "mtop:ret", code, words, Challenge.BUSY if busy else Challenge.CAPTCHA)


# -- the pages ----------------------------------------------------------------------------------------------------

READ_BYTES = 131072
ATTRIBUTE_CHARACTERS = 8192
COMMENT_CHARACTERS = 40
ANCHORS = 3
SHELL_CHARACTERS = 700
"""A challenge page shows a person little; a document shows more."""

_TAG = re.compile(r"<(!--|/?[a-zA-Z][a-zA-Z0-9]*)")
_ATTRIBUTE = re.compile(r"""(?<![\w\-:])([\w\-:]++)\s*=\s*(?:"([^"]*)"?|'([^']*)'?|([^\s"'>]+))""")
_QUOTED = ("pre", "code", "xmp", "samp", "template")
_RAW = ("script", "style", "textarea", "title", *_QUOTED)
_LEADS = {"iframe": ("src",), "frame": ("src",), "form": ("action",), "img": ("src",), "meta": ("content",)}
"""Where a page leads by itself; a link that waits for a click is none."""
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_PUNISH = re.compile(r"_____tmd_____/punish|/punish\?x5secdata|bixi\.alicdn\.com/punish/")
_RUNNING = frozenset({"", "module", "text/javascript", "application/javascript", "application/x-javascript", "text/ecmascript"})
"""Types of a script that runs; every other one carries data."""
_ENDLESS_REFERENCE = re.compile(r"&#[xX]?[0-9a-fA-F]{9,}")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([/'\"]))")
_ADDRESS = r"[^\"'`\s<>]{0,300}"
_TITLED = re.compile(r"document\.title\s*=\s*[\"'`]([^\"'`<]{0,80})")


@dataclass(slots=True)
class Page:
    """The elements of a page that the rows ask for, everything in its own spelling."""

    title: str = ""
    metas: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    scripts: list[str] = field(default_factory=list)
    """Scripts that run, their escapes resolved."""
    sources: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)
    """Ids of links to the slider that wait for a click."""
    flagged: bool = False
    """A comment names the risk control's verdict."""
    onload: str = ""
    areas: list[str] = field(default_factory=list)
    """Text areas, where a script may hide."""
    styles: list[str] = field(default_factory=list)
    words: str = ""
    """What a person sees without any script."""

    @property
    def titles(self) -> set[str]:
        """The page's own title and those that its scripts set, in lower case."""
        put = {found[1].strip().lower() for script in self.scripts for found in _TITLED.finditer(script)}
        return {self.title.lower()} | put

    def runs(self, *patterns: str) -> bool:
        """One script that holds all of them."""
        return any(all(re.search(pattern, script, re.IGNORECASE) for pattern in patterns) for script in self.scripts)

    def says(self, pattern: str) -> bool:
        """In the words that a person sees, or in a script that puts them in."""
        return re.search(pattern, self.words, re.IGNORECASE) is not None or self.runs(pattern)

    def loads(self, pattern: str) -> bool:
        """A script of that address, loaded by an element or by another script."""
        if any(re.search(pattern, source, re.IGNORECASE) for source in self.sources):
            return True
        return self.runs(rf"""["'`](?:(?:https?:)?//{_ADDRESS}(?:{pattern})|{_ADDRESS}(?:{pattern}){_ADDRESS}\.js)""")

    def has_id(self, pattern: str) -> bool:
        """An element of that id, in the page or put in by a script."""
        if any(re.fullmatch(pattern, name, re.IGNORECASE) for name in self.ids):
            return True
        return self.runs(rf"""\bid["'`]?\s*[=:,]\s*["'`]?(?:{pattern})(?![\w\-])""")


@dataclass(frozen=True, slots=True)
class PageRow:
    name: str
    holds: Callable[[Page, Head], bool]
    source: str


_BAR_IDS = r"(?:nocaptcha|nc_1|(?:h5_)?captcha-element|baxia|waf_nc_(?:h5_)?block)[\w\-]*"
"""Where the slider stands: nocaptcha of old, captcha-element since 2026, waf_nc_block over a page's own content."""


def _has_captcha(page: Page) -> bool:
    named = "verification" in page.titles or page.runs("_waf_is_mobile|aliyuncaptcha")
    return named or page.loads(r"baxia|awsc|captcha|g\.alicdn\.com")


def _waf_meta(page: Page, _: Head) -> bool:
    found = sum(name.lower().startswith("aliyun_waf_") for name in page.metas)
    if found != 1:
        return found > 1
    return len(page.words) < 40 or page.has_id(rf"{_BAR_IDS}|aliyuncaptcha[\w\-]*|renderData") or _has_captcha(page)


def _captcha_element(page: Page, _: Head) -> bool:
    return page.has_id(r"(?:h5_)?captcha-element|aliyuncaptcha[\w\-]*") and _has_captcha(page)


def _verification(page: Page, _: Head) -> bool:
    return "verification" in page.titles and page.runs("_waf_is_mobile|aliyuncaptcha|captcha-element")


def _x5sec(page: Page, _: Head) -> bool:
    mark = _PUNISH.pattern
    acts = r"location|_config_|x5referer|x5step|x5secdata|[\"']action[\"']\s*:\s*[\"']captcha"
    led = any("_____tmd_____/" in link or _PUNISH.search(link) for link in (*page.links, *page.sources))
    led = led or any(page.runs(rf"[\"']{re.escape(name)}[\"']", r"\.click\(\)") for name in page.anchors)
    acting = page.runs("_config_", r"\baction[\"']?\s*[:=]") and (page.flagged or page.loads("punish"))
    return page.runs(mark, acts) or led or acting


def _interception(page: Page, _: Head) -> bool:
    titled = not page.titles.isdisjoint(("captcha interception", "验证码拦截", "滑动验证页面"))
    acts = page.runs("_config_|x5sec|punish|captcha|cf_app_waf") or any("cf_app_waf" in area.lower() for area in page.areas)
    return titled and (acts or page.loads("punish|awsc|baxia"))


def _slider(page: Page, _: Head) -> bool:
    bar = page.has_id(_BAR_IDS) or page.runs(r"nc_token|x5sec|_____tmd_____|punish|noCaptcha|cf_app_waf")
    return bar and page.loads(r"baxia|awsc|nc\.js|um\.js")


def _slider_words(page: Page, _: Head) -> bool:
    asks = page.says(r"please slide to verify|请(?:按住|拖动|向右|滑动)滑块|拖动下方滑块")
    signed = r"trace\s?id|access verification|访问验证|非机器人|not a robot"
    return asks and (page.says(signed) or any(re.search(signed, title) for title in page.titles))


def _cookie(page: Page, _: Head) -> bool:
    return page.runs(r"acw_sc__v\d") and page.runs(r"\barg1\s*=\s*['\"]\w")


def _check(page: Page, _: Head) -> bool:
    return page.runs(r"alicfw_gfver") and (page.onload.startswith("check(") or page.runs(r"document\.cookie"))


_BLOCKED = (
    r"your request has been blocked as it may cause potential threats to the server['’]s security"
    r"|您访问的\s?url\s?有可能对网站造成(?:安全)+威胁，您的访问被阻断"
)
_BLOCK_IDS = ("block_message", "block_url_tips", "block_time_tips", "block_traceid_tips")


def _block(page: Page, head: Head) -> bool:
    """Its words stand in its script, so a page that is cut before them is known by the places that they fill."""
    places = sum(page.has_id(name) for name in _BLOCK_IDS) > 1
    signed = (
        places
        or any("traceid" in area.lower() for area in page.areas)
        or any("errors.aliyun.com" in text for text in (*page.styles, *page.links))
        or page.loads(r"errors\.aliyun\.com")
        or "tengine" in head.get("server").lower()
    )
    named = head.status == 405 or not page.titles.isdisjoint(("405", "403"))
    return named and ((page.says(_BLOCKED) and (signed or head.status == 405)) or places)


ROWS = (
    PageRow("aliyun-waf", _waf_meta, "FreeQwenApi#69, qwengate#82"),
    PageRow("captcha-element", _captcha_element, "Rfym21/Qwen2API detectWafChallenge"),
    PageRow("verification", _verification, "Rfym21/Qwen2API detectWafChallenge"),
    PageRow("x5sec", _x5sec, "AppsGanin/ai-free-vscode#11; pages of taobao, youku and lazada that deny instead of asking"),
    PageRow("interception", _interception, "Aliyun x5sec, its titles; chatglm.cn, its script in hidden textareas"),
    PageRow("slider", _slider, "FreeQwenApi#69: baxia, awsc.js"),
    PageRow("slider-words", _slider_words, "QwenLM/Qwen3#1206"),
    PageRow("acw_sc__v2", _cookie, "public clients of Aliyun sites"),
    PageRow("alicfw", _check, "public clients of Aliyun sites"),
    PageRow("block-405", _block, "izaart95-jpg/GLM-Free-API#20, ZyphrZero/z.ai2api_python#63"),
)


def is_page(data: bytes) -> bool:
    return data[:64].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<"


def page_row(head: Head, data: bytes) -> str | None:
    """Id of the row of a challenge page, also of one that was cut behind its markers; None for every other page."""
    page = read(data[:READ_BYTES].decode("utf-8", "replace"))
    if len(page.words) > SHELL_CHARACTERS:
        return None
    return next((f"page:{row.name}" for row in ROWS if row.holds(page, head)), None)


def read(text: str) -> Page:
    """The elements of a page, in one pass."""
    page, words = Page(), []
    for name, attributes, inner, before in _elements(text):
        words.append(before)
        if not name:
            page.flagged = page.flagged or FLAG in inner
            continue
        found = _ATTRIBUTE.finditer(attributes[:ATTRIBUTE_CHARACTERS])
        _take(page, name, {one[1].lower(): one[2] or one[3] or one[4] or "" for one in found}, inner)
        if name in _QUOTED:
            words.append(inner)
    shown = _ENDLESS_REFERENCE.sub("\ufffd", " ".join(words))  # html.unescape raises at more than 4,300 digits
    page.words = " ".join(html.unescape(shown).split())
    return page


def _take(page: Page, name: str, values: dict[str, str], inner: str) -> None:
    page.ids.add(values.get("id", ""))
    page.links.extend(values[key] for key in _LEADS.get(name, ()) if key in values)
    if name == "script":
        if "src" in values:
            page.sources.append(values["src"])
        if inner and values.get("type", "").partition(";")[0].strip().lower() in _RUNNING:
            page.scripts.append(_ESCAPE.sub(lambda one: one[3] or chr(int(one[1] or one[2], 16)), inner))
    elif name == "title":
        page.title = page.title or inner.strip()
    elif name == "body":
        page.onload = values.get("onload", "")
    elif name == "a" and "id" in values and len(page.anchors) < ANCHORS and _PUNISH.search(values.get("href", "")):
        page.anchors.append(values["id"])
    elif name == "meta":
        page.metas.add(values.get("name", ""))
    elif name in ("textarea", "style"):
        (page.areas if name == "textarea" else page.styles).append(inner)


def _elements(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Name, attributes, inner text of raw elements, and the words before; an element that was cut comes as far as it goes."""
    low, at = text.translate(_LOWER), 0
    while tag := _TAG.search(text, at):
        name, before = tag[1].lower(), text[at : tag.start()]
        if name == "!--":
            end = text.find("-->", tag.end())
            end = end if end >= 0 else len(text)
            at = end + 3
            yield "", "", text[tag.end() : min(end, tag.end() + COMMENT_CHARACTERS)], before
            continue
        close = text.find(">", tag.end())
        close = close if close >= 0 else len(text)
        inner, at = "", close + 1
        if name in _RAW:
            end = low.find(f"</{name}", at)
            end = end if end >= 0 else len(text)
            inner, at = text[at:end], end
        yield name, text[tag.end() : close], inner, before
    yield "", "", "", text[at:]
