"""`breakwater env`: the variables as lines for a shell (sh, bash, zsh, fish)."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from breakwater import asking, authorities
from breakwater.cli import Parser, common
from breakwater.places import HOST, confdir
from breakwater.variables import variables


def main(words: Sequence[str]) -> int:
    parser = Parser(prog="breakwater env", description='Lines for a shell: eval "$(breakwater env)"')
    common(parser)
    asked = parser.parse_args(list(words))
    bundle = authorities.bundle(confdir(asked.sets).absolute(), os.environ)
    for name, value in variables(asked.port, bundle, os.environ).items():
        print(f"export {name}={shlex.quote(value)}")
    found = asking.who(asked.port)
    if found.kind is not asking.Kind.BREAKWATER:
        print(f"breakwater: {HOST}:{asked.port} has {found.words} yet; breakwater start", file=sys.stderr)
    return 0
