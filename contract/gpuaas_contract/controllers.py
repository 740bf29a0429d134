"""App controllers as people see them: when each was last seen, what fails in it, and the end of its log.

A controller sends its report with the claims that it makes anyway. The report is the whole state, not a change of it,
so that a repeated or a lost one does no harm."""

from typing import Annotated, Any

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.operations import LogLevel
from gpuaas_contract.paths import PROJECT
from gpuaas_contract.wire import Id, PageQuery, Request, ShortText, Timestamp, Wire, json_bytes

FAILURES_MAX, FAILURE_CHARS_MAX = 20, 500
"""Most failures of one report, and the length of the message of each."""
LINES_MAX, LINE_BYTES_MAX = 50, 1_024
"""The log of a controller is a ring: the newest lines, and the size of the fields of each as JSON."""


class ControllerFailure(Wire):
    """What fails in a controller between operations, as of its last look. It disappears when a look works again."""

    task: ShortText
    """What failed: `look` (the health handler), `machine` (a connection), `request` (of an operation by the
    controller), `renew` (of its stewardships)."""
    code: ShortText
    """Why, for programs: `crashed`, `timed_out`, `unreachable` (a machine), `no_answer` (of the platform), or the error
    code of the platform: `circuit_open`."""
    failed_since: Timestamp
    """First of the looks in a row that failed in this way, by the clock of the controller."""
    observed_at: Timestamp
    """Last of them."""
    message: Annotated[str, msgspec.Meta(max_length=FAILURE_CHARS_MAX)] = ""
    """Text for people. The kit replaces the secrets that the platform delivered to this process since its start, and no
    others."""
    instance_id: Id = ""
    """The instance that was looked at; empty for a failure that concerns all of them."""
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    """How many looks in a row failed in this way."""


class ControllerLogLine(Wire):
    """A line of the controller's log that belongs to no operation. The kit replaces the secrets that the platform
    delivered to this process since its start, and no others."""

    number: Annotated[int, msgspec.Meta(ge=1)]
    """Number of the line in its process, from 1."""
    logged_at: Timestamp
    """When the line was written, by the clock of the controller."""
    level: LogLevel
    event: ShortText
    """Name of the event, such as `steward.taken`."""
    fields: Annotated[dict[str, Any], json_bytes(LINE_BYTES_MAX)] = {}


class ControllerReport(Request):
    """The state of a controller process: what fails, and the newest lines of its log."""

    process: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    """Different for each process, also for two with the same name."""
    started_at: Timestamp
    """When the process started. A report of an earlier process does not replace that of a later one."""
    number: Annotated[int, msgspec.Meta(ge=1)]
    """Grows with each report of the process. A lower or equal number is an old report, and nothing is stored."""
    failures: Annotated[list[ControllerFailure], msgspec.Meta(max_length=FAILURES_MAX)] = []
    """The newest failures."""
    failures_total: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many there are, also those that did not fit."""
    log: Annotated[list[ControllerLogLine], msgspec.Meta(max_length=LINES_MAX)] = []
    """The newest lines, oldest first."""


class ControllerState(Wire):
    """The last report of a controller, without its log."""

    process: str
    started_at: Timestamp
    number: int
    reported_at: Timestamp
    """When the platform received the report."""
    failures: list[ControllerFailure]
    failures_total: int


class Controller(Wire):
    """An app controller that claims operations in this project."""

    controller_id: str
    """Id of the controller, made of project, app and holder."""
    project_id: str
    app_slug: str
    holder: str
    """Name of the controller."""
    actor_id: str
    """The service account that the controller signs in as."""
    version: str
    """Version of the controller, as it reports."""
    last_seen_at: Timestamp
    state: ControllerState | None = None
    """None for controllers that report no state: those of earlier releases, and those written without the kit."""


class ControllerLogQuery(PageQuery):
    controller_id: Annotated[str, msgspec.Meta(max_length=500)] = ""
    """Id of the controller, as in the list."""


CONTROLLER_LIST = PROJECT.row(
    "/controllers",
    "runtime.controller.list",
    "List app controllers, with the time of their last request and what fails in them",
).list(Controller, "apps.instance.read")
CONTROLLER_LOG = PROJECT.row(
    "/controllers/log",
    "runtime.controller.log",
    "Read the end of a controller's log",
    f"The newest {LINES_MAX} lines that belong to no operation, oldest first. Each operation has a log of its own.",
).list(ControllerLogLine, "apps.instance.read", query=ControllerLogQuery, errors=(errors.NotFound,))
