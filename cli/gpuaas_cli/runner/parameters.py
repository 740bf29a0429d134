"""Make the arguments and options of a command from its declaration and the form of its request."""

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
import typer
from gpuaas_contract import meanings
from gpuaas_contract.wire import NoBody, NoQuery
from msgspec import inspect as shapes

from gpuaas_cli import kinds
from gpuaas_cli.runner.command import FROM_FORM, REQUIRED, SWITCH, Command, Field, Levels

_TARGETS = {
    "instance_id": Field("INSTANCE"),
    "operation_id": Field("OPERATION"),
    "node_id": Field("NODE", "Name or id."),
    "allocation_id": Field("ALLOCATION|NODE"),
    "member_id": Field("MEMBER|NODE"),
    "user_id": Field("NAME"),
    "service_account_id": Field("NAME"),
    "credential_id": Field("CREDENTIAL", "Name or id."),
    "artifact_id": Field("ARTIFACT", "Id, digest, or a name only one has."),
    "key_id": Field("KEY", "Id of the key; gpuaas service-account keys NAME lists the ids."),
    "ssh_key_id": Field("KEY", "The key, by id, by fingerprint, or by its comment if only one key has it."),
    "hold_id": Field("HOLD", "The hold, by name or id."),
    "secret_id": Field("SECRET", "Id, or a name only one has."),
    "app_slug": Field("APP"),
    "component_key": Field("ROLE"),
    "version": Field("VERSION"),
    "trust_key_id": Field("KEY"),
    "correlation_id": Field("CORRELATION_ID"),
    "task_id": Field("TASK", "Its id."),
    "grant_id": Field("GRANT", "Its id."),
    "session_id": Field("SESSION", "Its id."),
    "sha256": Field("RELEASE", "The release of the agent, by version or SHA-256."),
    "binding_id": Field("BINDING", "Its id."),
}
_HELP = {
    "reason": "Why; kept on the audit trail.",
    "force": "Against holds, budgets and missing evidence that it is safe; needs --reason.",
}
_NAME = Field("NAME")
"""A required field `name` becomes the first argument."""
_FROM_SESSION = ("project_id", "org_id")
_PAGING = frozenset({"page_size", "page_token"})


def signature(command: Command) -> inspect.Signature:
    return inspect.Signature([inspect.Parameter("context", _KEYWORD, annotation=typer.Context), *_all(command)])


def path_names(command: Command) -> list[str]:
    """Return the path parameters that the user gives on the command line."""
    names = re.findall(r"{(\w+)}", command.main.path)
    return [name for name in names if command.fields.get(name, name not in _FROM_SESSION)]


def request_form(command: Command) -> type[msgspec.Struct] | None:
    """Return the struct that options are made from: the body, or the query of a GET; None if there is none."""
    if command.whole:
        return None
    if command.main.request is NoBody:
        return command.main.query if command.main.query is not NoQuery and not command.main.mutates else None
    return None if command.main.takes_bytes else command.main.request


def form_fields(command: Command) -> Iterator[tuple[shapes.Field, Field]]:
    """Yield the request fields of the command and their declarations: first the declared ones, in their order."""
    form = request_form(command)
    if form is None:
        return
    texts = meanings.of(form)
    fields = {field.name: field for field in shapes.type_info(form).fields}  # type: ignore[attr-defined]
    for field in (fields[name] for name in dict.fromkeys((*command.fields, *fields)) if name in fields):
        given = command.fields.get(field.name, _NAME if field.name == "name" and field.required else Field())
        if field.name not in _PAGING and given is not None and (field.name in command.fields or _derivable(field.type)):
            filters = "" if command.main.mutates else f"Only with this {field.name.replace('_', ' ')}."
            yield field, _with_help(given, field.name, texts.get(field.name, filters))


def request(form: type[msgspec.Struct], sent: Mapping[str, Any]) -> msgspec.Struct:
    """Return the request with these values. A value out of range is refused with the rule that the contract states for
    its field, because msgspec shows a regular expression."""
    try:
        return msgspec.convert(sent, form, strict=False)
    except msgspec.ValidationError as error:
        text, _, path = str(error).rpartition(" - at `$.")
        if not any(sign in text for sign in (" matching regex", " of length", ">=", "<=")):
            raise
        name = path.rstrip("`").partition("[")[0]
        fields = {field.name: field.type for field in shapes.type_info(form).fields}  # type: ignore[attr-defined]
        rule = _rule(fields[name]) if name in fields else ""
        if not rule and " matching regex" not in text:
            raise
        raise msgspec.ValidationError(f"{name}: {rule or 'it has characters that are not allowed'}") from error


def _rule(kind: shapes.Type) -> str:
    """Return the contract's rule for a value or for the values of a list; empty if there is none."""
    if isinstance(kind, shapes.Metadata):
        return str((kind.extra_json_schema or {}).get("description", "")) or _rule(kind.type)
    if isinstance(kind, shapes.UnionType):
        return next(filter(None, map(_rule, kind.types)), "")
    return _rule(kind.item_type) if isinstance(kind, shapes.ListType) else ""


def _all(command: Command) -> Iterator[inspect.Parameter]:
    names = path_names(command)
    for place, name in enumerate(names):
        given = command.fields.get(name) or _TARGETS[name]
        several = command.many and place + 1 == len(names)
        help_text = given.help.replace("Name or id.", "Names or ids.") if several else given.help
        yield _parameter(name, given, list[str] if several else str, given.default, help_text)
    if command.whole:
        yield _parameter("body", command.whole, str, command.whole.default, command.whole.help)
    for field, given in form_fields(command):
        if given.typed:
            yield _of_form(field, given, reads=command.reads is not None)
    for name, given in (*command.extra.items(), *_of_runner(command)):
        default = "" if given.default is FROM_FORM and not given.is_argument else given.default
        yield _parameter(name, given, given.type or str, default, given.help)


def _of_runner(command: Command) -> Iterator[tuple[str, Field]]:
    """Yield the options that a command gets because of its endpoint, such as --org and --dry-run."""
    if isinstance(command.endpoint, Levels) and command.endpoint.platform:
        yield "platform", _switch("--platform", command.endpoint.platform_help)
    if isinstance(command.endpoint, Levels) and command.endpoint.app:
        yield "app", Field("--app APP", command.endpoint.app_help)
    if isinstance(command.endpoint, Levels) and command.endpoint.org:
        yield "org", Field("--org", "Act on this organisation instead of on one project.")
    if command.is_list and (kind := kinds.of(kinds.item_of(command.main.response))) and kind.hides:
        yield "everything", _switch("--all -a", "Also list deleted and ended resources.")
    if command.confirm:
        yield "yes", _switch("--yes -y", "Do not ask.")
    if command.is_followed:
        yield (
            "detach",
            _switch("--detach/--wait -d/-w", "Return at once, or show the operation's progress until it ends."),
        )
    if command.main.guarded:
        yield (
            "if_match",
            Field(
                "--if-match ETAG", "Change the resource only if it still has this revision; by default the current one."
            ),
        )
    if command.is_rehearsable:
        yield "dry_run", _switch("--dry-run", "Check the request and show what would happen; change nothing.")


def _switch(flag: str, help_text: str) -> Field:
    return dataclasses.replace(SWITCH, flag=flag, help=help_text)


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _with_help(given: Field, name: str, meaning: str) -> Field:
    """Return the field with a help text; by default the first sentence of the contract's text for the field."""
    text = given.help or _HELP.get(name, "") or meaning.partition(". ")[0].rstrip(".") + ("." if meaning else "")
    return dataclasses.replace(given, help=text)


def _of_form(field: shapes.Field, given: Field, *, reads: bool) -> inspect.Parameter:
    default = given.default
    if default is FROM_FORM:
        default = REQUIRED if field.required else None if field.default is msgspec.NODEFAULT else field.default
        if reads and field.required and field.name != "reason" and not given.is_argument:
            default = ""
    kind = field.type if given.read is None or isinstance(field.type, shapes.ListType) else str
    return _parameter(field.name, given, given.type or kind, default, given.help)


def _parameter(name: str, given: Field, kind: Any, default: Any, help_text: str) -> inspect.Parameter:
    annotation, options = _annotation(kind, optional=default is None)
    if given.metavar:
        options["metavar"] = given.metavar
    if given.is_argument:
        annotated: Any = Annotated[annotation, typer.Argument(help=help_text or None, **options)]
        default = REQUIRED if default is FROM_FORM else default
    else:
        flags = given.options or [f"--{name.replace('_', '-')}"]
        annotated = Annotated[annotation, typer.Option(*flags, help=help_text or None, **options)]
    value = inspect.Parameter.empty if default is REQUIRED else default
    return inspect.Parameter(name, _KEYWORD, default=value, annotation=annotated)


def _annotation(kind: Any, *, optional: bool) -> tuple[Any, dict[str, Any]]:
    """Return the type for typer for a type of the contract, and further arguments for typer."""
    options: dict[str, Any] = {}
    if isinstance(kind, shapes.Metadata):
        return _annotation(kind.type, optional=optional)
    if isinstance(kind, shapes.UnionType):
        parts = [part for part in kind.types if not isinstance(part, shapes.NoneType)]
        return _annotation(parts[0], optional=True)
    if isinstance(kind, shapes.IntType | shapes.FloatType):
        options = {name: limit for name, limit in (("min", kind.ge), ("max", kind.le)) if limit is not None}
        result: Any = int if isinstance(kind, shapes.IntType) else float
    elif isinstance(kind, shapes.LiteralType):
        words = [str(value).replace("_", "-") for value in kind.values]
        options = {"parser": _choice(words), "metavar": "|".join(words)}
        result = str
    elif isinstance(kind, shapes.ListType):
        result = list[str]
    elif isinstance(kind, shapes.BoolType):
        result = bool
    else:
        result = str if isinstance(kind, shapes.Type) else kind
    return (result | None if optional else result), options


def _choice(words: list[str]) -> Any:
    """Return a parser that accepts one of these words, with hyphens or underscores."""

    def parse(text: str) -> str:
        if text.replace("_", "-") not in words:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(words)}.")
        return text.replace("-", "_")

    return parse


def _derivable(kind: shapes.Type) -> bool:
    if isinstance(kind, shapes.Metadata):
        return _derivable(kind.type)
    if isinstance(kind, shapes.UnionType):
        return all(_derivable(part) for part in kind.types)
    if isinstance(kind, shapes.ListType):
        return isinstance(kind.item_type, shapes.StrType)
    return isinstance(kind, shapes.StrType | shapes.IntType | shapes.BoolType | shapes.LiteralType | shapes.NoneType)
