"""Make a change that is declared in `changes`: a form from its request, a check by the platform, then the answer."""

import uuid
from typing import Any

import msgspec
from gpuaas_cli import output
from gpuaas_contract.errors import ApiError, NotFound
from gpuaas_contract.policy import PolicyLayer
from gpuaas_contract.wire import NoBody
from starlette.responses import Response

from gpuaas_console import changes, commands, forms, view
from gpuaas_console.changes import CHANGES, Change
from gpuaas_console.pages import pickers, records
from gpuaas_console.web import Failure, Form, Visit, refusal


async def show(visit: Visit) -> Response:
    change = CHANGES.get(visit.path("change"))
    if change is None:
        raise Failure(404, "This change is not known", "The console has no such change.", "Open the lists.")
    is_post = visit.request.method == "POST"
    given = visit.form if is_post else visit.query
    target, etag, within = given.text("target"), given.text("etag"), _within(visit, change)
    if (change.within and not within) or (change.target and not target and (is_post or not change.named)):
        raise Failure(400, "The name is missing", "The request does not name what to change.", "Open it from its list.")
    org = await visit.org() if change.is_of_org else ""
    path = {**change.place(visit.project, org, within), **({change.target: target} if change.target else {})}
    present, present_etag = await _present(visit, change, path)
    etag = etag or present_etag
    inputs, errors = forms.read(changes.schema(change.endpoint.request), given, change.only)
    # A field that was not sent keeps its value; an empty one removes it.
    kept = changes.present(change, present)
    inputs = {**{name: value for name, value in kept.items() if forms.PREFIX + name not in given}, **inputs}
    answer, status = None, 200
    is_check = given.text("step") == "check"
    if is_post:
        errors |= _missing(change, given, target, is_check=is_check)
        if not errors:
            answer, errors, status = await _send(visit, change, path, inputs, etag, is_check=is_check)
        status = 400 if errors and status == 200 else status
    return _page(
        visit, change, org, target, inputs, etag, errors, status, present=present, answer=answer, checked=is_check
    )


def _within(visit: Visit, change: Change) -> str:
    """Return the instance to which the target belongs, by its name; empty: to none."""
    return visit.form.text("within") or visit.query.text("within") if change.within else ""


async def _present(visit: Visit, change: Change, path: dict[str, Any]) -> tuple[Any, str]:
    """Return what the change reads, with its tag; None if it does not exist yet."""
    if change.reads is None:
        return None, ""
    try:
        read = await visit.calls().read(change.reads, **path)
    except NotFound:
        return None, ""
    return read.answer, read.etag if change.endpoint.guarded else ""


async def _send(
    visit: Visit, change: Change, path: dict[str, Any], inputs: dict[str, Any], etag: str, *, is_check: bool
) -> tuple[Any, dict[str, str], int]:
    """Send or check the request. Return the answer, errors by field and the status of the page."""
    try:
        answer = await visit.send(change.endpoint, _body(change, inputs), is_check=is_check, if_match=etag, **path)
    except msgspec.ValidationError as error:
        return None, {"": str(error)}, 400
    except ApiError as error:
        return None, {pickers.field_of(error): refusal(error)}, error.status
    return answer, {}, 200


def _body(change: Change, inputs: dict[str, Any]) -> Any:
    if change.endpoint.request is NoBody:
        return None
    return msgspec.convert({**inputs, **change.fixed}, change.endpoint.request)


def _missing(change: Change, given: Form, target: str, *, is_check: bool) -> dict[str, str]:
    if is_check:
        return {} if change.checked else {"": "A check cannot find out whether this is right."}
    return {"confirm": f"Type {target} to confirm."} if change.typed and given.text("confirm") != target else {}


def _page(
    visit: Visit,
    change: Change,
    org: str,
    target: str,
    inputs: dict[str, Any],
    etag: str,
    errors: dict[str, str],
    status: int,
    *,
    present: Any,
    answer: Any,
    checked: bool,
) -> Response:
    shown = changes.schema(change.endpoint.request)
    secret = {name for name, field in shown["properties"].items() if field["x-secret"]}
    open_inputs = {name: value for name, value in inputs.items() if name not in secret}
    choices = {
        name: [forms.Choice(item, item.replace("_", " ")) for item in items] for name, items in change.choices.items()
    }
    within = _within(visit, change)
    place = ("instances", within) if change.within else ("records", change.of) if change.of else ("policy",)
    back = view.link("p", visit.project, *place)
    words, stdin = changes.line(change, target, open_inputs, etag, visit.project, org, within)
    body = {**open_inputs, **dict.fromkeys(secret & set(inputs), "SECRET"), **change.fixed}
    return visit.page(
        "change.html",
        status=status,
        change=change,
        title=change.label,
        target=target,
        within=within,
        list_name=records.title(change.of),
        etag=etag,
        fields=forms.fields(shown, open_inputs, choices, errors, change.only),
        errors=errors,
        present=_facts(present) if present is not None and not isinstance(present, PolicyLayer) else {},
        answer=_facts(answer) if answer is not None else None,
        checked=checked,
        after=change.next.format_map(_facts(answer)) if answer is not None and change.next and not checked else "",
        key=visit.form.text("key") or uuid.uuid4().hex,
        back=back,
        same=commands.same(
            visit,
            commands.piped(stdin, words),
            change.endpoint,
            None if change.endpoint.request is NoBody else body,
            if_match=etag if change.endpoint.guarded else "",
            **change.place(visit.project, org, within),
            **({change.target: target or change.target.upper()} if change.target else {}),
        ),
    )


def _facts(answer: Any) -> dict[str, Any]:
    """Return the fields of an answer that have a value. Times are text."""
    values = output.plain(answer)
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}
