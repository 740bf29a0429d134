"""Routes of sign-in, sessions, the caller's own identity, organisations and projects."""

from gpuaas_contract import identity, sessions

from gpuaas_platform.call import Routes
from gpuaas_platform.identity import oidc, orgs, service

routes = Routes()
routes.flow(identity.LOGIN, service.login)
routes.flow(identity.SERVICE_ACCOUNT_TOKEN, service.service_account_login)
routes.flow(sessions.OIDC_AUTHORIZE, oidc.start)
routes.flow(sessions.OIDC_EXCHANGE, oidc.finish)
routes.read(identity.ME, service.me)
routes.read(sessions.SESSION_LIST, service.list_sessions)
routes.write(sessions.SESSION_END, service.end_session)
routes.write(sessions.LOGOUT, service.logout)
routes.write(identity.ORG_CREATE, orgs.create_org)
routes.read(identity.ORG_LIST, orgs.list_orgs)
routes.write(identity.PROJECT_CREATE, orgs.create_project)
routes.read(identity.PROJECT_LIST, orgs.list_projects)
routes.read(identity.PROJECT_GET, orgs.get_project)
routes.write(identity.PROJECT_RENAME, orgs.rename_project)
