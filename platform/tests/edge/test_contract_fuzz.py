"""Every operation of the OpenAPI document, asked with sound and unsound requests, answers as the document describes.

schemathesis makes the requests from the document and holds every answer against it: no server error, no undocumented
status, no body or header that breaks its schema, nothing accepted that the document forbids.
"""

import collections
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import artifact_world
import campaigns
import pytest
import schemathesis
from gpuaas_contract import identity, instances, openapi, registry
from gpuaas_platform.kit.settings import Settings
from platform_world import World
from schemathesis import engine
from schemathesis.config import (
    ChecksConfig,
    GenerationConfig,
    HealthCheck,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from schemathesis.engine import events
from served_application import Served, served

EXAMPLES_MAX = 5
SEED = 20260101
ENDS_THE_SESSION = ["auth.logout", "auth.session.end"]
"""These operations end the session that the others need, so they are called last and with another token."""

# Rules that a schema cannot express (a sound manifest, a page token of this list, a free name) answer with these.
_REFUSED_BY_RULES = ["400", "401", "403", "404", "409", "410", "412", "422", "428", "429"]


@dataclass(frozen=True)
class Targets:
    tokens: list[str]
    params: dict[str, str]


async def _admin(world: World) -> Targets:
    return await _targets(world, [world.token, await world.sign_in("admin")])


async def _service_account(world: World) -> Targets:
    return await _targets(world, [await world.service_account("fuzzer"), await world.service_account("leaver")])


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_every_answer_is_one_the_document_describes(settings: Settings) -> None:
    """On PostgreSQL, which refuses more values than SQLite does, and as the admin, whose requests pass the edge."""
    with served(settings, _admin) as running:
        failures, statuses = _fuzz(running, running.made.tokens[0], exclude=ENDS_THE_SESSION)
        more_failures, _ = _fuzz(running, running.made.tokens[1], include=ENDS_THE_SESSION)
    assert not {**failures, **more_failures}, _text({**failures, **more_failures})
    assert {200, 400, 401, 403, 404, 405, 415, 422} <= set(statuses)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_every_answer_to_a_service_account_is_one_the_document_describes(settings: Settings) -> None:
    """Of every fourth operation: the edge that refuses it is the same for all."""
    names = [endpoint.name for endpoint in registry.ENDPOINTS if endpoint.name not in ENDS_THE_SESSION]
    with served(settings, _service_account) as running:
        failures, statuses = _fuzz(running, running.made.tokens[0], include=names[:: campaigns.size(short=4, whole=1)])
    assert not failures, _text(failures)
    assert {200, 401, 403} <= set(statuses)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_wrong_document_is_detected(settings: Settings) -> None:
    """Remove an answer from the document and change the type of a field: the fuzzer must report both."""
    document = openapi.document()
    listed = document["paths"]["/api/v1/orgs"]["get"]
    del listed["responses"]["400"]
    document["components"]["schemas"]["Org"]["properties"]["name"] = {"type": "integer"}
    with served(settings, _admin) as running:
        failures, _ = _fuzz(running, running.made.tokens[0], include=["identity.org.list"], document=document)
    assert {check for _, check, _ in failures} >= {"status_code_conformance", "response_schema_conformance"}


async def _targets(world: World, tokens: list[str]) -> Targets:
    await world.entitled_app()
    deployed: instances.Deployed = await world.deploy()
    params = {
        "project_id": world.project_id,
        "org_id": (await world.call(identity.ORG_LIST)).items[0].org_id,
        "instance_id": deployed.instance.instance_id,
        "operation_id": deployed.operation.operation_id,
        "artifact_id": (await artifact_world.promoted(world, await artifact_world.trusted(world))).artifact_id,
    }
    return Targets(tokens, params)


Failures = dict[tuple[str, str, str], str]


def _fuzz(
    running: Served,
    token: str,
    *,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    document: dict[str, Any] | None = None,
) -> tuple[Failures, collections.Counter[int]]:
    whole = schemathesis.openapi.from_dict(document or openapi.document(), config=_config(running, token))
    schema = whole.include(operation_id=include) if include else whole.exclude(operation_id=exclude)
    failures: Failures = {}
    statuses: collections.Counter[int] = collections.Counter()
    for event in engine.from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            _collect(event, failures, statuses)
        if isinstance(event, events.NonFatalError):
            failures[(event.label, "error", event.info.title)] = str(event.value)
        if isinstance(event, events.FatalError):
            raise event.exception
    return failures, statuses


def _config(running: Served, token: str) -> SchemathesisConfig:
    project = ProjectConfig(
        base_url=running.url,
        headers={"Authorization": f"Bearer {token}"},
        parameters=dict(running.made.params),
        checks=ChecksConfig.from_dict(
            {
                "positive_data_acceptance": {"expected-statuses": ["2xx", "3xx", *_REFUSED_BY_RULES]},
                "missing_required_header": {"expected-statuses": ["400", "401", "403", "404"]},
            }
        ),
        generation=GenerationConfig(
            max_examples=EXAMPLES_MAX,
            deterministic=True,
            no_shrink=True,
            allow_x00=False,
            with_security_parameters=False,
        ),
        continue_on_failure=True,
        max_stream_events=3,
        request_timeout=60,
    )
    projects = ProjectsConfig(default=project)
    return SchemathesisConfig(seed=SEED, suppress_health_check=[HealthCheck.too_slow], projects=projects)


def _collect(event: events.ScenarioFinished, failures: Failures, statuses: collections.Counter[int]) -> None:
    for case_id, interaction in event.recorder.interactions.items():
        if interaction.response is not None:
            statuses[interaction.response.status_code] += 1
        for check in event.recorder.checks.get(case_id, ()):
            if check.failure_info is not None:
                failure = check.failure_info.failure
                request = interaction.request
                body = (request.body or b"")[:200]
                description = f"{failure.message}\n  {request.method} {request.uri}\n  {body!r}"
                failures.setdefault((event.label or "", check.name, failure.title), description)


def _text(failures: Failures) -> str:
    return "\n".join(
        f"{label}: {check}: {title}\n  {description}" for (label, check, title), description in failures.items()
    )


def test_the_document_in_the_repository_is_the_one_that_was_tested() -> None:
    kept = Path(__file__).parents[3] / "contract" / "openapi" / "openapi.json"
    assert kept.read_text() == openapi.text()
