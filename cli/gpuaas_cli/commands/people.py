"""Organisations, projects, people, their roles, passwords and sessions.

gpuaas org
    Organisations own projects.
gpuaas org create acme
    Create an organisation.
gpuaas project
    Projects own allocations, service accounts and app instances.
gpuaas project create research --org acme
    Create a project; the first one becomes the one you work in.
    org_id --org: Organisation, by name or id.
gpuaas project get research
    Show one project.
    project_id NAME
gpuaas project rename research research-2
    Rename a project; its id stays.
    project_id NAME
    name NEW_NAME
gpuaas project delete research
    Delete a project that owns nothing; what it still owns is listed.
    project_id NAME
gpuaas project use research
    Work in this project from now on.
    project_id NAME
gpuaas user
    People are made here, or by their first sign-in through an identity provider; roles are given apart.
gpuaas user create ada --password
    Create a person. The password is asked for, or read from stdin; never give it on the command line.
    with_password --password: Ask for a password, or read it from stdin; without, none is set.
gpuaas user list
    Every user.
gpuaas user disable ada
    End all of a person's sessions at once and let them start no new ones.
gpuaas user enable ada
    Let a disabled person sign in again, with the roles they have.
gpuaas user set-password ada
    Give a person a new password and end all their sessions. It is asked for, or read from stdin.
gpuaas password
    Change your own password and end your other sessions. The present and the new one are asked for, or read from
    stdin as two lines; never give them on the command line.
gpuaas session
    A session begins with a sign-in and ends by itself; gpuaas logout ends the one you are in.
gpuaas session list
    Your sessions; the one this call is made with is marked.
gpuaas session end ses_01k9z0c5p3v2m8q7r6t5w4x3y2
    End one of your sessions: its token opens nothing from now on.
gpuaas binding
    A role reaches everything below the place it is given at: the platform, an organisation, a project.
gpuaas binding list --org acme
    Roles given at the platform, in an organisation, or in the project.
gpuaas binding grant ada project_member --project research
    Give a person a role, at most one of your own. People without the right to list people name them by id.
    user_id USER: Name or id.
    role ROLE
gpuaas binding revoke bind_01k9z0c5p3v2m8q7r6t5w4x3y2 --org acme
    Take a role away; it counts from the next call on.
"""

import os

from gpuaas_contract import bindings, identity, permissions, sessions, users

from gpuaas_cli import failures, output
from gpuaas_cli.client import home
from gpuaas_cli.input import ask
from gpuaas_cli.runner import SWITCH, Call, Command, Field, Levels, asked, run

org = run.group("org", __doc__, create=identity.ORG_CREATE)


def _use_first(call: Call, made: identity.Project) -> None:
    if not call.session.target.project and not call.dry_run:
        home.change_context(home.folder(os.environ), call.session.target.context, project_id=made.project_id)


def _use(call: Call, chosen: identity.Project) -> None:
    home.change_context(home.folder(os.environ), call.session.target.context, project_id=chosen.project_id)
    output.talk(f"Commands are now about project {chosen.name} ({chosen.project_id}).")


project = run.group(
    "project",
    __doc__,
    create=Command(identity.PROJECT_CREATE, fields={"org_id": Field(default=...)}, then=_use_first),
    get=identity.PROJECT_GET,
    rename=Command(identity.PROJECT_RENAME, reads=identity.PROJECT_GET),
    delete=identity.PROJECT_DELETE,
    use=Command(identity.PROJECT_GET, show=_use),
)


def _password(call: Call) -> str:
    name = call["name"] or call["user_id"]
    return ask.new_password(call.flags, name, f"gpuaas {call.words} {name}")


user = run.group(
    "user",
    __doc__,
    create=Command(
        users.USER_CREATE,
        fields={"password": asked(lambda call: _password(call) if call["with_password"] else "")},
        extra={"with_password": SWITCH},
        next="gpuaas binding grant {name} ROLE",
    ),
    list=users.USER_LIST,
    disable=users.USER_DISABLE,
    enable=users.USER_ENABLE,
    set_password=Command(users.USER_SET_PASSWORD, fields={"password": asked(_password)}),
)


def _changed(call: Call, _: object) -> None:
    if not call.dry_run:
        output.talk("Changed. Your other sessions have ended; this one continues.")


password = run.single(
    "password",
    __doc__,
    Command(
        users.MY_PASSWORD,
        fields={
            "present_password": asked(lambda call: ask.secret(call.flags, "Present password", "gpuaas password")),
            "new_password": asked(lambda call: ask.new_password(call.flags, "yours from now on", "gpuaas password")),
        },
        then=_changed,
    ),
)


own_sessions = run.group("session", __doc__, list=sessions.SESSION_LIST, end=sessions.SESSION_END)


def _check_role(call: Call) -> None:
    known = permissions.GRANTABLE[call.level]
    if call["role"] not in known:
        raise failures.usage(
            f"{call['role']} cannot be given at this level ({call.level}); {', '.join(known)} can",
            "gpuaas binding grant --help",
        )


binding = run.group(
    "binding",
    __doc__,
    list=Levels(bindings.PROJECT_BINDING_LIST, bindings.PLATFORM_BINDING_LIST, bindings.ORG_BINDING_LIST),
    grant=Command(
        Levels(bindings.PROJECT_BINDING_CREATE, bindings.PLATFORM_BINDING_CREATE, bindings.ORG_BINDING_CREATE),
        check=_check_role,
    ),
    revoke=Levels(bindings.PROJECT_BINDING_DELETE, bindings.PLATFORM_BINDING_DELETE, bindings.ORG_BINDING_DELETE),
)
