"""Overlays over HTTP. The question "may I?" is routed by `catalog`, which knows the keys of apps too."""

from gpuaas_contract import policy

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db
from gpuaas_platform.policy import service

routes = Routes()


@routes.read(policy.GLOBAL_GET)
@routes.read(policy.ORG_GET)
@routes.read(policy.PROJECT_GET)
async def get_overlay(call: Call, reader: db.Reader) -> policy.PolicyLayer:
    return await service.present(reader, call)


@routes.write(policy.GLOBAL_SET)
@routes.write(policy.ORG_SET)
@routes.write(policy.PROJECT_SET)
async def set_overlay(call: Call, tx: db.Tx, body: policy.Overlay) -> policy.ChangedPolicyLayer:
    return await service.change(tx, call, body)


@routes.flow(policy.EXPLAIN)
async def explain(call: Call, body: policy.ExplainPolicy) -> policy.PolicyExplanation:
    return await service.explain(call.site.database.reader, call.in_project(), body)
