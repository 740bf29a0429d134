"""One run of a declared command: build the request, call the endpoint for each target, show the answer."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from gpuaas_contract.catalog import ResultColumn
from gpuaas_contract.errors import NotFound
from gpuaas_contract.wire import NoBody

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import session
from gpuaas_cli.client.session import Session
from gpuaas_cli.flags import Flags
from gpuaas_cli.input import files
from gpuaas_cli.kinds import Filters
from gpuaas_cli.output import Table
from gpuaas_cli.runner import parameters
from gpuaas_cli.runner.command import AnyEndpoint, Command, Level, Levels
from gpuaas_cli.work import follow

_ONE_LEVEL = "Name only one of --platform, --app, --org and --project"


class Call:
    """The arguments of one run of a command, and its session."""

    session: Session

    def __init__(self, command: Command, words: str, flags: Flags, values: Mapping[str, Any]) -> None:
        self.command, self.words, self.flags, self.values = command, words, flags, values
        declared = command.endpoint
        self.endpoint: AnyEndpoint = getattr(declared, self.level) if isinstance(declared, Levels) else declared
        """The endpoint of the chosen level; `work` may set another one with the same path parameters."""
        self.dry_run: bool = values.get("dry_run", False)
        self.targets: list[str] = []
        self.sent: dict[str, Any] = {}
        """Values of the request's fields, by name."""

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    @property
    def line(self) -> str:
        """Return the command with its arguments, so that the user can repeat it."""
        return " ".join([f"gpuaas {self.words}", *self._arguments()])

    @property
    def level(self) -> Level:
        declared = self.command.endpoint
        app = self["app"] if isinstance(declared, Levels) and declared.app else ""
        if sum(map(bool, (self["platform"], self["org"], app))) > 1:
            raise failures.usage(
                "--platform, --app and --org exclude each other",
                _ONE_LEVEL,
            )
        level: Level = "platform" if self["platform"] else "app" if app else "org" if self["org"] else "project"
        if level != "project" and self.flags.project:
            raise failures.usage(f"--{level} and --project exclude each other", _ONE_LEVEL)
        return level

    async def path(self, target: str = "") -> dict[str, Any]:
        names = parameters.path_names(self.command)
        given = {name: self.values[name] for name in names}
        if self.command.many and names:
            given[names[-1]] = target
        if self.level == "app":
            given["app_slug"] = self["app"]
        return {**given, **({"org_id": self["org"]} if self["org"] and "org_id" not in given else {})}

    async def send(self, target: str = "", *, dry_run: bool | None = None, **changes: Any) -> Any:
        """Call the endpoint once. `changes` replace fields of the request."""
        path = await self.path(target)
        body, etag = await self._body(path, changes)
        dry_run, timeout_s = self.dry_run if dry_run is None else dry_run, self.command.timeout_s
        return await self.session.call(self.endpoint, body, if_match=etag, dry_run=dry_run, timeout_s=timeout_s, **path)

    async def each(self) -> list[Any]:
        """Call the endpoint for every target. First make a dry run of all, so that a typo in one changes nothing."""
        if len(self.targets) > 1 and not self.dry_run and self.command.is_rehearsable:
            for target in self.targets:
                await self.send(target, dry_run=True)
        return [await self.send(target) for target in self.targets]

    def prepare(self) -> None:
        """Read the values, ask for missing ones, and refuse a request that cannot be sent."""
        names = parameters.path_names(self.command)
        if self.command.many and names:
            self.targets = words(self.values[names[-1]])
        if self.command.check:
            self.command.check(self)
        if self.command.whole:
            self.sent["body"] = files.document(self.values["body"], self.command.main.request)
        for field, given in parameters.form_fields(self.command):
            value = self.values.get(field.name)
            if given.read:
                value = given.read(self, value)
            elif isinstance(value, list):
                value = words(value)
            if value is not None and not (value == "" and field.required and self.command.reads):
                self.sent[field.name] = value
        if self.sent.get("force") and not str(self.sent.get("reason", "")).strip():
            raise failures.usage("--force needs a reason", f'{self.line} --force --reason "WHY"')

    async def work(self, connection: Session) -> Any:
        self.session = connection
        if self.command.confirm and not (self["yes"] or self.dry_run):
            await self.command.confirm(self)
        if self.command.work:
            return await self.command.work(self)
        if self.command.is_list:
            return await self.rows()
        if not self.command.is_followed:
            return await (self.each() if self.command.many else self.send())
        return await self.follow(await self.send())

    async def rows(self, **query: Any) -> Sequence[Any]:
        """Return the rows of a list. `query` replaces parameters."""
        kind = kinds.of(kinds.item_of(self.endpoint.response))
        asked = self.query(**query)
        filters = Filters(everything=bool(self["everything"]), query=asked, path=await self.path())
        if kind is None:
            return await self.session.every(self.endpoint, query=asked, **filters.path)
        return await kind.fetch(self.session, filters, self.endpoint)

    def query(self, **changes: Any) -> dict[str, Any]:
        """Return the query parameters that are set. `changes` replace some of them."""
        given = {name: value for name, value in {**self.sent, **changes}.items() if value not in ("", None)}
        return {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}

    async def follow(self, operation: Any, about: str = "", columns: Sequence[ResultColumn] = ()) -> int:
        about = about or f"{len(operation.targets)} members"
        detach, wanted = bool(self["detach"]), self.command.wanted
        return await follow.finish(
            self.session, operation, about, detach=detach, dry_run=self.dry_run, wanted=wanted, columns=columns
        )

    def show(self, answer: Any) -> int | None:
        """Show the answer as a page or as the table of its kind."""
        command = self.command
        if command.page and self.flags.output != "name":
            output.show_page(self.flags, answer, command.page(answer))
        else:
            output.show(self.flags, answer, command.table or _table(answer, self.endpoint))
        return None

    async def _body(self, path: dict[str, Any], changes: Mapping[str, Any]) -> tuple[Any, str]:
        form, sent, etag = self.endpoint.request, {**self.sent, **changes}, self["if_match"] or ""
        if self.command.reads:
            read = await self.session.read(self.command.reads, **path)
            present = msgspec.structs.asdict(read.answer)
            sent = {name: present[name] for name in form.__struct_fields__ if name in present} | sent
            etag = etag or read.etag
        if form is NoBody or not self.endpoint.mutates:
            return None, etag
        return (sent["body"] if "body" in sent else parameters.request(form, sent)), etag

    def _arguments(self) -> list[str]:
        """Return the positional arguments, in their order."""
        of_form = [field.name for field, given in parameters.form_fields(self.command) if given.is_argument]
        given = [self.values.get(name) for name in (*parameters.path_names(self.command), *of_form)]
        return [str(word) for value in given for word in (value if isinstance(value, list) else [value]) if word]


def run(command: Command, line: str, flags: Flags, values: Mapping[str, Any]) -> int:
    call = Call(command, line, flags, values)
    if command.offline:
        return command.offline(call) or failures.OK
    call.prepare()
    try:
        answer = session.run(flags, call.work)
    except NotFound as error:
        raise failures.not_found(_named(call, error), _advice(call, error), error.correlation_id) from error
    if command.is_followed:
        return int(answer)
    code = (command.show or Call.show)(call, answer)
    if call.dry_run:
        output.talk("Nothing was changed.")
    elif text := _next(command, answer):
        output.talk(f"  next: {text}")
    return (command.then(call, answer) if command.then else code) or failures.OK


def _named(call: Call, error: NotFound) -> str:
    """Return the message with the name of what was not found, if the server did not name it."""
    names = parameters.path_names(call.command)
    values = [" or ".join(words([call[name]] if isinstance(call[name], str) else call[name])) for name in names]
    labels = [name.removesuffix("_id").replace("_", " ") for name in names]
    parts = [f"{label} {value}" for label, value in zip(labels, values, strict=True)]
    place = f" in organisation {call['org']}" if call.level == "org" else ""
    what = f"{' of '.join(reversed(parts))}{place}" if parts else ""
    return error.message.replace("Not found", f"There is no {what}", 1) if what else error.message


def _advice(call: Call, error: NotFound) -> str:
    """Return the next step: the server's own, else the command that lists what exists."""
    is_own = not error.message.startswith("Not found") and error.fix not in ("", NotFound.default_fix)
    return error.fix if is_own else _list_command(call) or error.fix


def _list_command(call: Call) -> str:
    """Return the command that lists resources of the last argument's kind; empty if there is none."""
    names = parameters.path_names(call.command)
    kind = next((item for item in kinds.KINDS if names and item.struct.__struct_fields__[0] == names[-1]), None)
    if kind is None:
        return ""
    if call.level == "org":
        return f"gpuaas {call.words.split()[0]} list --org {call['org']}"
    return f"gpuaas get {kind.plural} {call['instance_id'] if kind.of_instance else ''}".strip()


def words(given: Sequence[str]) -> list[str]:
    """Split words at commas: `a,b c` is the same as `a b c`."""
    return [part for word in given for part in word.split(",") if part]


def _next(command: Command, answer: Any) -> str:
    if callable(command.next):
        return command.next(answer)
    return command.next.format_map(msgspec.structs.asdict(answer)) if command.next else ""


def _table(answer: Any, endpoint: AnyEndpoint) -> Table:
    """Return the table for an answer. The type comes from its first row, or from the endpoint if the list is empty."""
    first = answer[0] if isinstance(answer, list | tuple) and answer else answer
    kind = kinds.of(type(first)) or kinds.of(kinds.item_of(endpoint.response))
    if kind is None:
        raise LookupError(f"{endpoint.name}: no kind has the form {type(first).__name__}")
    return kind.table
