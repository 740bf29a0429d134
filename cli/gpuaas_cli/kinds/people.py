"""Organisations, projects, people, their roles and sessions, and service accounts.

orgs organisation organisations: NAME ORG=org_id AGE=created_at
projects proj: NAME PROJECT=project_id ORG=org_id AGE=created_at
users people: NAME STATE PASSWORD=has_password PROVIDER=issuer AGE=created_at USER=user_id
sessions: SESSION=session_id CURRENT AGE=created_at UNTIL=expires_at KEY=key_id*
bindings role-binding role-bindings: BINDING=binding_id USER=user_name ROLE SCOPE UNTIL=expires_at BY=created_by*
    AGE=created_at REASON
service-accounts serviceaccount serviceaccounts sa: NAME STATE APPS AGE=created_at
    SERVICE_ACCOUNT=service_account_id
accepted-accounts: NAME STATE APP=app_slug AGE=accepted_at BY=accepted_by SERVICE_ACCOUNT=service_account_id
"""

from gpuaas_contract import bindings, identity, org_accounts, sessions, users

from gpuaas_cli.kinds.kind import Kind

KINDS = {
    "orgs": Kind(identity.ORG_LIST, ids="org_id"),
    "projects": Kind(identity.PROJECT_LIST, getting=identity.PROJECT_GET),
    "users": Kind(users.USER_LIST, getting=users.USER_GET),
    "sessions": Kind(sessions.SESSION_LIST),
    "bindings": Kind(bindings.PROJECT_BINDING_LIST),
    "service-accounts": Kind(identity.SERVICE_ACCOUNT_LIST, getting=identity.SERVICE_ACCOUNT_GET),
    "accepted-accounts": Kind(org_accounts.ACCEPTED_LIST, ids="service_account_id"),
}
