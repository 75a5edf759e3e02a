"""Inputs that grow: a beginning, something said again and again, an end."""

from __future__ import annotations

from collections.abc import Callable

Shape = Callable[[int], bytes]
"""Gives about so many bytes."""

HELLO = b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n'
_ERROR = b'{"error":{"code":"x","message":"'


def again(unit: bytes, start: bytes = b"", end: bytes = b"") -> Shape:
    return lambda size: start + unit * max(1, size // len(unit)) + end


def numbered(text: str, start: bytes = b"", end: bytes = b"") -> Shape:
    def shape(size: int) -> bytes:
        parts = (text.format(number).encode() for number in range(max(1, size // len(text))))
        return start + b"".join(parts) + end

    return shape


def nested(opening: bytes, closing: bytes) -> Shape:
    return lambda size: opening * (size // 2 // len(opening)) + closing * (size // 2 // len(opening))


STREAMS: dict[str, Shape] = {
    "nothing but line feeds": again(b"\n"),
    "nothing but carriage returns": again(b"\r"),
    "nothing but line ends": again(b"\r\n"),
    "blanks": again(b" "),
    "blanks behind a mark": again(b" ", b"\xef\xbb\xbf"),
    "byte order marks": again(b"\xef\xbb\xbf"),
    "comment lines": again(b": a\n"),
    "comment lines with returns": again(b":a\r"),
    "comments": again(b": keep-alive\n\n"),
    "a comment line without end": again(b"x", b":"),
    "a comment line without end behind another": again(b"x", b": a\n:"),
    "an id of digits": again(b"1", b"id: "),
    "status comments": again(b":HTTP_STATUS/429\n"),
    "a status of digits": again(b"4", b":HTTP_STATUS/"),
    "data lines": again(b"data: x\n"),
    "empty data lines": again(b"data:\n"),
    "a data line without end": again(b"x", b"data: "),
    "an answer frame without end": again(b"x", b'data: {"id":"'),
    "event lines": again(b"event: a\n"),
    "unknown fields": numbered("f{}: a\n"),
    "answers": again(HELLO),
    "answers that speak of errors": again(HELLO.replace(b"hello", b'\\"error\\": \\"ret\\"')),
    "empty frames": again(b"data: {}\n\n"),
    "pings": again(b"event: ping\ndata: {}\n\n"),
    "usage": again(b'data: {"usage":{"input_tokens":3}}\n\n'),
    "quotas": again(b'data: {"error":{"code":"insufficient_quota"}}\n\n'),
    "a page with blank lines": again(b"var a=1;\n\n", b"<!doctype html><script>"),
    "a page with blank lines and returns": again(b"var a=1;\r\n\r\n", b"<!doctype html><script>"),
    "pages and answers": again(b"<!doctype html><p>\n\n" + HELLO),
    "lines of JSON": again(b'{"choices":[{"delta":{"content":"a"}}]}\n'),
    "lines of keep-alive": again(b'{"type":"ping"}\n'),
    "lines of brackets": again(b"{\n"),
    "no text": again(b"\xff"),
    "zeros": again(b"\0"),
}
DOCUMENTS: dict[str, Shape] = {
    "open arrays": again(b"["),
    "open objects": again(b'{"a":'),
    "nested arrays": nested(b"[", b"]"),
    "nested objects": nested(b'{"data":', b"}"),
    "nested errors": nested(b'{"error":', b"}"),
    "closed brackets": again(b"]", b"["),
    "quotes": again(b'"', b"["),
    "strings": again(b'"a",', b"["),
    "backslashes": again(b"\\", b'{"a":"'),
    "escapes": again(b"\\u00e9", b'{"a":"', b'"}'),
    "surrogates": again(b"\\ud800", b'{"a":"', b'"}'),
    "half escapes": again(b"\\u", b'{"a":"'),
    "digits": again(b"1", b'{"a":', b"}"),
    "digits of a wait": again(b"1", b'{"error":{"code":"1302","retry_after":', b"}}"),
    "digits of usage": again(b"1", b'{"choices":[{}],"usage":{"prompt_tokens":', b"}}"),
    "fractions": again(b"1", b'{"a":0.', b"}"),
    "exponents": again(b"1", b'{"a":1e', b"}"),
    "keys": numbered('"k{}":1,', b"{", b'"z":1}'),
    "one key": again(b'"code":1,', b"{", b'"z":1}'),
    "keys in two spellings": again(b'"Code":1,"code":2,', b"{", b'"z":1}'),
    "choices": again(b"{},", b'{"choices":[', b"{}]}"),
    "choices that end": again(b'{"finish_reason":"sensitive"},', b'{"choices":[', b"{}]}"),
    "ret": again(b'"SUCCESS::x",', b'{"ret":[', b'"x"]}'),
    "commas": again(b",", b"["),
    "colons": again(b":", b'{"a"'),
}
MESSAGES: dict[str, Shape] = {
    name: again(unit, _ERROR + start, end + b'"}}')
    for name, (start, unit, end) in {
        "blanks": (b"", b" ", b"x"),
        "brackets": (b"[1302][", b"][", b""),
        "blanks between brackets": (b"[1302][x][", b" ", b"["),
        "quotes": (b"Error: {", b"'", b""),
        "escaped quotes": (b"Error: {'", b"\\\\'", b""),
        "double quotes": (b"Error: {", b'\\"', b""),
        "wrappers": (b"", b"error: ", b""),
        "wrapped errors": (b"", b"error.", b""),
        "braces": (b"Error: ", b'{\\"error\\":', b""),
        "statuses": (b"", b"<400> A.", b""),
        "digits": (b"Prompt contains ", b"1", b" tokens"),
        "thousands": (b"Prompt contains ", b"1,", b" tokens"),
        "waits": (b"", b"wait 1", b""),
        "a wait of blanks": (b"wait", b" ", b""),
        "resets": (b"", b"reset at 2026-01-01", b""),
        "credentials": (b"", b"eyJaaaaaa.", b""),
        "links": (b"", b"/punish?", b""),
        "tokens": (b"", b"x5secdata=", b""),
        "Chinese": ("请".encode(), "错误".encode(), b""),
    }.items()
}
PAGES: dict[str, Shape] = {
    name: again(unit, b"<!doctype html>" + start, end)
    for name, (start, unit, end) in {
        "brackets": (b"", b"<", b""),
        "tags": (b"", b"<a>", b""),
        "a tag without end": (b"<a", b"b", b""),
        "tags without end": (b"", b"<a ", b""),
        "comments": (b"", b"<!---->", b""),
        "comments without end": (b"", b"<!--", b""),
        "scripts": (b"", b"<script>a</script>", b""),
        "scripts without end": (b"", b"<script>", b""),
        "ends without a script": (b"", b"</script>", b""),
        "quoted text": (b"", b"<pre>a</pre>", b""),
        "text areas": (b"", b"<textarea>a</textarea>", b""),
        "styles": (b"", b"<style>a</style>", b""),
        "attributes": (b"<a ", b"b=c ", b">"),
        "attributes without values": (b"<a ", b"b ", b">"),
        "attributes of blanks": (b"<a b", b" ", b">"),
        "quotes": (b"<a b=", b'"', b">"),
        "ids": (b"", b"<a id=b>", b""),
        "metas": (b"", b"<meta name=aliyun_waf_>", b""),
        "frames": (b"", b"<iframe src=/punish>", b""),
        "entities": (b"", b"&amp;", b""),
        "ampersands": (b"", b"&", b""),
        "a character of digits": (b"&#", b"1", b";"),
        "a character of hexadecimal digits": (b"&#x", b"f", b";"),
        "a name of letters": (b"&", b"a", b";"),
        "escapes in a script": (b"<script>", b"\\x41", b"</script>"),
        "blanks in a script": (b"<script>arg1", b" ", b"</script>"),
        "titles in a script": (b"<script>", b"document.title = ", b"</script>"),
        "titles": (b"", b"<title>a</title>", b""),
    }.items()
}
REQUESTS: dict[str, Shape] = {
    "messages": again(b'{"role":"user","content":"a"},', b'{"messages":[', b'{"role":"user"}]}'),
    "system messages": again(b'{"role":"system","content":"a"},', b'{"messages":[', b'{"role":"user"}]}'),
    "digits in a system message": again(b"1", b'{"messages":[{"role":"system","n":', b"}]}"),
    "digits of a budget": again(b"1", b'{"max_tokens":', b"}"),
    "cache marks": again(b'{"cache_control":{"type":"ephemeral"}},', b'{"system":[', b"{}]}"),
    "cache marks of strings": again(b'"a":"b",', b'{"system":[{"cache_control":{', b'"z":1}}]}'),
    "cache marks in one another": nested(b'{"cache_control":', b"}"),
    "words that name cache marks": again(b'"cache_control",', b'{"system":[', b'"a"]}'),
    "system blocks": again(b'{"type":"text","text":"a"},', b'{"system":[', b"{}]}"),
    "tools": again(b'{"name":"a"},', b'{"tools":[', b"{}]}"),
    "blanks for tools": again(b" ", b'{"tools":[', b"]}"),
    "digits in tools": again(b"1", b'{"tools":[{"a":', b"}]}"),
    "a text": again(b"a ", b'{"messages":[{"role":"user","content":"', b'"}]}'),
    "surrogates": again(b"\\ud800", b'{"messages":[{"role":"user","content":"', b'"}]}'),
    "data": again(b"QUJD", b'{"messages":[{"content":[{"type":"image","source":{"data":"', b'"}}]}]}'),
    "a data URL": again(b";a=b", b'{"messages":[{"content":[{"type":"image_url","image_url":"data:a/b', b'"}]}]}'),
    "a JPEG of markers": again(b"////", b'{"messages":[{"content":[{"type":"image","data":"/9j/', b'"}]}]}'),
    "images": again(b'{"type":"image","url":"a"},', b'{"messages":[{"content":[', b"{}]}]}"),
    "a session": again(b"a", b'{"metadata":{"user_id":"', b'"}}'),
    "web messages": again(b'{"role":"user","content":"a","files":[]},', b'{"messages":[', b"{}]}"),
    "native messages": again(b'{"role":"user","content":"a"},', b'{"input":{"messages":[', b"{}]}}"),
}
TEXTS: dict[str, Shape] = {
    "tools": numbered('data: {{"type":"content_block_start","index":{},"content_block":{{"name":"t"}}}}\n\n'),
    "calls": numbered('data: {{"choices":[{{"delta":{{"tool_calls":[{{"index":{},"function":{{"name":"t"}}}}]}}}}]}}\n\n'),
    "native pieces": again(b'data: {"output":{"text":"a"}}\n\n'),
    "native pieces that differ": numbered('data: {{"output":{{"text":"{}"}}}}\n\n'),
    "blocks": again(b'{"name":"t"},', b'{"type":"message","content":[', b"{}]}"),
}
CONFIGS: dict[str, Shape] = {
    "upstreams": numbered("  u{0}: {{hosts: [h{0}.test], family: zai}}\n", b"upstreams:\n"),
    "windows": numbered('  "m{}": 1000\n', b"windows:\n"),
    "keys": numbered("k{}: 1\n"),
    "digits": again(b"1", b"breaker: {strikes: ", b"}"),
    "hexadecimal digits": again(b"f", b"breaker: {strikes: 0x", b"}"),
    "sixties": again(b":1", b"breaker: {strikes: 1", b"}"),
    "open lists": lambda size: b"a: " + b"[" * (size // 40),
    "dashes": again(b"- "),
    "anchors": numbered("a{0}: &a{0} x\n"),
    "comments": again(b"# a\n"),
    "quotes": again(b"'"),
    "hosts": numbered("h{}.test, ", b"upstreams: {u: {family: zai, hosts: [", b"z.test]}}"),
}
STATES: dict[str, Shape] = {
    "windows": numbered('"zai|m{}|0":{{"tokens":1000}},', b'{"version":1,"windows":{', b'"z":{}}}'),
    "digits": again(b"1", b'{"version":', b"}"),
    "arrays": again(b"["),
    "keys": numbered('"k{}":1,', b'{"version":1,', b'"z":1}'),
}
