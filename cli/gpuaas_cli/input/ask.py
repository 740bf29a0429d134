"""Ask the person at the terminal, or read what a script gives on stdin. A secret is never an argument."""

import getpass
import sys

from gpuaas_cli import failures, output
from gpuaas_cli.flags import Flags
from gpuaas_cli.input import files


def name(flags: Flags, command: str) -> str:
    if not is_possible(flags):
        raise failures.usage("No name was given", f"{command} --name NAME")
    return input("Name: ").strip()


def line(flags: Flags, what: str, command: str) -> str:
    """One line of stdin, typed or given."""
    if sys.stdin.isatty() and flags.no_input:
        raise failures.usage(f"{what}: it is not on stdin, and --no-input forbids asking", command)
    print(f"{what}: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def secret(flags: Flags, what: str, command: str) -> str:
    """One line of stdin, or what is typed without being shown."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    if flags.no_input:
        raise failures.usage(f"{what}: it is not on stdin, and --no-input forbids asking", f"{command} < FILE")
    return getpass.getpass(f"{what}: ")


def document(flags: Flags, path: str, what: str, command: str) -> str:
    """What a file holds; for `-` all of stdin, which a person ends with Ctrl-D."""
    if path == "-" and sys.stdin.isatty():
        if flags.no_input:
            raise failures.usage(f"{what} is not on stdin, and --no-input forbids asking", command)
        output.talk(f"{what}, then Ctrl-D:")
    return files.text(path)


def new_password(flags: Flags, owner: str, command: str) -> str:
    """Typed twice at a terminal, which does not show it."""
    first = secret(flags, f"Password of {owner}", command)
    if not first:
        raise failures.usage("The password is empty", f"{command} < FILE")
    if sys.stdin.isatty() and getpass.getpass("Again: ") != first:
        raise failures.Failure("The two passwords differ; nothing was changed", fix=command, code="mismatch")
    return first


def is_possible(flags: Flags) -> bool:
    """Whether a person is at the terminal to answer."""
    return sys.stdin.isatty() and not flags.no_input


def confirm(consequence: str, *, name: str, what: str, again: str) -> None:
    """Have a person type the name of what the command is about to change; only where `is_possible`."""
    output.talk(consequence)
    print(f"Type the name of the {what} to continue: ", end="", file=sys.stderr, flush=True)
    if input().strip() != name:
        raise failures.Failure("That is another name; nothing was changed", fix=again)
