"""`gpuaas-platform doctor`: check an installation, with one next step for each problem. `main` calls it.

`facts` reads, `checks` judges; nothing is changed."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict

import msgspec

from gpuaas_platform.commands.doctor import checks, facts
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.server import Listen

_EXAMPLES = """examples:
  gpuaas-platform doctor --data ./cloud
      files, disk, store, keys, custody, certificate, audit, limits, clock, port; exit 1 if a check fails
  gpuaas-platform doctor --data ./cloud --listen 10.0.0.5:7443 -o json
      the same for a program, with the address that the server will use
"""
_WIDTH = max(map(len, checks.QUESTIONS))


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    style, text = argparse.RawDescriptionHelpFormatter, "check this installation; changes nothing"
    parser = commands.add_parser("doctor", help=text, epilog=_EXAMPLES, formatter_class=style)
    parser.add_argument("--listen", action="append", help="HOST:PORT, repeatable; default 127.0.0.1:7070")
    parser.add_argument("-o", dest="output", choices=("table", "json"), default="table", help="form of the result")
    return parser


def run(settings: Settings, listens: Sequence[Listen], output: str) -> int:
    result = checks.judge(asyncio.run(facts.gather(settings, listens)))
    if output == "json":
        document = msgspec.json.encode({"checks": [asdict(check) for check in result]})
        sys.stdout.write(msgspec.json.format(document, indent=2).decode() + "\n")
    else:
        sys.stdout.write("".join(_lines(check) for check in result))
    return 1 if any(check.state == "fail" for check in result) else 0


def _lines(check: checks.Check) -> str:
    first = f"{check.state:<7}  {check.name:<{_WIDTH}}  {check.reason}\n"
    return first + (f"{'':<7}  {'':<{_WIDTH}}  next: {check.fix}\n" if check.fix else "")
