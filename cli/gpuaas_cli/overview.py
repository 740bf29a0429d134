"""All commands by group, with module and summary. Shown as the first page of the help."""

from gpuaas_cli.flags import HELP

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "A cloud on this machine": {
        "up": ("cloud", "start a local GPU cloud with an app on it; a second run starts only what is missing"),
        "down": ("cloud", "stop the local GPU cloud; its data stays unless --purge is given"),
    },
    "Look": {
        "get": ("get", "list resources: instances, members, operations, nodes, allocations, apps, events…"),
        "describe": ("describe", "show all details of an instance, an operation or a member"),
        "triage": ("record", "show everything that is recorded under one correlation id, in time order"),
        "access": ("instances", "show how to use an app instance: its endpoints, paths and commands"),
        "events": ("record", "print the events of a project as they happen"),
        "usage": ("record", "show or export usage: single records, daily sums, CSV"),
        "whoami": ("sign_in", "show who you are signed in as, and your roles"),
        "doctor": ("doctor", "check this installation and its connection to the server"),
        "explain": ("explain", "explain a resource, its fields and the commands that act on it; works offline"),
        "schema": ("explain", "show the request and the answer of each endpoint of the API; works offline"),
    },
    "Run apps": {
        "deploy": ("instances", "deploy an app on allocations and show the progress"),
        "member": ("member", "add, drain, resume, remove or replace members of an instance"),
        "stop": ("instances", "stop an app; members, machines and data stay"),
        "start": ("instances", "start a stopped app"),
        "restart": ("instances", "stop and start an app"),
        "upgrade": ("instances", "move an instance to another version of its app"),
        "rollback": ("instances", "return an instance to its app version before the last upgrade"),
        "reconfigure": ("instances", "change inputs of a running instance, or return to the previous ones"),
        "decommission": ("instances", "remove an app instance from all its machines"),
        "op": ("op", "watch operations or wait for them; retry, cancel, undo or close one"),
        "action": ("action", "list and run the actions that the app of an instance offers"),
        "hold": ("instances", "protect a member from new work or from removal for some time"),
        "role": ("instances", "allow adding members to a role again after too many failed"),
        "operator": ("instances", "set which service account's controller works on an instance"),
        "secret": ("access", "list and destroy the secrets that an app gave to its machines"),
        "ssh": ("access", "log in to a machine by SSH, with a certificate for ten minutes"),
    },
    "Set up": {
        "login": ("sign_in", "sign in to a server"),
        "logout": ("sign_in", "sign out: end your session and delete its token here"),
        "context": ("context", "list the servers that you have signed in to, choose the current one"),
        "password": ("people", "change your own password"),
        "session": ("people", "list your sessions, end one"),
        "org": ("people", "create organisations"),
        "project": ("people", "create, rename and delete projects, choose the current one"),
        "service-account": ("people", "create and delete service accounts and their keys"),
        "node": ("node", "admit nodes, look at them and their health, cordon, drain and retire them"),
        "agent": ("agent", "register and approve releases of the node agent, install them on nodes"),
        "allocation": ("allocation", "claim nodes for a project, choose who can log in to them, release them"),
        "credential": ("access", "store private SSH keys that apps need to log in to other hosts"),
        "ssh-key": ("access", "register and delete your own public SSH keys"),
        "app": ("app", "register, publish and retire app versions, set who may deploy them"),
        "entitlement": ("entitlement", "request apps for a project, list and refuse such requests"),
        "artifact": ("artifact", "publish, verify, promote and revoke artifacts, set which signing keys are trusted"),
    },
    "Who may do what": {
        "user": ("people", "create, disable and enable people, set their passwords"),
        "people": ("people", "list who can log in to the project's machines, with login names and numbers"),
        "binding": ("people", "list who has which role, give and remove roles"),
        "policy": ("rights", "show, change and explain the policies that restrict projects"),
        "can-i": ("rights", "show whether you have a permission, and what decides it"),
        "grant": ("access", "list who may log in to machines now, end such access"),
        "break-glass": ("rights", "take temporary access to a project in an emergency, with a reason"),
        "custody": ("access", "show where secrets are stored, unseal a server with its passphrase"),
        "audit": ("record", "show who did what, and whose requests were refused"),
    },
    "Other programs": {
        "lab": ("", "manage the machines of a local cloud on this host (gpuaas-lab)"),
        "server": ("", "run the platform's server (gpuaas-platform server)"),
    },
}
"""Title of the group -> command -> its module and its summary."""


def page() -> str:
    lines = ["gpuaas - apps on GPU clouds", "", "Usage: gpuaas COMMAND [ARGUMENTS] [FLAGS]"]
    for title, commands in COMMANDS.items():
        lines += ["", title, *(f"  {name:<16} {text}" for name, (_, text) in commands.items())]
    lines += ["", HELP.replace(" · ", "  "), "", "First steps: gpuaas up      Help on a command: gpuaas COMMAND --help"]
    return "\n".join(lines)
