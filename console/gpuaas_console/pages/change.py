"""Make a change that is declared in `changes`: a form from its request, a check by the platform, then the answer."""

import uuid
from dataclasses import dataclass
from typing import Any

import msgspec
from gpuaas_cli import output
from gpuaas_contract.errors import NotFound
from gpuaas_contract.policy import PolicyLayer
from gpuaas_contract.wire import NoBody
from starlette.responses import Response

from gpuaas_console import changes, commands, forms, view
from gpuaas_console.changes import CHANGES, Change
from gpuaas_console.pages import records
from gpuaas_console.web import Failure, Form, Outcome, Visit


@dataclass(frozen=True)
class Subject:
    """What people change, and where it is."""

    change: Change
    target: str
    within: str
    """The name of the instance to which the target belongs; empty: to none."""
    org: str
    etag: str
    """Tag of what was read for the form."""
    present: Any
    """What the change reads; None if it reads nothing, or if it does not exist yet."""


async def show(visit: Visit) -> Response:
    is_post = visit.request.method == "POST"
    given = visit.form if is_post else visit.query
    subject = await _subject(visit, given, is_post=is_post)
    change = subject.change
    inputs, errors = forms.read(changes.schema(change.endpoint.request), given, change.only)
    # A field that was not sent keeps its value; an empty one removes it.
    kept = changes.present(change, subject.present)
    inputs = {**{name: value for name, value in kept.items() if forms.PREFIX + name not in given}, **inputs}
    is_check = given.text("step") == "check"
    errors |= _missing(subject, given, is_check=is_check) if is_post else {}
    outcome = Outcome[Any](None, errors, 400 if errors and is_post else 200)
    if is_post and not errors:
        outcome = await _send(visit, subject, inputs, is_check=is_check)
    return _page(visit, subject, inputs, outcome, is_check=is_check)


async def _subject(visit: Visit, given: Form, *, is_post: bool) -> Subject:
    change = CHANGES.get(visit.path("change"))
    if change is None:
        raise Failure(404, "This change is not known", "The console has no such change.", "Open the lists.")
    target, within = given.text("target"), ""
    if change.within:
        within = visit.form.text("within") or visit.query.text("within")
    if (change.within and not within) or (change.target and not target and (is_post or not change.named)):
        raise Failure(400, "The name is missing", "The request does not name what to change.", "Open it from its list.")
    org = await visit.org() if change.is_of_org else ""
    present, etag = await _present(visit, change, _path(visit, change, target, org, within))
    return Subject(change, target, within, org, visit.form.text("etag") or etag, present)


def _path(visit: Visit, change: Change, target: str, org: str, within: str) -> dict[str, Any]:
    return {**change.place(visit.project, org, within), **({change.target: target} if change.target else {})}


async def _present(visit: Visit, change: Change, path: dict[str, Any]) -> tuple[Any, str]:
    """Return what the change reads, with its tag; None if it does not exist yet."""
    if change.reads is None:
        return None, ""
    try:
        read = await visit.calls().read(change.reads, **path)
    except NotFound:
        return None, ""
    return read.answer, read.etag if change.endpoint.guarded else ""


async def _send(visit: Visit, subject: Subject, inputs: dict[str, Any], *, is_check: bool) -> Outcome[Any]:
    change = subject.change
    path = _path(visit, change, subject.target, subject.org, subject.within)
    try:
        body = _body(change, inputs)
    except msgspec.ValidationError as error:
        return Outcome(None, {"": str(error)}, 400)
    return await visit.attempt(change.endpoint, body, is_check=is_check, if_match=subject.etag, **path)


def _body(change: Change, inputs: dict[str, Any]) -> Any:
    if change.endpoint.request is NoBody:
        return None
    return msgspec.convert({**inputs, **change.fixed}, change.endpoint.request)


def _missing(subject: Subject, given: Form, *, is_check: bool) -> dict[str, str]:
    if is_check:
        return {} if subject.change.checked else {"": "A check cannot find out whether this is right."}
    is_confirmed = not subject.change.typed or given.text("confirm") == subject.target
    return {} if is_confirmed else {"confirm": f"Type {subject.target} to confirm."}


def _page(visit: Visit, subject: Subject, inputs: dict[str, Any], outcome: Outcome[Any], *, is_check: bool) -> Response:
    change, facts = subject.change, _facts(subject.change, outcome.answer)
    shown = changes.schema(change.endpoint.request)
    secret = {name for name, field in shown["properties"].items() if field["x-secret"]}
    open_inputs = {name: value for name, value in inputs.items() if name not in secret}
    choices = {
        name: [forms.Choice(item, item.replace("_", " ")) for item in items] for name, items in change.choices.items()
    }
    within = subject.within
    place = ("instances", within) if within else ("records", change.of) if change.of else ("policy",)
    return visit.page(
        "change.html",
        status=outcome.status,
        change=change,
        title=change.label,
        target=subject.target,
        within=within,
        list_name=records.title(change.of),
        etag=subject.etag,
        fields=forms.fields(shown, open_inputs, choices, outcome.errors, change.only),
        errors=outcome.errors,
        present={} if isinstance(subject.present, PolicyLayer) else _facts(change, subject.present),
        answer=None if outcome.answer is None else facts,
        checked=is_check,
        after=change.next.format_map(facts) if facts and not is_check else "",
        key=visit.form.text("key") or uuid.uuid4().hex,
        back=view.link("p", visit.project, *place),
        same=_same(visit, subject, open_inputs, secret & set(inputs)),
    )


def _same(visit: Visit, subject: Subject, inputs: dict[str, Any], secret: set[str]) -> commands.Same:
    """Return the change as people copy it, without the values of secrets. A target without a name is a placeholder."""
    change, org, within = subject.change, subject.org, subject.within
    words, stdin = changes.line(change, subject.target, inputs, subject.etag, visit.project, org, within)
    body = {**inputs, **{name: name.upper() for name in secret}, **change.fixed}
    return commands.same(
        visit,
        commands.piped(stdin, words),
        change.endpoint,
        None if change.endpoint.request is NoBody else body,
        if_match=subject.etag if change.endpoint.guarded else "",
        **_path(visit, change, subject.target or change.target.upper(), org, within),
    )


def _facts(change: Change, answer: Any) -> dict[str, Any]:
    """Return the fields of an answer that have a value, or the names of several resources. Times are text."""
    if answer is None:
        return {}
    if (rows := getattr(answer, "items", None)) is not None:
        return {change.of: [change.value_of(row) for row in rows]}
    values = output.plain(answer)
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}
