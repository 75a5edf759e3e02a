"""So many calls at once by a Python SDK with its defaults: `python sdk_calls.py WIRE BASE COUNT HEADERS` prints how many were answered.

It runs in an environment of its own, where nothing of ours can be imported.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any


async def _anthropic(base: str, headers: dict[str, str], number: int) -> bool:
    from anthropic import AsyncAnthropic  # noqa: PLC0415 - only the SDK that is asked for

    client: Any = AsyncAnthropic(base_url=base, auth_token="sk-bench", default_headers=headers)
    messages = [{"role": "user", "content": f"call {number}"}]
    said = await client.messages.create(model="glm-4.6", max_tokens=4096, messages=messages)
    return bool(said.content)


async def _openai(base: str, headers: dict[str, str], number: int) -> bool:
    from openai import AsyncOpenAI  # noqa: PLC0415 - only the SDK that is asked for

    client: Any = AsyncOpenAI(base_url=f"{base}/v1", api_key="sk-bench", default_headers=headers)
    messages = [{"role": "user", "content": f"call {number}"}]
    said = await client.chat.completions.create(model="glm-4.6", messages=messages)
    return bool(said.choices and said.choices[0].message.content)


async def main(wire: str, base: str, count: str, headers: str) -> None:
    call = {"anthropic": _anthropic, "openai": _openai}[wire]
    calls = (call(base, json.loads(headers), number) for number in range(int(count)))
    results = await asyncio.gather(*calls, return_exceptions=True)
    print(sum(result is True for result in results))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
