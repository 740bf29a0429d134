"""Register commands, run one, and turn its end into an exit code and a line for people. Called by `main`."""

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import typer
from gpuaas_contract.errors import ApiError
from gpuaas_sdk.outcomes import NoAnswer

from gpuaas_cli import failures
from gpuaas_cli.flags import HELP, Flags
from gpuaas_cli.runner import call, manual, parameters
from gpuaas_cli.runner.command import AnyEndpoint, Command, Target

Handler = Callable[..., int | None]


class App(typer.Typer):
    """Commands that are registered when one of them is run: only that one gets its arguments and options."""

    def __init__(self) -> None:
        super().__init__(
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            epilog=HELP,
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        )
        self.declared: list[tuple[str, str, str | None, Command]] = []

    def register(self, words: list[str] | None = None) -> None:
        """Register what was declared; without words, every command in full."""
        for prefix, name, text, command in self.declared:
            line = f"{prefix} {name}".strip()
            declared = command.with_manual(manual.page(text, line))
            _register(self, line, name, declared, in_full=not prefix or words is None or name in words[:1])
        self.declared = []
        for below in self.registered_groups:
            if isinstance(below.typer_instance, App):
                below.typer_instance.register(words[1:] if words and below.name == words[0] else words)


def single(name: str, text: str | None, command: Command | Target) -> App:
    """The place of a command without sub-commands."""
    app = App()
    declare(app, "", text, **{name: command})
    return app


def group(words: str, text: str | None, **commands: Command | Target) -> App:
    """`words` are what is typed before the name of each command; `text` is the docstring with its manual."""
    app = App()

    @app.callback(help=manual.page(text, words).help)
    def about() -> None:
        return None

    declare(app, words, text, **commands)
    return app


def declare(app: App, words: str, text: str | None, **commands: Command | Target) -> None:
    """An endpoint alone is a command that differs in nothing from its endpoint."""
    for name, item in commands.items():
        command = item if isinstance(item, Command) else Command(item)
        app.declared.append((words, name.replace("_", "-"), text, command))


def by_hand(
    app: App, name: str | None = None, *, reaches: tuple[AnyEndpoint, ...] = ()
) -> Callable[[Handler], Handler]:
    """Register a function as a command; its help is the docstring. `reaches` are the endpoints it calls."""

    def register(function: Handler) -> Handler:
        function.endpoints = (reaches, ())  # type: ignore[attr-defined]
        return app.command(name, epilog=HELP)(function)

    return register


def alone(*reaches: AnyEndpoint) -> Callable[[Handler], App]:
    """Make a command without sub-commands of a function."""

    def register(function: Handler) -> App:
        app = App()
        by_hand(app, reaches=reaches)(function)
        return app

    return register


def flags_of(context: typer.Context) -> Flags:
    flags = context.obj
    if not isinstance(flags, Flags):
        raise TypeError("the command was started without its flags")
    return flags


def run(app: App, name: str, words: list[str], flags: Flags) -> int:
    app.register(words)
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
        # The reader has enough; Python must not complain about it again while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return failures.OK
    print(failures.text(failure, as_json=as_json), file=sys.stderr)
    return failure.exit_code


def _register(app: App, line: str, name: str, command: Command, *, in_full: bool) -> None:
    def handler(context: typer.Context, **values: Any) -> int:
        return call.run(command, line, flags_of(context), values)

    if in_full:
        signature = parameters.signature(command)
        handler.__signature__ = signature  # type: ignore[attr-defined]
        handler.__annotations__ = {name: item.annotation for name, item in signature.parameters.items()}
    handler.endpoints = (command.endpoints, command.also)  # type: ignore[attr-defined]
    help_text = "\n\n".join([command.manual.help, *(f"Example: {example}" for example in command.manual.examples)])
    app.command(name, help=help_text, epilog=HELP)(handler)


def endpoints_of(handler: Any) -> tuple[tuple[AnyEndpoint, ...], tuple[AnyEndpoint, ...]]:
    """The endpoints that a command is made for, and those that it calls beside them."""
    result: tuple[tuple[AnyEndpoint, ...], tuple[AnyEndpoint, ...]] = inspect.unwrap(handler).endpoints
    return result
