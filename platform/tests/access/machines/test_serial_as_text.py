"""Certificate serials are text on the wire, because they exceed what many JSON readers keep exactly."""

import datetime
from typing import Any

import msgspec
from gpuaas_contract import access, event_types, events
from gpuaas_platform import server
from gpuaas_platform.access.machines import store as grants_store
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import store
from old_store import schema_before
from platform_world import FakeClock

SERIAL = 2**62 - 1
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
GRANT = access.MachineGrant(
    grant_id="grant_1",
    org_id="org_1",
    project_id="proj_1",
    allocation_id="alloc_1",
    node_id="node_1",
    node_name="n1",
    operation_id="",
    epoch=0,
    actor_type="user",
    actor_id="user_1",
    actor_name="ann",
    serial=str(SERIAL),
    source="10.0.0.1",
    state="active",
    granted_at=NOW,
    expires_at=NOW,
)
CONCERNS: dict[str, Any] = {"grant_id": "grant_1", "allocation_id": "alloc_1", "operation_id": "", "actor_id": "user_1"}
GRANTED = event_types.MachineGranted(**CONCERNS, serial=str(SERIAL))
ENDED = event_types.MachineAccessEnded(**CONCERNS, serial=str(SERIAL), ended_by="user_2", reason='no "serial":7 here')


async def test_grants_and_events_of_an_older_release_carry_the_serial_as_text(
    settings: Settings, database_url: str
) -> None:
    settings.data_dir.mkdir()
    await schema_before(
        25,
        settings.data_dir / "gpuaas.sqlite",
        database_url,
        "INSERT INTO machine_grants VALUES"
        f" ('grant_1', 'proj_1', 'alloc_1', 'node_1', '', {SERIAL}, 'active', 0, 0, '{_with_number(GRANT)}')",
        _event_row("access.machine.granted", GRANTED),
        _event_row("access.machine.ended", ENDED),
    )
    async with server.open_site(settings, FakeClock()) as site:
        reader = site.database.reader
        assert await grants_store.GRANTS.get(reader, "grant_1") == GRANT
        granted, ended = await store.events_after(reader, "proj_1", 0, 10, "", "")
    assert msgspec.convert(granted.payload, event_types.MachineGranted) == GRANTED
    assert msgspec.convert(ended.payload, event_types.MachineAccessEnded) == ENDED


def _event_row(name: str, payload: msgspec.Struct) -> str:
    event = events.Event(
        event_id="evt_1",
        cursor=0,
        type=name,
        occurred_at=NOW,
        correlation_id="cor_1",
        org_id="org_1",
        project_id="proj_1",
        app_slug="",
        app_instance_id="",
        payload=msgspec.to_builtins(payload),
    )
    return (
        "INSERT INTO events (scope, instance_id, correlation_id, document)"
        f" VALUES ('proj_1', '', 'cor_1', '{_with_number(event)}')"
    )


def _with_number(document: msgspec.Struct) -> str:
    """As the older release wrote it."""
    text = msgspec.json.encode(document).decode().replace(f'"serial":"{SERIAL}"', f'"serial":{SERIAL}')
    return text.replace(',"access":"root"', "")
