"""Context overflows: what a server says when a request is too long for the window, and which number is the window.

Read only in error envelopes, and only from the beginning of a message or behind wrapper words such as
``litellm.BadRequestError: OpenAIException - ``. A wrong number is worse than none: rate limits, output caps and
byte limits that read alike match no row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policies.answer.shapes import text_of

SMALLEST = 1000
"""Tokens. No model served has a smaller window; a smaller number is something else."""
CODES = frozenset({
    "context_length_exceeded", "exceed_context_size_error", "model_max_prompt_tokens_exceeded", "contextlengthexceeded",
    "tokenlimit", "context_window_exceeded", "contextwindowexceedederror", "model_context_window_exceeded",
})  # fmt: skip
"""Codes and types, in lower case, that mean an overflow on every wire."""

_N = r"\d[\d,_'\u00a0\u202f]*"
_W = r"(?P<window>\d{1,3}(?:[,_'\u00a0\u202f]\d{3})+|\d{1,9})(?!\d)"


@dataclass(frozen=True, slots=True)
class OverflowRow:
    name: str
    text: str
    """Regular expression that the message begins with; ``{n}`` any number, ``{w}`` the window."""
    source: str

    @property
    def pattern(self) -> re.Pattern[str]:
        body = self.text.replace("'", "['’]").replace("{n}", _N).replace("{w}", _W)
        return re.compile(body, re.IGNORECASE)


ROWS = (
    OverflowRow("dashscope-range", r"Range of input length should be \[\s*{n}\s*,\s*{w}\s*\]", "help.aliyun.com error-code"),
    OverflowRow("dashscope-long", r"Total message token length exceeds? (?:the )?model limit \({w} tokens\)",
        "help.aliyun.com qwen-long"),
    OverflowRow("glm", r"Prompt (?:exceeds max length|超长|too long[\s.]*(?:\(|$))", "docs.z.ai api-code 1261"),
    OverflowRow("llama.cpp", r"(?:the )?request(?: \({n} tokens\))? exceeds the available context size(?: \({w} tokens\))?",
        "llama.cpp server"),
    OverflowRow("llama.cpp-short", r"exceed_context_size_error \((?:{n} / )?{n} > {w}\)", "llama.cpp server, relayed"),
    OverflowRow("openai", r"This (?:model|endpoint)'s maximum context length is {w} tokens", "OpenAI, vLLM, OpenRouter"),
    OverflowRow("vllm",
        r"You passed {n} input tokens and requested {n} output tokens\. However, the model's context length is only {w} tokens",
        "vLLM"),
    OverflowRow("vllm-prompt",
        r"The (?:decoder |encoder )?prompt \((?:total )?length {n}\) is longer than the maximum model length of {w}", "vLLM"),
    OverflowRow("sglang", r"The input \({n} tokens\) is longer than the model's context length \({w} tokens\)", "SGLang"),
    OverflowRow("sglang-total", r"Requested token count exceeds the model's maximum context length of {w} tokens", "SGLang"),
    OverflowRow("openai-window", r"Your input exceeds the context window of this model", "OpenAI responses"),
    OverflowRow("openai-size", r"(?:[\w`]+ ){0,10}exceeds? the model's maximum context (?:size|length) of {w} tokens",
        "OpenAI"),
    OverflowRow("anthropic", r"prompt is too long(?:: {n} tokens > {w} maximum|[\s.]*(?:\(|$))", "Anthropic"),
    OverflowRow("anthropic-sum", r"input length and `?max_tokens`? exceed context limit: {n} \+ {n} > {w}", "Anthropic"),
    OverflowRow("bedrock", r"Input is too long for requested model", "Bedrock"),
    OverflowRow("gemini", r"The input token count(?: \({n}\))? exceeds the maximum number of tokens allowed(?: \({w}\))?",
        "Gemini"),
    OverflowRow("mistral",
        r"Prompt contains {n} tokens(?: and {n} draft tokens)?, too large for model with {w} maximum context length",
        "Mistral"),
    OverflowRow("xai", r"This model's maximum prompt length is {w} but the request contains {n} tokens", "xAI"),
    OverflowRow("groq", r"Please reduce the length of the messages or completion", "Groq"),
    OverflowRow("poolside", r"Input length {n} exceeds the maximum allowed input length of {w} tokens", "OpenRouter, Poolside"),
    OverflowRow("kimi", r"Your request exceeded model token limit: {w}", "Kimi"),
    OverflowRow("minimax", r"(?:invalid params,\s*)?context window exceeds limit", "MiniMax"),
    OverflowRow("copilot", r"prompt token count of {n} exceeds the limit of {w}", "Copilot"),
    OverflowRow("lm-studio", r"Trying to keep the first {n} tokens when context the overflows\. "
        r"However, the model is loaded with context length of only {w} tokens", "LM Studio"),
    OverflowRow("lm-studio-size", r"Context size has been exceeded", "LM Studio"),
    OverflowRow("lm-studio-keep", r"(?:[\w ]{0,60})tokens to keep from the initial prompt is greater than the context length",
        "LM Studio"),
    OverflowRow("ollama", r"prompt too long; exceeded max context length(?: by {n} tokens)?",
        "Ollama: the number is the excess"),
    OverflowRow("ds4", r"Prompt has {n} tokens, but the configured context size is {w} tokens", "DS4"),
    OverflowRow("omlx", r"Prompt too long: {n} tokens exceeds max context window of {w} tokens", "oMLX"),
    OverflowRow("gateway-limit", r"Request too long: {n} input tokens over the limit of {w}", "gateways"),
    OverflowRow("gateway-context", r"Context limit is {w} tokens; prompt={n}", "gateways"),
)  # fmt: skip
_COMPILED = tuple((row, row.pattern) for row in ROWS)

WRAPPER_CHARACTERS = 300
_WRAPPER = re.compile(
    r"\s*(?:<?\(?\d{3}\)?>?[\s:,\-]+"
    r"|\{\s*['\"]error['\"]\s*:\s*\{\s*['\"]message['\"]\s*:\s*['\"]"
    r"|[\u4e00-\u9fff]{1,20}\s*[:：]\s*"
    r"|(?:[\w.\-]+ ){0,3}?[\w.\-]*(?:error|exception|invalidparameter|bad request|badrequest|invalid request|invalid_request"
    r"|http|status|code)[\w.\-]*(?: \(?[\w.\-]+\)?){0,3}\s*(?::|-)\s+)",
    re.IGNORECASE,
)


def beginnings(words: str) -> Iterator[str]:
    """The message, then the message without its first wrapper, and so on."""
    words = words[:4096].strip().replace("\\u003c", "<").replace("\\u003e", ">")
    for _ in range(10):
        yield words
        wrapper = _WRAPPER.match(words[:WRAPPER_CHARACTERS])
        if wrapper is None:
            return
        words = words[wrapper.end() :].lstrip("'\"` ")


def row_of(words: str) -> tuple[OverflowRow, int | None] | None:
    """The row that a message begins with, and the window it states in tokens, if it states one."""
    for beginning in beginnings(words):
        for row, pattern in _COMPILED:
            if found := pattern.match(beginning):
                return row, _tokens(found.groupdict().get("window"))
    return None


def window_field(fields: tuple[Mapping[str, object], ...]) -> int | None:
    """``n_ctx`` of llama.cpp, in tokens, where an envelope carries it."""
    return next(filter(None, (_tokens(text_of(body.get("n_ctx"))) for body in fields)), None)


def _tokens(number: str | None) -> int | None:
    digits = re.sub(r"\D", "", number or "", flags=re.ASCII)
    return int(digits) if digits.isascii() and 0 < len(digits) <= 9 and int(digits) >= SMALLEST else None
