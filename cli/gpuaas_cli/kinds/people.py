"""Organisations, projects, people, their roles and sessions, and service accounts."""

from gpuaas_contract import bindings, identity, sessions, users

from gpuaas_cli.kinds.kind import Kind

KINDS = (
    Kind(
        "orgs",
        identity.ORG_LIST,
        "name",
        "NAME ORG=org_id AGE=created_at",
        words="organisation organisations",
        known_by=("name", "org_id"),
    ),
    Kind(
        "projects",
        identity.PROJECT_LIST,
        "name",
        "NAME PROJECT=project_id ORG=org_id AGE=created_at",
        words="proj",
        getting=identity.PROJECT_GET,
    ),
    Kind(
        "users",
        users.USER_LIST,
        "name",
        "NAME STATE PASSWORD=has_password PROVIDER=issuer AGE=created_at USER=user_id",
        words="people",
        getting=users.USER_GET,
    ),
    Kind(
        "sessions",
        sessions.SESSION_LIST,
        "session_id",
        "SESSION=session_id CURRENT AGE=created_at UNTIL=expires_at KEY=key_id*",
        known_by=("session_id",),
    ),
    Kind(
        "bindings",
        bindings.PROJECT_BINDING_LIST,
        "binding_id",
        "BINDING=binding_id USER=user_name ROLE SCOPE UNTIL=expires_at BY=created_by* AGE=created_at REASON",
        words="role-binding role-bindings",
        known_by=("binding_id",),
    ),
    Kind(
        "service-accounts",
        identity.SERVICE_ACCOUNT_LIST,
        "name",
        "NAME STATE AGE=created_at SERVICE_ACCOUNT=service_account_id",
        words="serviceaccount serviceaccounts sa",
        getting=identity.SERVICE_ACCOUNT_GET,
    ),
)
