"""Documents made from the contract and kept in the repository: `--check` compares them, `--write` renews them."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec


def as_json(document: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=2).decode() + "\n"


def main(what: str, made: Callable[[Path], str]) -> int:
    """Run the command of a module that makes documents. `made` returns what a file should contain; `what` is its
    source."""
    parser = argparse.ArgumentParser(description=f"Documents made from {what}.")
    parser.add_argument("--check", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--write", type=Path, nargs="+", default=[], metavar="FILE")
    options = parser.parse_args()
    for path in options.write:
        path.write_text(made(path))
    stale = [path for path in options.check if path.read_text() != made(path)]
    for path in stale:
        sys.stderr.write(f"{path} does not match {what}. If the change is on purpose: make contract\n")
    return 1 if stale else 0
