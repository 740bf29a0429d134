"""Organisations, projects, people, their roles and sessions, and service accounts."""

from gpuaas_contract.bindings import PROJECT_BINDING_LIST
from gpuaas_contract.identity import ORG_LIST, PROJECT_LIST, SERVICE_ACCOUNT_LIST
from gpuaas_contract.sessions import SESSION_LIST
from gpuaas_contract.users import USER_LIST

from gpuaas_cli.client import lookup
from gpuaas_cli.kinds.kind import Kind, listed, names
from gpuaas_cli.output import Column, age, clock_time

KINDS: tuple[Kind, ...] = (
    Kind(
        "orgs",
        names("org", "orgs", "organisation", "organisations"),
        listed(ORG_LIST),
        (
            Column("NAME", lambda one: one.name),
            Column("ORG", lambda one: one.org_id),
            Column("AGE", lambda one: age(one.created_at)),
        ),
        lambda one: one.name,
        lambda one: (one.name, one.org_id),
    ),
    Kind(
        "projects",
        names("project", "projects", "proj"),
        listed(PROJECT_LIST),
        (
            Column("NAME", lambda one: one.name),
            Column("PROJECT", lambda one: one.project_id),
            Column("ORG", lambda one: one.org_id),
            Column("AGE", lambda one: age(one.created_at)),
        ),
        lambda one: one.name,
        lambda one: (one.name, one.project_id),
    ),
    Kind(
        "users",
        names("user", "users", "people"),
        listed(USER_LIST),
        (
            Column("NAME", lambda one: one.name),
            Column("STATE", lambda one: one.state),
            Column("PASSWORD", lambda one: "yes" if one.has_password else "no"),
            Column("PROVIDER", lambda one: one.issuer),
            Column("AGE", lambda one: age(one.created_at)),
            Column("USER", lambda one: one.user_id),
        ),
        lambda one: one.name,
        lambda one: (one.name, one.user_id),
        find=lookup.user,
    ),
    Kind(
        "sessions",
        names("session", "sessions"),
        listed(SESSION_LIST),
        (
            Column("SESSION", lambda one: one.session_id),
            Column("CURRENT", lambda one: "yes" if one.current else "no"),
            Column("AGE", lambda one: age(one.created_at)),
            Column("UNTIL", lambda one: clock_time(one.expires_at)),
            Column("KEY", lambda one: one.key_id, wide=True),
        ),
        lambda one: one.session_id,
        lambda one: (one.session_id,),
    ),
    Kind(
        "bindings",
        names("binding", "bindings", "role-binding", "role-bindings"),
        listed(PROJECT_BINDING_LIST),
        (
            Column("BINDING", lambda one: one.binding_id),
            Column("USER", lambda one: one.user_name),
            Column("ROLE", lambda one: one.role),
            Column("SCOPE", lambda one: one.scope),
            Column("UNTIL", lambda one: clock_time(one.expires_at) if one.expires_at else ""),
            Column("BY", lambda one: one.created_by, wide=True),
            Column("AGE", lambda one: age(one.created_at)),
            Column("REASON", lambda one: one.reason),
        ),
        lambda one: one.binding_id,
        lambda one: (one.binding_id,),
    ),
    Kind(
        "service-accounts",
        names("service-account", "service-accounts", "serviceaccount", "serviceaccounts", "sa"),
        listed(SERVICE_ACCOUNT_LIST),
        (
            Column("NAME", lambda one: one.name),
            Column("STATE", lambda one: one.state),
            Column("AGE", lambda one: age(one.created_at)),
            Column("SERVICE_ACCOUNT", lambda one: one.service_account_id),
        ),
        lambda one: one.name,
        lambda one: (one.name, one.service_account_id),
        find=lookup.service_account,
    ),
)
