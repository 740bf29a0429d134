"""Register commands, run one, and convert its result to an exit code and an error message. Called by `main`."""

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec
import typer
from gpuaas_contract.errors import ApiError
from gpuaas_sdk.outcomes import NoAnswer

from gpuaas_cli import failures, terminal
from gpuaas_cli.flags import HELP, Flags
from gpuaas_cli.runner import call, manual, parameters
from gpuaas_cli.runner.command import AnyEndpoint, Command


def load(place: str, name: str, words: list[str] | None = None) -> typer.Typer:
    """Return a command with its subcommands, from `COMMANDS` of its module; the module's docstring is the manual.
    Only the command in `words` gets its arguments and options; without words, all commands get them."""
    module = importlib.import_module(f"gpuaas_cli.commands.{place}")
    apps: dict[str, typer.Typer] = {}
    for line, declared in module.COMMANDS.items():
        first, *below = line.split()
        if first == name:
            app = _app(apps, module.__doc__, line.rpartition(" ")[0])
            command = declared if isinstance(declared, Command) else Command(declared)
            command = command.with_manual(manual.page(module.__doc__, line))
            _register(app, line, command, in_full=words is None or words[: len(below)] == below)
    return next(iter(apps.values()))


def _app(apps: dict[str, typer.Typer], text: str | None, words: str) -> typer.Typer:
    """Return the group with these words; without words, the app of a command that is in no group."""
    if words in apps:
        return apps[words]
    apps[words] = app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog=HELP,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    if words:
        app.callback(help=manual.page(text, words).help)(lambda: None)
    if " " in words:
        above, _, name = words.rpartition(" ")
        _app(apps, text, above).add_typer(app, name=name)
    return app


def run(place: str, command: str, words: list[str], flags: Flags) -> int:
    name = f"gpuaas {command}"
    try:
        return load(place, command, words)(words, prog_name=name, obj=flags, standalone_mode=False) or 0
    except typer.Abort:
        return failures.DETACHED
    except typer.TyperException as error:
        reached: Any = getattr(error, "ctx", None)
        text = getattr(error, "format_message", error.__str__)()
        if text.startswith("Missing command"):
            text = f"{reached.command_path} needs one of its commands: {', '.join(reached.command.commands)}"
        failure = failures.usage(text or "a word is missing", f"{reached.command_path if reached else name} --help")
    except (failures.Failure, ApiError, NoAnswer) as error:
        failure = failures.as_failure(error)
    except (msgspec.ValidationError, OverflowError, UnicodeEncodeError) as error:
        failure = failures.usage(f"A value is not accepted: {error}", f"{name} --help")
    except BrokenPipeError:
        # The reader closed the pipe. Redirect stdout, so that Python does not report the error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return failures.OK
    terminal.talk(failures.text(failure, as_json=flags.output == "json"))
    return failure.exit_code


def _register(app: typer.Typer, line: str, command: Command, *, in_full: bool) -> None:
    def handler(context: typer.Context, **values: Any) -> int:
        _refuse_empty(command, context, values)
        return call.run(command, line, context.obj, values)

    if in_full:
        signature = parameters.signature(command)
        handler.__signature__ = signature  # type: ignore[attr-defined]
        handler.__annotations__ = {name: item.annotation for name, item in signature.parameters.items()}
    handler.endpoints = (command.endpoints, command.also)  # type: ignore[attr-defined]
    help_text = "\n\n".join([command.manual.help, *(f"Example: {example}" for example in command.manual.examples)])
    app.command(line.split()[-1], help=help_text, epilog=HELP)(handler)


def _refuse_empty(command: Command, context: typer.Context, values: Mapping[str, Any]) -> None:
    """Refuse a value that was given and is empty: in a script it is an unset variable, not a wish for the default."""
    declared = {**command.fields, **command.extra}
    for parameter in context.command.params:
        field, value = declared.get(parameter.name or ""), values.get(parameter.name or "")
        if field is not None and field.may_be_empty:
            continue
        given = [value] if isinstance(value, str) else value if isinstance(value, list) else None
        if given is not None and not call.words(given) and _is_typed(context, parameter.name or ""):
            name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
            raise failures.usage(f"{name} is empty", f"{context.command_path} --help")


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def endpoints_of(handler: Any) -> tuple[tuple[AnyEndpoint, ...], tuple[AnyEndpoint, ...]]:
    """Return the main endpoints of a command, and the further ones that it calls."""
    result: tuple[tuple[AnyEndpoint, ...], tuple[AnyEndpoint, ...]] = inspect.unwrap(handler).endpoints
    return result
