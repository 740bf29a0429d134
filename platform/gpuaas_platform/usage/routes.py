"""HTTP routes of usage."""

from gpuaas_contract import usage

from gpuaas_platform.call import Routes
from gpuaas_platform.usage import export, service

routes = Routes()
routes.write(usage.USAGE_REPORT, service.report)
routes.read(usage.USAGE_LIST, service.list_records)
routes.read(usage.USAGE_SUMMARY, service.summarise)
routes.stream(usage.USAGE_EXPORT, export.open_export)
