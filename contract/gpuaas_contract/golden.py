"""Golden files: documents that are made from the contract. `--check` compares the files, `--write` updates them."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec


def as_json(document: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=2).decode() + "\n"


def main(what: str, made: Callable[[Path], str]) -> int:
    """Run the command line of a module that makes documents. `made` returns the content of a file; `what` names its
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
