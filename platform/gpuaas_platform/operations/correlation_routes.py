"""The correlation bundle over HTTP."""

from gpuaas_contract import correlations

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.operations.correlations import gather

routes = Routes()


@routes.read(correlations.CORRELATION_GET)
async def get_correlation(call: Call, reader: db.Reader) -> correlations.Correlation:
    return await gather(reader, call, call.params["correlation_id"])
