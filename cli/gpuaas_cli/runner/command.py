"""The declaration of a command: the endpoint that it calls, and the differences from the endpoint's request. Help,
examples and option names are in the manual, which is the docstring of the command's module.

`parameters` makes arguments and options from it, `call` runs it, `reach` reads which endpoints it calls."""

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
"""Default of an option: the default of the field in the request."""
REQUIRED: Any = ...


@dataclass(frozen=True)
class Field:
    """How the user gives one value, if it is not simply an option with the name of a request field."""

    flag: str = ""
    """An option with its value, `--for TIME`, or with its short form, `--all -a`; or the name of an argument, `NAME`.
    Empty: an option with the name of the field. Flag and help come from the manual."""
    help: str = ""
    type: Any = None
    default: Any = FROM_FORM
    read: Callable[[Any, Any], Any] | None = None
    """Converts the typed text to the value that is sent. Its first argument is the `Call`."""
    may_be_empty: bool = False
    """Whether an empty value has a meaning of its own. Otherwise it is refused: a script may have an unset variable."""
    typed: bool = True
    """Whether the user types it on the command line; if not, `read` returns the value."""

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
    """Endpoints for the same action at the platform (--platform), for an app (--app), in an organisation (--org) and in
    a project."""

    project: AnyEndpoint
    platform: AnyEndpoint | None = None
    org: AnyEndpoint | None = None
    platform_help: str = "Act on the platform as a whole instead of on one project."
    app: AnyEndpoint | None = None
    app_help: str = "Act on roles for this app, by slug, instead of on one project."

    @property
    def every(self) -> tuple[AnyEndpoint, ...]:
        return tuple(item for item in (self.project, self.org, self.app, self.platform) if item is not None)


Target = AnyEndpoint | Levels
"""What a command calls."""
_NO_ENDPOINT: AnyEndpoint = Endpoint("", "GET", "", "", NoBody, NoBody)


def fixed(value: str) -> Field:
    """Return a field that the command always sends with this value."""
    return Field(typed=False, read=lambda *_: value)


def asked(ask: Callable[[Any], str]) -> Field:
    """Return a field that the user is asked for, or that is read from stdin, because a secret is never an argument."""
    return Field(typed=False, read=lambda call, _: ask(call))


def nothing(_: Any, answer: Any) -> int | None:
    """Show nothing, for commands that print while they run. If the answer is a number, it is the exit code."""
    return answer if isinstance(answer, int) else None


def shared(own: AnyEndpoint, shared: AnyEndpoint, app: AnyEndpoint | None = None) -> Levels:
    """Return levels for resources of the project (`own`) and for those that the platform shares with every project, all
    of them or those of one app."""
    return Levels(
        own,
        platform=shared,
        app=app,
        app_help="Act on the shared artifacts of this app, by slug, as one of its publishers.",
        platform_help="Act on the artifacts that are shared with every project instead of on the project's own.",
    )


@dataclass(frozen=True)
class Command:
    endpoint: Target = _NO_ENDPOINT
    """Arguments and options are made from its path and its request; without an endpoint, from the manual."""
    calls: tuple[AnyEndpoint, ...] = ()
    """Other main endpoints of the command; `work` calls them."""
    manual: Page = field(default_factory=Page)
    """Examples, help and option names, from the docstring of its module."""
    many: bool = False
    """The last argument takes several names. A dry run of each comes before the first change."""
    fields: Mapping[str, Field | None] = field(default_factory=dict)
    """Declarations by path parameter or request field; None omits an optional field."""
    whole: Field | None = None
    """Set if the whole body is one document in a file, instead of single fields. Its name in the manual is `body`."""
    extra: Mapping[str, Field] = field(default_factory=dict)
    """Options that are not part of the request; `work`, `check` and `then` read them."""
    check: Callable[[Any], object] | None = None
    """Called before the first request; raises if the arguments are not valid."""
    offline: Callable[[Any], int | None] | None = None
    """Runs the whole command without a session; no answer is shown."""
    work: Callable[[Any], Awaitable[Any]] | None = None
    """Replaces the call of the endpoint."""
    reads: AnyEndpoint | None = None
    """GET of the resource: fields without a value keep their current value, and a concurrent change is refused."""
    also: tuple[AnyEndpoint, ...] = ()
    """Further endpoints that it calls."""
    table: Table | None = None
    """Table for the answer, if it is not one of the kinds."""
    page: Callable[[Any], list[str]] | None = None
    """Returns the answer as lines for users."""
    next: str | Callable[[Any], str] = ""
    """The next command to suggest, with fields of the answer in braces; not shown after a dry run."""
    then: Callable[[Any, Any], int | None] | None = None
    """Called with the call and the answer after the answer was shown; may return the exit code."""
    show: Callable[[Any, Any], int | None] | None = None
    """Shows the answer instead of the table or the page; may return the exit code."""
    confirm: Callable[[Any], Awaitable[None]] | None = None
    """Asks the user before the change. Adds the option --yes."""
    wanted: OperationStatus = "succeeded"
    """The status with which its operation must end for exit code 0."""
    follows: bool | None = None
    """Whether to follow the operation that it starts; by default if the response is an operation."""
    asks: bool = False
    """Whether the request changes nothing although its method is POST."""
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
        """Return the command with the manual's texts. Options that are not in the request become `extra` options."""
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


Level = Literal["platform", "app", "org", "project"]
