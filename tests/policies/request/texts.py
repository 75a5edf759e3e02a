"""Texts that nobody wrote for a token estimate: from the standard library, installed packages, real commands, and samples."""

from __future__ import annotations

import importlib.metadata
import json
import marshal
import pathlib
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Callable, Iterator

TEXTS = pathlib.Path(__file__).parents[2] / "corpus" / "texts"
STDLIB = pathlib.Path(sysconfig.get_paths()["stdlib"])


def metadata(*names: str) -> str:
    return "\n".join((importlib.metadata.distribution(name).read_text("METADATA") or "") for name in names)


def licence() -> str:
    found = [path for name in ("hypothesis", "mitmproxy", "numpy", "pytest", "certifi") for path in files(name)]
    return "\n".join(path.read_text("utf-8", "replace") for path in found)


def files(name: str) -> Iterator[pathlib.Path]:
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if "LICENSE" in file.name.upper():
            yield pathlib.Path(str(file.locate()))


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def hex_dump() -> str:
    data = marshal.dumps(compile(stdlib("textwrap.py"), "textwrap.py", "exec"))[:2400]
    rows = [data[at : at + 16] for at in range(0, len(data), 16)]
    return "\n".join(
        f"{16 * number:08x}  {row.hex(' ')}  |{''.join(chr(b) if 32 <= b < 127 else '.' for b in row)}|"
        for number, row in enumerate(rows)
    )


def bare_hex() -> str:
    return zlib.compress(stdlib("argparse.py").encode())[:4000].hex()


def listing() -> str:
    return "\n".join(
        f"-rw-r--r-- 1 root root {path.stat().st_size:8d} Jan 12 10:{index % 60:02d} {path}"
        for index, path in enumerate(sorted(STDLIB.glob("*.py")))
    )


def mixed() -> str:
    pieces = [
        sample_text("chinese.txt"),
        stdlib("textwrap.py"),
        sample_text("russian.txt"),
        hex_dump(),
        licence(),
        listing(),
    ]
    return "\n".join(piece[:1500] for piece in pieces)


def sample_text(name: str) -> str:
    return (TEXTS / name).read_text("utf-8")


def stdlib(name: str) -> str:
    return (STDLIB / name).read_text("utf-8")


def variables() -> dict[str, object]:
    return {key: value for key, value in sysconfig.get_config_vars().items() if isinstance(value, str | int)}


SAMPLES: dict[str, Callable[[], str]] = {
    "english, licences": licence,
    "english, documentation": lambda: metadata("pytest", "mypy", "hypothesis"),
    "english, doc strings": lambda: run("-c", "import pydoc, argparse, logging; print(pydoc.render_doc(logging))"),
    "chinese": lambda: sample_text("chinese.txt"),
    "russian": lambda: sample_text("russian.txt"),
    "python, argparse": lambda: stdlib("argparse.py"),
    "python, dataclasses": lambda: stdlib("dataclasses.py"),
    "python, asyncio streams": lambda: stdlib("asyncio/streams.py"),
    "go": lambda: sample_text("golang.txt"),
    "typescript": lambda: sample_text("typescript.txt"),
    "yaml": lambda: sample_text("yaml.txt"),
    "json, indented": lambda: json.dumps(variables(), indent=2),
    "json, compact": lambda: json.dumps(variables(), separators=(",", ":")),
    "json, corpus lines": lambda: (TEXTS.parent / "requests.jsonl").read_text("utf-8"),
    "hex dump": hex_dump,
    "hex, bare": bare_hex,
    "log, packages": lambda: sample_text("package.log.txt"),
    "log, access": lambda: sample_text("access.log.txt"),
    "log, import times": lambda: run("-X", "importtime", "-c", "import asyncio, http.client, sqlite3"),
    "tool output, listing": listing,
    "tool output, disassembly": lambda: run("-m", "dis", str(STDLIB / "bisect.py")),
    "tool output, tokens": lambda: run("-m", "tokenize", str(STDLIB / "bisect.py")),
    "mixed": mixed,
}
