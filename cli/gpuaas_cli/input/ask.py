"""Ask the user at the terminal, or read the input of a script from stdin. A secret is never an argument."""

import getpass
import sys

from gpuaas_cli import failures, output, terminal
from gpuaas_cli.flags import Flags
from gpuaas_cli.input import files


def name(flags: Flags, command: str) -> str:
    if not is_possible(flags):
        raise failures.usage("No name was given", f"{command} --name NAME")
    return input("Name: ").strip()


def line(flags: Flags, what: str, command: str) -> str:
    """Return one line of stdin, from a terminal or a pipe."""
    if sys.stdin.isatty() and flags.no_input:
        raise failures.usage(f"{what}: it is not on stdin, and --no-input forbids asking", command)
    terminal.talk(f"{what}: ", end="")
    return sys.stdin.readline().strip()


def secret(flags: Flags, what: str, command: str) -> str:
    """Return one line of stdin; on a terminal it is not displayed."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    if flags.no_input:
        raise failures.usage(f"{what}: it is not on stdin, and --no-input forbids asking", f"{command} < FILE")
    return getpass.getpass(f"{what}: ")


def document(flags: Flags, path: str, what: str, command: str) -> str:
    """Return the content of a file; for `-` all of stdin, which a user ends with Ctrl-D."""
    if path == "-" and sys.stdin.isatty():
        if flags.no_input:
            raise failures.usage(f"{what} is not on stdin, and --no-input forbids asking", command)
        output.talk(f"{what}, then Ctrl-D:")
    return files.text(path)


def new_password(flags: Flags, owner: str, command: str) -> str:
    """Return a new password. On a terminal it is typed twice and not displayed."""
    first = secret(flags, f"Password of {owner}", command)
    if not first:
        raise failures.usage("The password is empty", f"{command} < FILE")
    if sys.stdin.isatty() and getpass.getpass("Again: ") != first:
        raise failures.Failure("The two passwords differ; nothing was changed", fix=command, code="mismatch")
    return first


def is_possible(flags: Flags) -> bool:
    """Return whether stdin is a terminal and questions are allowed."""
    return sys.stdin.isatty() and not flags.no_input


def require_answer(flags: Flags, again: str) -> None:
    """Refuse a command that must be confirmed if there is no user to answer. Scripts add --yes."""
    if not is_possible(flags):
        raise failures.usage("The command must be confirmed, but there is no terminal", f"{again} --yes")


def confirm(consequence: str, *, name: str, what: str, again: str) -> None:
    """Ask the user to type the name of the resource that will change; raise if it differs. Needs `is_possible`."""
    output.talk(consequence)
    terminal.talk(f"Type the name of the {what} to continue: ", end="")
    if input().strip() != name:
        raise failures.Failure("That is another name; nothing was changed", fix=again)
