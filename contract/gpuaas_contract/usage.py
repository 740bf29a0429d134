"""Usage: what an instance's users consumed, as its app reports it; query, daily sums and export."""

import datetime
from typing import Annotated

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.paths import INSTANCE, PROJECT
from gpuaas_contract.wire import Id, Label, PageQuery, PageSize, Query, Request, Timestamp, Wire

RECORDS_MAX = 1000
ATTRIBUTES_MAX = 16
SUMMARY_DAYS_MAX = 93

Quantity = Annotated[
    str,
    msgspec.Meta(
        max_length=28,
        pattern=r"^(0|[1-9][0-9]{0,17})(\.[0-9]{1,9})?(?!\n)$",
        description="A quantity is a decimal number in a string, not negative: up to 18 digits, 9 after the point.",
    ),
]
RecordId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=128,
        pattern=r"^[!-~]+(?!\n)$",
        description="A record id has 1 to 128 printable ASCII characters, none of them a space.",
    ),
]
Text = Annotated[str, msgspec.Meta(max_length=200, description="At most 200 characters.")]


class ReportedUsage(Request):
    """Usage of an instance in a period, as its app measured it."""

    record_id: RecordId
    """Chosen by the reporter: the same id means the same record."""
    meter: Label
    """What is measured, named by the app, such as `gpu-time`."""
    quantity: Quantity
    unit: Label
    """Unit of the quantity, named by the app, such as `s`."""
    started_at: Timestamp
    """When the usage began; it counts for the day (UTC) of this time."""
    ended_at: Timestamp
    member_id: Id = ""
    """The member that the usage belongs to; empty if it is not one member."""
    subject: Text = ""
    """The user or account that caused the usage, as the app reports."""
    attributes: Annotated[dict[Label, Text], msgspec.Meta(max_length=ATTRIBUTES_MAX)] = {}
    """More data about the usage, chosen by the app."""


class ReportUsage(Request):
    """Reports usage of one instance; records reported before may be included."""

    records: Annotated[list[ReportedUsage], msgspec.Meta(min_length=1, max_length=RECORDS_MAX)]
    epoch: int = 0
    """Epoch of the caller's stewardship of the instance, or of its claim on the operation in `operation_id`. 0 is for
    controllers of earlier releases, and is accepted only while no controller holds the stewardship."""
    operation_id: Id = ""
    """An operation on the instance that the caller has claimed, such as the one that removes it. Empty: the caller
    reports as the steward of the instance."""


class UsageReceipt(Wire):
    """Answer to a usage report: how many records were new, and which conflict with stored ones."""

    accepted: int
    repeated: int
    """Number of records that were stored before with the same content."""
    conflicting: list[str]
    """Ids of records that are stored with other content; the stored ones stay."""


class UsageRecord(Wire):
    """Usage of an instance in a period."""

    usage_id: str
    record_id: str
    """Id of the usage record, chosen by the controller that reported it."""
    meter: str
    """What was measured, named by the app."""
    quantity: str
    """A decimal number as text, so that it is not rounded."""
    unit: str
    started_at: Timestamp
    ended_at: Timestamp
    member_id: str
    subject: str
    """The user or account that caused the usage, as the app reports."""
    attributes: dict[str, str]
    org_id: str
    project_id: str
    instance_id: str
    app_slug: str
    app_version: str
    """App version of the instance when the record was received."""
    reported_by: str
    """The service account of the app's controller."""
    reported_at: Timestamp
    correlation_id: str


class UsageQuery(Query):
    since: Timestamp | None = None
    """Only records that started at this time or later."""
    until: Timestamp | None = None
    """Only records that started before this time."""
    instance_id: str = ""
    meter: str = ""


class UsagePageQuery(UsageQuery):
    page_size: PageSize = 100
    """Largest number of items in the answer."""
    page_token: str = ""
    """`next_page_token` of the page before; empty for the first page."""


class UsageDay(Wire):
    """What was used of an instance on one day."""

    day: datetime.date
    """In UTC."""
    instance_id: str
    app_slug: str
    meter: str
    unit: str
    quantity: str
    """The exact sum."""
    records: int
    """How many records are in the sum."""


class SummaryQuery(PageQuery):
    since: datetime.date | None = None
    """First day of the sums; by default 30 days ago."""
    until: datetime.date | None = None
    """Day after the last day of the sums; by default tomorrow."""
    instance_id: str = ""
    meter: str = ""


USAGE_REPORT = INSTANCE.row(
    "/usage-records",
    "usage.record.report",
    "Report usage of an instance, up to 1000 records at a time",
    "A record that is reported again with the same id is counted once.",
).post(ReportUsage, UsageReceipt, subject="instance_id", repeat="natural", errors=(errors.LeaseLost,))
USAGE_LIST = PROJECT.row("/usage", "usage.record.list", "List usage records by start time").list(
    UsageRecord, "usage.record.read", query=UsagePageQuery
)
USAGE_SUMMARY = PROJECT.row(
    "/usage/summary", "usage.summary", "List exact sums per day, instance, meter and unit, over at most 93 days"
).list(UsageDay, "usage.record.read", query=SummaryQuery)
USAGE_EXPORT = PROJECT.row("/usage.csv", "usage.export", "Export usage records as a CSV file").get(
    str, "usage.record.read", query=UsageQuery, media_type="text/csv"
)
