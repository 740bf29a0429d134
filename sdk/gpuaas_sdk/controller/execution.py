"""Run the handler of one claimed operation under its lease, and report how it ended. `runner` starts it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.errors import LeaseLost
from gpuaas_contract.operations import Operation as Record
from gpuaas_contract.runtime import COMPLETE, FAIL, CompleteOperation, FailOperation
from msgspec.structs import replace

from gpuaas_sdk import traces
from gpuaas_sdk.controller import rules
from gpuaas_sdk.controller.handlers import Handlers, Result
from gpuaas_sdk.controller.lease import Lease
from gpuaas_sdk.controller.operation import Operation
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.outcomes import NoAnswer

log = structlog.get_logger()

End = TypeVar("End", CompleteOperation, FailOperation)


class Execution:
    """One claimed operation: its handler, and its lease while the handler works."""

    def __init__(self, handlers: Handlers, operation: Operation, lease: Lease) -> None:
        self._handlers = handlers
        self._operation = operation
        self._lease = lease
        self._reporting_end = asyncio.Event()

    async def run(self) -> None:
        """Run the handler until the end is reported or the lease is lost. Return only after it has cleaned up."""
        handling = asyncio.create_task(self._handle())
        renewing = asyncio.create_task(self._lease.keep())
        try:
            await asyncio.wait({handling, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if self._reporting_end.is_set():
                # The final report ends the lease, perhaps before the response arrives. A lost lease means nothing then.
                await asyncio.wait({handling})
        finally:
            await cancel(handling, renewing)
            await self._operation.close()
        if not self._reporting_end.is_set():
            log.warning("operation.abandoned", reason="no end was reported; the next claim continues the work")

    async def _handle(self) -> None:
        try:
            failure = await self._perform()
            if failure is not None:
                self._reporting_end.set()
                traces.fail()
                log.error("operation.failed", code=failure.code, error=failure.message, fix=failure.fix)
                await self._report_end(FAIL, failure)
        except LeaseLost as error:
            log.warning("lease.lost", error=error.message)
        except NoAnswer as error:
            log.warning("operation.report_failed", error=error.message, reason="the lease will expire")

    async def _perform(self) -> FailOperation | None:
        """Run the handler and report the operation as complete. If either fails, return the failure to report."""
        try:
            result = await self._do_or_undo()
            self._reporting_end.set()
            completion = CompleteOperation(
                epoch=self._lease.epoch,
                result=result.result,
                preview=result.preview,
                undone=self._operation.backs_out,
            )
            ended = await self._report_end(COMPLETE, completion)
            log.info("operation.completed", kind=self._operation.kind, status=ended.status)
        except (LeaseLost, NoAnswer):
            raise
        except Permanent as error:
            return rules.failure_of(error, self._lease.epoch, backs_out=self._operation.backs_out)
        except Exception as error:
            log.exception("operation.handler_crashed")
            return rules.failure_of(error, self._lease.epoch)
        return None

    async def _report_end(self, endpoint: Endpoint[End, Record], body: End) -> Record:
        """Report the end together with the last lines of the log: nothing can be reported after it."""
        if self._lease.log.is_long:
            await self._lease.flush()
        return await self._lease.report(endpoint, replace(body, log=self._lease.log.batch()))

    async def _do_or_undo(self) -> Result:
        """Run the handler. After a cancel, and for an operation that is compensated, run the undo handler instead."""
        operation = self._operation
        if operation.backs_out:
            await operation.end_interrupted()
        else:
            work = operation.until_deadline(self._forward)
            result = await _unless(self._lease.cancel_requested, work)
            if result is not None:
                return result
            log.info("operation.undo_started", kind=operation.kind)
            await operation.turn_back()
        result = await operation.until_deadline(lambda: self._handlers.undo(operation))
        operation.raise_failures()
        return result

    async def _forward(self) -> Result:
        result = await self._handlers.perform(self._operation)
        self._operation.raise_failures()
        return result


async def cancel(*tasks: asyncio.Task[object]) -> None:
    """Cancel the tasks, wait until they have ended, and log their errors."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            log.error("controller.task_crashed", exc_info=result)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result | None:
    """Return the result of the work; None if `stop` was set first and the work has stopped."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        working.cancel()
        outcome = (await asyncio.gather(working, return_exceptions=True))[0]
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
    if isinstance(outcome, LeaseLost | NoAnswer):
        raise outcome
    if isinstance(outcome, Exception):
        log.warning("operation.stop_failed", error=str(outcome) or type(outcome).__name__)
    return outcome if isinstance(outcome, Result) else None
