"""HTTP routes of machine grants, placements, runtime secrets, credentials, and the status and unsealing of custody."""

from gpuaas_contract import access, credentials, custody, placements, secrets

from gpuaas_platform.access import custody as custody_service
from gpuaas_platform.access.credentials import service as credential_service
from gpuaas_platform.access.machines import revoke
from gpuaas_platform.access.machines import service as grant_service
from gpuaas_platform.access.placements import service as placement_service
from gpuaas_platform.access.secrets import service as secret_service
from gpuaas_platform.call import Routes

routes = Routes()
routes.write(
    access.MACHINE_ACCESS,
    grant_service.grant,
    authorise=grant_service.check_root,
    prepare=grant_service.with_signing_key,
)
routes.read(access.GRANT_LIST, grant_service.list_grants)
routes.write(access.GRANT_REVOKE, revoke.revoke)

routes.write(placements.PLACEMENT_CREATE, placement_service.place)
routes.write(placements.PLACEMENT_REMOVE, placement_service.unplace)
routes.flow(placements.PLACEMENT_GET, placement_service.wait_for)
routes.stream(placements.PLACED_CONTENT_GET, placement_service.open_content)

routes.flow(secrets.SECRET_ISSUE, secret_service.issue)
routes.flow(secrets.DELIVERY_OPEN, secret_service.open_delivery)
routes.read(secrets.SECRET_LIST, secret_service.list_secrets)
routes.write(secrets.SECRET_REVOKE, secret_service.revoke)

routes.flow(credentials.CREDENTIAL_CREATE, credential_service.create)
routes.read(credentials.CREDENTIAL_LIST, credential_service.list_credentials)
routes.read(credentials.CREDENTIAL_GET, credential_service.get)
routes.flow(credentials.CREDENTIAL_ROTATE, credential_service.rotate)
routes.write(credentials.CREDENTIAL_REVOKE, credential_service.revoke)
routes.write(credentials.CREDENTIAL_DELIVER, credential_service.deliver, prepare=credential_service.check_custody)
routes.flow(credentials.CREDENTIAL_OPEN, credential_service.open_delivery)

routes.flow(custody.CUSTODY_GET, custody_service.get_custody)
routes.flow(custody.UNSEAL, custody_service.unseal)
