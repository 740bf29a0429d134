"""Organisations, projects, people, their roles and sessions, and service accounts."""

from gpuaas_contract import bindings, identity, sessions, users

from gpuaas_cli.kinds.kind import Kind

KINDS = (
    Kind("orgs", identity.ORG_LIST, "NAME ORG=org_id AGE=created_at", words="organisation organisations", ids="org_id"),
    Kind(
        "projects",
        identity.PROJECT_LIST,
        "NAME PROJECT=project_id ORG=org_id AGE=created_at",
        words="proj",
        getting=identity.PROJECT_GET,
    ),
    Kind(
        "users",
        users.USER_LIST,
        "NAME STATE PASSWORD=has_password PROVIDER=issuer AGE=created_at USER=user_id",
        words="people",
        getting=users.USER_GET,
    ),
    Kind("sessions", sessions.SESSION_LIST, "SESSION=session_id CURRENT AGE=created_at UNTIL=expires_at KEY=key_id*"),
    Kind(
        "bindings",
        bindings.PROJECT_BINDING_LIST,
        "BINDING=binding_id USER=user_name ROLE SCOPE UNTIL=expires_at BY=created_by* AGE=created_at REASON",
        words="role-binding role-bindings",
    ),
    Kind(
        "service-accounts",
        identity.SERVICE_ACCOUNT_LIST,
        "NAME STATE AGE=created_at SERVICE_ACCOUNT=service_account_id",
        words="serviceaccount serviceaccounts sa",
        getting=identity.SERVICE_ACCOUNT_GET,
    ),
)
