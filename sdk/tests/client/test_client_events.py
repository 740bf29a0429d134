"""Following events: every request starts where the last answer ended, and an expired cursor raises."""

import datetime

import pytest
from gpuaas_contract.errors import CursorExpired
from gpuaas_contract.events import Event, Events
from gpuaas_sdk.client import events


class Pages:
    """Answers with the given pages, then with an expired cursor."""

    def __init__(self, *pages: Events) -> None:
        self._pages = list(pages)
        self.cursors: list[int] = []

    async def __call__(self, cursor: int) -> Events:
        self.cursors.append(cursor)
        if not self._pages:
            raise CursorExpired(details={"oldest": 90})
        return self._pages.pop(0)


async def test_each_question_starts_where_the_last_answer_ended() -> None:
    pages = Pages(
        Events(items=[_event(4), _event(6)], cursor=6),
        Events(items=[], cursor=9),
        Events(items=[_event(11)], cursor=11),
    )
    following = events.follow(pages, 3)
    assert [(await anext(following)).cursor for _ in range(3)] == [4, 6, 11]
    with pytest.raises(CursorExpired) as expired:
        await anext(following)
    assert pages.cursors == [3, 6, 9, 11]
    assert expired.value.details["oldest"] == 90


def _event(cursor: int) -> Event:
    return Event(
        event_id=f"evt_{cursor}",
        cursor=cursor,
        type="apps.member.changed",
        occurred_at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        correlation_id="cor_1",
        org_id="org_1",
        project_id="proj_1",
        app_slug="demo",
        app_instance_id="inst_1",
        payload={},
    )
