"""Organisations, projects, people, their roles, passwords and sessions, and service accounts.

gpuaas org
    Organisations own projects.
gpuaas org create acme --admin ada
    Create an organisation. You get no role in it, unless you name yourself.
    first_admin --admin USER: Person who becomes tenant_admin of the organisation, by name or id.
gpuaas project
    Projects own allocations, service accounts and app instances.
gpuaas project create research --org acme
    Create a project. Your first project becomes the current one.
    org_id --org: Organisation, by name or id.
gpuaas project get research
    Show one project.
    project_id NAME
gpuaas project rename research research-2
    Rename a project; its id stays.
    project_id NAME
    name NEW_NAME
gpuaas project delete research
    Delete an empty project. Otherwise it is refused, and the resources that the project still owns are listed.
    project_id NAME
gpuaas project use research
    Make a project the current one: later commands use it.
    project_id NAME
gpuaas user
    Users are created here, or when they first sign in through an identity provider. gpuaas binding grant gives them
    roles.
gpuaas user create ada --password
    Create a person. The password is asked for, or read from stdin; never give it on the command line.
    with_password --password: Set a password: ask for it, or read it from stdin. By default the person has none.
gpuaas user list
    Every user.
gpuaas user disable ada
    Disable a person: their sessions end at once, and they cannot sign in until they are enabled.
gpuaas user enable ada
    Let a disabled person sign in again, with the roles they have.
gpuaas user set-password ada
    Give a person a new password and end all their sessions. It is asked for, or read from stdin.
gpuaas people
    The people who can log in to the project's machines, each with a login name and a number that never change.
gpuaas people list
    List login, number and state of everyone who can log in to the project's machines, and of everyone who could.
gpuaas people set ada --login alovelace --uid 21000 --org acme
    Set login and number of a person before their first role in the organisation, for sites with existing numbers.
    user_id PERSON: Name or id. If you may not list people, name the person by id.
    --login: Login name on machines: lower-case letters, digits, hyphens and underscores.
    --uid NUMBER: User number on machines, also used for the person's group.
    org_id --org: Organisation, by name or id.
gpuaas password
    Change your own password and end your other sessions. The present and the new one are asked for, or read from
    stdin as two lines; never give them on the command line.
gpuaas session
    A session begins when you sign in, and expires. gpuaas logout ends the current one.
gpuaas session list
    List your sessions; the current one is marked.
gpuaas session end ses_01k9z0c5p3v2m8q7r6t5w4x3y2
    End one of your sessions: requests with its token are refused from now on.
gpuaas binding
    A binding gives a person a role on the platform, an app, an organisation or a project, and on everything inside it.
gpuaas binding list --org acme
    List the roles that were given on the platform, in an organisation or in the project.
gpuaas binding grant ada project_member --project research
gpuaas binding grant ada app_publisher --app slurm
    Give a person a role; its permissions must be ones that you have. If you may not list people, name the person by id.
    user_id USER: Name or id.
    role ROLE
gpuaas binding revoke bind_01k9z0c5p3v2m8q7r6t5w4x3y2 --org acme
    Take a role away from a person, from their next request on.
gpuaas service-account
    A service account is an identity with which a program signs in. It belongs to a project, or with --org to an
    organisation: then it operates one app, in the projects that accept it.
gpuaas service-account create slurm-controller --app slurm --key-file slurm.json
gpuaas service-account create slurm-fleet --app slurm --org acme --key-file fleet.json
    Create a service account, and with --key-file its first key. The key's secret is written to the file and never
    shown.
    apps --app APP: An app that the account operates; repeatable. It can work on no other app.
    permissions --permission KEY: Give the account only this permission of those that its apps declare; repeatable.
    --key-file FILE: File for the new key, readable only by you; - is stdout.
gpuaas service-account get slurm-controller
    Show one service account with its apps and permissions.
gpuaas service-account bind slurm-controller --app slurm
    Set which apps a service account operates, and its permissions. Both replace what the account had before.
    apps --app APP: An app that the account operates; repeatable. Without it, the account can work on no app.
    permissions --permission KEY: Give the account only this permission of those that its apps declare; repeatable. By
    default all of them.
gpuaas service-account list
    List the service accounts of the project, or with --org those of an organisation.
gpuaas service-account accept slurm-fleet --project research
    Let a service account of the organisation operate its app in the project, which must be entitled to the app. A
    dry run shows the permissions that it would get.
gpuaas service-account dismiss slurm-fleet --project research
    End the access of an organisation's service account to the project, from its next request on. Its leases end.
gpuaas service-account accepted --project research
    List the service accounts of the organisation that the project accepts.
gpuaas service-account disable slurm-controller
    Disable a service account: its sessions end at once, and it cannot sign in until it is enabled. With --org, its
    leases in all projects end too.
gpuaas service-account enable slurm-controller
    Let a disabled service account sign in again, with its keys.
gpuaas service-account delete slurm-controller
    Delete a service account and its keys permanently.
gpuaas service-account key slurm-controller --key-file slurm.json
    Make another key for a service account.
    --key-file FILE: File for the new key, readable only by you; - is stdout.
gpuaas service-account keys slurm-controller
    List the keys of a service account: when each was made and last used. Secrets are never shown.
gpuaas service-account rotate-key slurm-controller key_01k9z0c5p3v2m8q7r6t5w4x3y2 --key-file new.json
    Replace a key of a service account. With --grace, the old key works for at most one more day.
    grace_s --grace TIME: How long the old key still works: 10m, 1h.
    --key-file FILE: File for the new key, readable only by you; - is stdout.
gpuaas service-account revoke-key slurm-controller key_01k9z0c5p3v2m8q7r6t5w4x3y2
    End a key and the sessions that were made with it.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuaas_contract import bindings, identity, org_accounts, permissions, posix, sessions, users
from gpuaas_contract.identity import KEY_GRACE_MAX_S, ServiceAccount, ServiceAccountKey
from gpuaas_contract.org_accounts import AcceptedAccount

from gpuaas_cli import failures, output, terminal
from gpuaas_cli.client import home
from gpuaas_cli.input import ask, values
from gpuaas_cli.output import table
from gpuaas_cli.runner import SWITCH, Call, Command, Field, Levels, asked, words


def _use_first(call: Call, made: identity.Project) -> None:
    if not call.session.target.project and not call.dry_run:
        home.change_context(home.folder(os.environ), call.session.target.context, project_id=made.project_id)


def _use(call: Call, chosen: identity.Project) -> None:
    home.change_context(home.folder(os.environ), call.session.target.context, project_id=chosen.project_id)
    output.talk(f"Commands are now about project {chosen.name} ({chosen.project_id}).")


def _password(call: Call) -> str:
    name = call["name"] or call["user_id"]
    option = " --password" if call["with_password"] else ""
    return ask.new_password(call.flags, name, f"gpuaas {call.words} {name}{option}")


def _show_password(call: Call, made: users.User) -> None:
    """Report that no password was set; a script may have given one on stdin, which is not read without --password."""
    if not made.has_password and not call.dry_run:
        output.talk(
            "No password was set, because stdin is read only with --password. The person cannot sign in with one."
        )
        output.talk(f"  to set one: gpuaas user set-password {made.name} < FILE")


def _changed(call: Call, _: object) -> None:
    if not call.dry_run:
        output.talk("Your password was changed. Your other sessions have ended; this one continues.")


def _check_role(call: Call) -> None:
    known = permissions.GRANTABLE[call.level]
    if call["role"] not in known:
        raise failures.usage(
            f"{call['role']} cannot be given at this level ({call.level}); {', '.join(known)} can",
            "gpuaas binding grant --help",
        )


def _check_file(call: Call) -> None:
    """Refuse a file that cannot be written before a key is created. An existing one may contain a key in use."""
    file = call["key_file"]
    if file in ("", "-"):
        return
    if Path(file).exists():
        raise failures.Failure(f"{file} exists; it may hold a key in use", fix="Name another file.", code="exists")
    folder = Path(file).absolute().parent
    if not folder.is_dir():
        raise failures.usage(f"The folder of {file} does not exist; no key was made", f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise failures.usage(f"The folder of {file} is not writable for you; no key was made", "Name another file.")


async def _create_account(call: Call) -> tuple[ServiceAccount, ServiceAccountKey | None]:
    account = await call.send()
    if not call["key_file"] or call.dry_run:
        return account, None
    where = {"service_account_id": account.service_account_id}
    if call.level == "org":
        return account, await call.session.call(org_accounts.KEY_CREATE, org_id=account.org_id, **where)
    return account, await call.session.call(identity.SERVICE_ACCOUNT_KEY_CREATE, **where)


def _keep(call: Call, key: ServiceAccountKey) -> None:
    if call.dry_run:
        return
    file = call["key_file"]
    content = json.dumps({"key_id": key.key_id, "client_secret": key.client_secret}) + "\n"
    if file == "-":
        terminal.out(content, end="")
        return
    home.write_private(Path(file).absolute(), content.encode())
    output.talk(f"Key {key.key_id} is in {file}; the platform keeps no copy of its secret.")


def _grace(_: Call, text: str) -> int:
    grace_s = values.span_s(text, "--grace")
    if grace_s > KEY_GRACE_MAX_S:
        raise failures.usage(f"{text} of grace is more than a day", "--grace 24h")
    return grace_s


def _show_account(call: Call, answer: Any) -> None:
    """Show the account, except if its key is written to stdout."""
    account, key = answer
    if call["key_file"] != "-":
        call.show(account)
    if key is not None:
        _keep(call, key)


def _account_page(account: ServiceAccount) -> list[str]:
    return [
        f"{account.name}  {account.state}  {account.service_account_id}",
        f"apps         {', '.join(account.apps) or 'none: it can claim no operation'}",
        *_permission_lines(account.permissions),
    ]


def _acceptance_page(accepted: AcceptedAccount) -> list[str]:
    return [
        f"{accepted.name}  {accepted.state}  {accepted.service_account_id}",
        f"project      {accepted.project_id}",
        f"organisation {accepted.org_id}",
        f"app          {accepted.app_slug}",
        *_permission_lines(accepted.permissions),
    ]


def _permission_lines(keys: Sequence[str]) -> list[str]:
    return [f"{'permissions' if at == 0 else '':<12} {key}" for at, key in enumerate(keys)]


def _warn_if_disabled(_: Call, accepted: AcceptedAccount) -> None:
    if accepted.state != "active":
        output.talk(
            f"warning: {accepted.name} is {accepted.state}, so it can do nothing here. A tenant admin can enable it: "
            f"gpuaas service-account enable {accepted.name} --org {accepted.org_id}"
        )


def _root(person: posix.PosixPerson) -> str:
    return "yes" if person.is_admin else "no"


_KEYS = table("KEY=key_id AGE=created_at USED=last_used_at UNTIL=expires_at BY=created_by")
_PEOPLE = table("LOGIN UID STATE ROOT NAME USER=user_id", lambda person: person.state, ROOT=_root)
_IDENTITIES = table("LOGIN UID AGE=created_at USER=user_id")
_KEY_FILE = {"key_file": Field(default=...)}
_REACH = {
    "apps": Field(type=list[str], default=None, read=lambda _, given: words(given or [])),
    "permissions": Field(type=list[str], default=None, read=lambda _, given: words(given or []) or None),
}
_LIST = Levels(
    bindings.PROJECT_BINDING_LIST,
    bindings.PLATFORM_BINDING_LIST,
    bindings.ORG_BINDING_LIST,
    app=bindings.APP_BINDING_LIST,
)
_GRANT = Levels(
    bindings.PROJECT_BINDING_CREATE,
    bindings.PLATFORM_BINDING_CREATE,
    bindings.ORG_BINDING_CREATE,
    app=bindings.APP_BINDING_CREATE,
)
_REVOKE = Levels(
    bindings.PROJECT_BINDING_DELETE,
    bindings.PLATFORM_BINDING_DELETE,
    bindings.ORG_BINDING_DELETE,
    app=bindings.APP_BINDING_DELETE,
)
COMMANDS = {
    "org create": identity.ORG_CREATE,
    "project create": Command(identity.PROJECT_CREATE, fields={"org_id": Field(default=...)}, then=_use_first),
    "project get": identity.PROJECT_GET,
    "project rename": Command(identity.PROJECT_RENAME, reads=identity.PROJECT_GET),
    "project delete": identity.PROJECT_DELETE,
    "project use": Command(identity.PROJECT_GET, show=_use),
    "user create": Command(
        users.USER_CREATE,
        fields={"password": asked(lambda call: _password(call) if call["with_password"] else "")},
        extra={"with_password": SWITCH},
        next="gpuaas binding grant {name} ROLE",
        then=_show_password,
    ),
    "user list": users.USER_LIST,
    "user disable": users.USER_DISABLE,
    "user enable": users.USER_ENABLE,
    "user set-password": Command(users.USER_SET_PASSWORD, fields={"password": asked(_password)}),
    "people list": Command(posix.POSIX_PEOPLE, table=_PEOPLE),
    "people set": Command(posix.POSIX_IDENTITY_SET, fields={"org_id": Field(default=...)}, table=_IDENTITIES),
    "password": Command(
        users.MY_PASSWORD,
        fields={
            "present_password": asked(lambda call: ask.secret(call.flags, "Present password", "gpuaas password")),
            "new_password": asked(lambda call: ask.new_password(call.flags, "yours from now on", "gpuaas password")),
        },
        then=_changed,
    ),
    "session list": sessions.SESSION_LIST,
    "session end": sessions.SESSION_END,
    "binding list": _LIST,
    "binding grant": Command(
        _GRANT,
        check=_check_role,
    ),
    "binding revoke": _REVOKE,
    "service-account create": Command(
        Levels(identity.SERVICE_ACCOUNT_CREATE, org=org_accounts.CREATE),
        fields=_REACH,
        check=_check_file,
        work=_create_account,
        show=_show_account,
    ),
    "service-account get": Command(Levels(identity.SERVICE_ACCOUNT_GET, org=org_accounts.GET), page=_account_page),
    "service-account bind": Command(
        Levels(identity.SERVICE_ACCOUNT_BIND, org=org_accounts.BIND), fields=_REACH, page=_account_page
    ),
    "service-account list": Levels(identity.SERVICE_ACCOUNT_LIST, org=org_accounts.LIST),
    "service-account accept": Command(org_accounts.ACCEPT, page=_acceptance_page, then=_warn_if_disabled),
    "service-account dismiss": Command(org_accounts.DISMISS, page=_acceptance_page),
    "service-account accepted": org_accounts.ACCEPTED_LIST,
    "service-account disable": Levels(identity.SERVICE_ACCOUNT_DISABLE, org=org_accounts.DISABLE),
    "service-account enable": Levels(identity.SERVICE_ACCOUNT_ENABLE, org=org_accounts.ENABLE),
    "service-account delete": Levels(identity.SERVICE_ACCOUNT_DELETE, org=org_accounts.DELETE),
    "service-account key": Command(
        Levels(identity.SERVICE_ACCOUNT_KEY_CREATE, org=org_accounts.KEY_CREATE),
        extra=_KEY_FILE,
        check=_check_file,
        show=_keep,
    ),
    "service-account keys": Command(Levels(identity.SERVICE_ACCOUNT_KEY_LIST, org=org_accounts.KEY_LIST), table=_KEYS),
    "service-account rotate-key": Command(
        Levels(identity.SERVICE_ACCOUNT_KEY_ROTATE, org=org_accounts.KEY_ROTATE),
        fields={"grace_s": Field(default="0s", read=_grace)},
        extra=_KEY_FILE,
        check=_check_file,
        show=_keep,
    ),
    "service-account revoke-key": Command(
        Levels(identity.SERVICE_ACCOUNT_KEY_REVOKE, org=org_accounts.KEY_REVOKE), table=_KEYS
    ),
}
