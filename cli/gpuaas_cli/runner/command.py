"""A command is a declaration: the endpoint it calls, and what differs from the endpoint's request. Help, examples and
the words of its options are in the manual, the docstring of its module.

`parameters` makes arguments and options from it, `call` runs it, `reach` reads which endpoints it reaches."""

import dataclasses
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.lifecycles import OperationStatus
from gpuaas_contract.operations import Operation
from gpuaas_contract.wire import NoBody

from gpuaas_cli.output import Table
from gpuaas_cli.runner.manual import Page

AnyEndpoint = Endpoint[Any, Any]
FROM_FORM: Any = object()
"""The default of the field in the request."""
REQUIRED: Any = ...


@dataclass(frozen=True)
class Field:
    """How one value is given, where it is not an option named after a field of the request."""

    flag: str = ""
    """An option with its value, `--for TIME`, or its short form, `--all -a`; else the word of an argument, `NAME`.
    Empty: the option that is called as the field is. The manual has it, and the help."""
    help: str = ""
    type: Any = None
    default: Any = FROM_FORM
    read: Callable[[Any, Any], Any] | None = None
    """Turns what was typed into what is sent. Its first argument is the `Call`."""
    typed: bool = True
    """Whether it is on the command line at all; if not, `read` finds it out."""

    @property
    def is_argument(self) -> bool:
        return bool(self.flag) and not self.flag.startswith("-")

    @property
    def options(self) -> list[str]:
        return [word for word in self.flag.split() if word.startswith("-")]

    @property
    def metavar(self) -> str:
        return " ".join(word for word in self.flag.split() if not word.startswith("-"))


SWITCH = Field(type=bool, default=False)
"""An option without a value."""


@dataclass(frozen=True)
class Levels:
    """The same act at the platform, in an organisation and in a project, chosen by --platform and --org."""

    project: AnyEndpoint
    platform: AnyEndpoint | None = None
    org: AnyEndpoint | None = None
    platform_help: str = "At the platform, not in the project."

    @property
    def every(self) -> tuple[AnyEndpoint, ...]:
        return tuple(item for item in (self.project, self.org, self.platform) if item is not None)


Target = AnyEndpoint | Levels
"""What a command calls."""
_NO_ENDPOINT: AnyEndpoint = Endpoint("", "GET", "", "", NoBody, NoBody)


def fixed(value: str) -> Field:
    """A field that the command always sends with this value."""
    return Field(typed=False, read=lambda *_: value)


def asked(ask: Callable[[Any], str]) -> Field:
    """A field that a person is asked for, or that is read from stdin: a secret is never an argument."""
    return Field(typed=False, read=lambda call, _: ask(call))


def nothing(_: Any, answer: Any) -> int | None:
    """For commands that show their answer while they work; a number is their exit code."""
    return answer if isinstance(answer, int) else None


def shared(own: AnyEndpoint, shared: AnyEndpoint) -> Levels:
    """An act on what belongs to the project, or on what the platform shares with every project."""
    return Levels(own, platform=shared, platform_help="Shared with every project, not the project's own.")


@dataclass(frozen=True)
class Command:
    endpoint: Target = _NO_ENDPOINT
    """Its path and its request make arguments and options. Without one, the command has those of its manual."""
    calls: tuple[AnyEndpoint, ...] = ()
    """Other endpoints that it is made for; `work` calls them."""
    manual: Page = field(default_factory=Page)
    """Examples, help, and the words for its options, from the docstring of its module."""
    many: bool = False
    """The last argument takes several things. Each is rehearsed as a dry run before the first one changes."""
    fields: Mapping[str, Field | None] = field(default_factory=dict)
    """By parameter of the path or field of the request; None leaves an optional field out."""
    whole: Field | None = None
    """How the whole body is given, instead of field by field: a document in a file. The manual has it as `body`."""
    extra: Mapping[str, Field] = field(default_factory=dict)
    """Options that are no part of the request; `work`, `check` and `then` read them."""
    check: Callable[[Any], object] | None = None
    """Refuses what cannot be sent, before anything is."""
    offline: Callable[[Any], int | None] | None = None
    """Takes the place of everything else: there is no session, and no answer to show."""
    work: Callable[[Any], Awaitable[Any]] | None = None
    """Takes the place of the one call of the endpoint."""
    reads: AnyEndpoint | None = None
    """GET of what is changed: fields that are not given stay as they are, and a change by another is refused."""
    also: tuple[AnyEndpoint, ...] = ()
    """Endpoints it reaches beside its own."""
    table: Table | None = None
    """How the answer is shown, where it is not one of the kinds."""
    page: Callable[[Any], list[str]] | None = None
    """The answer as lines for people."""
    next: str | Callable[[Any], str] = ""
    """The command to type next, with fields of the answer in braces; not shown after a dry run."""
    then: Callable[[Any, Any], int | None] | None = None
    """Gets the call and the answer once it was shown; may choose the exit code."""
    show: Callable[[Any, Any], int | None] | None = None
    """Shows the answer in place of the table or the page; may choose the exit code."""
    confirm: Callable[[Any], Awaitable[None]] | None = None
    """Asks before it acts; adds --yes."""
    wanted: OperationStatus = "succeeded"
    """The good end of the operation it starts."""
    follows: bool | None = None
    """Whether the operation it starts is followed; by default where it answers with one."""
    asks: bool = False
    """A question: it changes nothing although it is sent with POST."""
    timeout_s: float | None = None

    @property
    def endpoints(self) -> tuple[AnyEndpoint, ...]:
        own = self.endpoint.every if isinstance(self.endpoint, Levels) else (self.endpoint,)
        return (*(item for item in own if item is not _NO_ENDPOINT), *self.calls)

    @property
    def main(self) -> AnyEndpoint:
        return self.endpoint.project if isinstance(self.endpoint, Levels) else self.endpoint

    @property
    def is_list(self) -> bool:
        form = getattr(self.main.response, "__origin__", self.main.response)
        return not self.main.mutates and "items" in getattr(form, "__struct_fields__", ())

    def with_manual(self, page: Page) -> "Command":
        """What the manual names and the request does not have is an option of the command's own."""
        form = self.main.request if self.main.mutates else self.main.query
        of_form = getattr(form, "__struct_fields__", ())
        of_request = {*re.findall(r"{(\w+)}", self.main.path), *of_form} - set(self.extra)
        named = {
            name: dataclasses.replace(self.fields.get(name) or self.extra.get(name) or Field(), flag=flag, help=text)
            for name, flag, text in page.options
        }
        if missing := set(self.extra) - set(named):
            raise LookupError(f"{page.examples[0]}: the manual does not name {', '.join(missing)}")
        whole = named.pop("body", None)
        extra = {name: given for name, given in named.items() if name not in of_request}
        fields: dict[str, Field | None] = {name: given for name, given in named.items() if name in of_request}
        return dataclasses.replace(
            self, manual=page, whole=whole, fields={**fields, **self.fields, **fields}, extra=extra
        )

    @property
    def is_followed(self) -> bool:
        return self.main.response is Operation and self.main.mutates if self.follows is None else self.follows

    @property
    def is_rehearsable(self) -> bool:
        return self.main.mutates and not self.asks


Level = Literal["platform", "org", "project"]
