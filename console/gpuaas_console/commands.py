"""A change as a command line, a curl call and YAML, so that people can repeat it without the console."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from gpuaas_cli import output
from gpuaas_contract.actions import InvokeAction
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.instances import (
    ChangeInstance,
    DeployInstance,
    MemberOperationRequest,
    ReconfigureInstance,
    UpgradeInstance,
)
from gpuaas_sdk.client import request

from gpuaas_console import view
from gpuaas_console.web import Visit


def member(body: MemberOperationRequest, instance: str, project: str) -> str:
    name = "--with" if body.kind == "replace" else "--allocation"
    options = view.options("--role", body.component_key) + view.options(name, *body.allocation_ids)
    options += ["--force"] if body.force else []
    return _line(["member", body.kind], body.reason, project, [instance, *body.member_ids], options)


def whole(verb: str, body: ChangeInstance | UpgradeInstance | ReconfigureInstance, instance: str, project: str) -> str:
    words = [verb, instance]
    if isinstance(body, UpgradeInstance):
        words += view.options("--version", body.version)
    if isinstance(body, ReconfigureInstance):
        for name, value in body.inputs.items():
            words += ["--unset", name] if value is None else ["--set", _pair(name, value)]
    return _line(words + (["--force"] if body.force else []), body.reason, project)


def deploy(body: DeployInstance, project: str) -> str:
    words = ["deploy", body.app_slug, "--name", body.name, "--topology", body.topology]
    words += ["--version", body.version] if body.version else []
    words += ["--operator", body.operator_service_account_id] if body.operator_service_account_id else []
    words += [word for name, value in body.inputs.items() for word in ("--set", _pair(name, value))]
    return _line(words, "", project)


def leave(exit_name: str, operation_id: str, reason: str, project: str) -> str:
    return _line(["op", exit_name.replace("_", "-"), operation_id], reason or "REASON", project)


def action(instance: str, name: str, body: InvokeAction, project: str) -> str:
    words = [word for key, value in body.inputs.items() for word in ("--input", _pair(key, value))]
    return _line(["action", "run", instance, name, *words], body.reason, project)


def piped(stdin: str, words: list[str]) -> str:
    """Return a command that reads text from stdin, if there is any."""
    command = view.line("gpuaas", *words)
    return f"printf %s {view.line(stdin)} | {command}" if stdin else command


def curl(server: str, endpoint: AnyEndpoint, body: Any, *, if_match: str = "", **path: str) -> str:
    """Return the same request as a curl call. The token comes from the environment, not from this text."""
    words = ["curl", "-X", endpoint.method, f"{server}{request.path(endpoint, path)}"]
    words += ["-H", "X-Idempotency-Key: CHOOSE-ONE"]
    words += ["-H", f"If-Match: {if_match}"] if if_match else []
    if body is not None:
        words += ["-H", "Content-Type: application/json", "-d", msgspec.json.encode(body).decode()]
    return f'{view.line(*words)} -H "Authorization: Bearer $GPUAAS_TOKEN"'


class Same(NamedTuple):
    """A change in the forms in which people copy it."""

    line: str
    curl: str
    yaml: str
    """The content of the request; empty: it has none."""


def same(visit: Visit, line: str, endpoint: AnyEndpoint, body: Any, *, if_match: str = "", **path: str) -> Same:
    """Return a change of the project, or of the platform, in all forms."""
    path |= {"project_id": visit.project} if "{project_id}" in endpoint.path else {}
    content = msgspec.to_builtins(body)
    yaml = output.encoded("yaml", content) if content else ""
    return Same(line, curl(visit.session.client.server, endpoint, body, if_match=if_match, **path), yaml)


def _pair(name: str, value: Any) -> str:
    return f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"


def _line(
    words: list[str], reason: str, project: str, arguments: Sequence[str] = (), options: Sequence[str] = ()
) -> str:
    given = [*options, *view.options("--reason", reason), "--project", project]
    return view.line("gpuaas", *view.command(words, arguments, given))
