"""Usage over HTTP."""

from gpuaas_contract import usage
from gpuaas_contract.wire import Page

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.usage import service
from gpuaas_platform.usage.export import Export

routes = Routes()


@routes.write(usage.USAGE_REPORT)
async def report_usage(call: Call, tx: db.Tx, body: usage.ReportUsage) -> usage.UsageReceipt:
    return await service.report(tx, call, body)


@routes.read(usage.USAGE_LIST)
async def list_usage(call: Call, reader: db.Reader) -> Page[usage.UsageRecord]:
    return await service.records(reader, call.in_project().project_id, call.query)


@routes.read(usage.USAGE_SUMMARY)
async def summarise_usage(call: Call, reader: db.Reader) -> Page[usage.UsageDay]:
    return await service.summary(reader, call, call.query)


@routes.stream(usage.USAGE_EXPORT)
async def export_usage(call: Call) -> Export:
    return Export(call.site.database.reader, call.in_project().project_id, call.query)
