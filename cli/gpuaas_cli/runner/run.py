"""Run one command and turn its end into an exit code and a line for people. Called by `main`."""

import os
import sys
from collections.abc import Callable

import typer
from gpuaas_contract.errors import ApiError
from gpuaas_sdk.outcomes import NoAnswer

from gpuaas_cli import failures
from gpuaas_cli.flags import HELP, Flags

Returning = Callable[..., int | None]


def command_group() -> typer.Typer:
    """All groups and single commands look the same."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog=HELP,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def command(app: typer.Typer, name: str | None = None, *, help: str | None = None) -> Callable[[Returning], Returning]:
    """Register a command; its help, the docstring if none is given, ends with the flags all commands share."""
    return app.command(name, help=help, epilog=HELP)


def flags_of(context: typer.Context) -> Flags:
    flags = context.obj
    if not isinstance(flags, Flags):
        raise TypeError("the command was started without its flags")
    return flags


def run(app: typer.Typer, name: str, words: list[str], flags: Flags) -> int:
    as_json = flags.output == "json"
    try:
        return app(words, prog_name=name, obj=flags, standalone_mode=False) or 0
    except typer.Abort:
        return failures.DETACHED
    except typer.TyperException as error:
        text = getattr(error, "format_message", error.__str__)()
        reached = getattr(error, "ctx", None)
        failure = failures.usage(text or "a word is missing", f"{reached.command_path if reached else name} --help")
    except (failures.Failure, ApiError, NoAnswer) as error:
        failure = failures.as_failure(error)
    except BrokenPipeError:
        # Whoever read us has enough; Python must not complain about it again while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return failures.OK
    print(failures.text(failure, as_json=as_json), file=sys.stderr)
    return failure.exit_code
