"""HTTP routes of artifacts, and of app versions where artifacts or trust keys decide. Artifacts of a project, of an app
and of the platform have the same use cases."""

from gpuaas_contract import artifacts, catalog, conformance, deliveries, trust_keys

from gpuaas_platform.artifacts import deliveries as artifact_deliveries
from gpuaas_platform.artifacts import service, statements, storage, trust, versions
from gpuaas_platform.call import Routes
from gpuaas_platform.catalog import service as app_versions

routes = Routes()
routes.write(artifacts.PUBLISH, service.publish)
routes.write(artifacts.SHARED_PUBLISH, service.publish)
routes.read(artifacts.LIST, service.list_artifacts)
routes.read(artifacts.SHARED_LIST, service.list_artifacts)
routes.read(artifacts.STORAGE_GET, storage.present)
routes.read(artifacts.SHARED_STORAGE_GET, storage.present)
routes.read(artifacts.GET, service.get)
routes.read(artifacts.SHARED_GET, service.visible)
routes.upload(artifacts.CONTENT_PUT, service.uploaded, prepare=service.upload)
routes.upload(artifacts.SHARED_CONTENT_PUT, service.uploaded, prepare=service.upload)
routes.write(artifacts.SIGNATURE_PUT, service.sign)
routes.write(artifacts.SHARED_SIGNATURE_PUT, service.sign)
routes.write(artifacts.VERIFY, service.conclude, prepare=service.examine)
routes.write(artifacts.SHARED_VERIFY, service.conclude, prepare=service.examine)
routes.write(artifacts.PROMOTE, service.promote, prepare=service.examine_again)
routes.write(artifacts.SHARED_PROMOTE, service.promote, prepare=service.examine_again)
routes.write(artifacts.DEPRECATE, service.deprecate)
routes.write(artifacts.SHARED_DEPRECATE, service.deprecate)
routes.write(artifacts.RETIRE, service.retire)
routes.write(artifacts.SHARED_RETIRE, service.retire)
routes.write(artifacts.REVOKE, service.revoke)
routes.write(artifacts.SHARED_REVOKE, service.revoke)

routes.write(artifacts.APP_PUBLISH, service.publish)
routes.read(artifacts.APP_LIST, service.list_artifacts)
routes.read(artifacts.APP_GET, service.visible)
routes.upload(artifacts.APP_CONTENT_PUT, service.uploaded, prepare=service.upload)
routes.write(artifacts.APP_SIGNATURE_PUT, service.sign)
routes.write(artifacts.APP_VERIFY, service.conclude, prepare=service.examine)
routes.write(artifacts.APP_PROMOTE, service.promote, prepare=service.examine_again)
routes.write(artifacts.APP_DEPRECATE, service.deprecate)
routes.write(artifacts.APP_RETIRE, service.retire)

routes.write(catalog.VERSION_REGISTER, versions.register, prepare=app_versions.check_manifest)
routes.write(catalog.APP_VERSION_REGISTER, versions.register, prepare=app_versions.check_manifest)
routes.write(catalog.VERSION_PUBLISH, versions.publish)
routes.write(conformance.CARD_PUT, statements.attach)

routes.read(trust_keys.TRUST_KEY_LIST, trust.list_keys)
routes.read(trust_keys.SHARED_TRUST_KEY_LIST, trust.list_keys)
routes.write(trust_keys.TRUST_KEY_PUT, trust.add)
routes.write(trust_keys.SHARED_TRUST_KEY_PUT, trust.add)
routes.write(trust_keys.TRUST_KEY_REVOKE, trust.revoke)
routes.write(trust_keys.SHARED_TRUST_KEY_REVOKE, trust.revoke)

routes.write(deliveries.DELIVERY_CREATE, artifact_deliveries.create)
routes.stream(deliveries.CONTENT_GET, artifact_deliveries.open_content)
