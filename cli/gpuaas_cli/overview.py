"""All commands by group, with module and summary. Shown as the first page of the help."""

from gpuaas_cli.flags import HELP

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "A cloud on this machine": {
        "up": ("cloud", "start a local GPU cloud with an app on it; again: only what is missing"),
        "down": ("cloud", "stop it; data stays unless --purge"),
    },
    "Look": {
        "get": ("get", "list things: instances, members, operations, nodes, allocations, apps, events…"),
        "describe": ("describe", "the whole story of an instance, an operation or a member"),
        "triage": ("record", "everything that carries one correlation id, in time order"),
        "access": ("instances", "how to use an app instance: endpoints, paths, commands"),
        "events": ("record", "follow what happens in a project, as it happens"),
        "usage": ("record", "what was used: records, daily sums, CSV"),
        "whoami": ("sign_in", "who you are and with which roles"),
        "doctor": ("doctor", "check this installation and its way to the server"),
        "explain": ("explain", "what a resource and its fields mean, and which commands act on it; works offline"),
        "schema": ("explain", "what the API takes and answers, endpoint by endpoint; works offline"),
    },
    "Run apps": {
        "deploy": ("instances", "deploy an app on allocations and follow it"),
        "member": ("member", "add, drain, resume, remove or replace members of an instance"),
        "stop": ("instances", "stop an app; members, machines and data stay"),
        "start": ("instances", "start a stopped app"),
        "restart": ("instances", "stop and start an app"),
        "upgrade": ("instances", "move an instance to another version of its app"),
        "rollback": ("instances", "go back to the version before the last upgrade"),
        "decommission": ("instances", "tear an instance down on every machine"),
        "op": ("op", "follow operations, wait for them, retry, cancel, and other exits"),
        "action": ("action", "what an app lets you do with an instance"),
        "hold": ("instances", "keep a member from work or from removal for a while"),
        "role": ("instances", "let a role take new members again after too many failed"),
        "operator": ("instances", "whose controller works on an instance"),
        "secret": ("access", "values an app issued for its machines: list them, destroy them"),
        "ssh": ("access", "log in to a machine with a certificate of ten minutes"),
    },
    "Set up": {
        "login": ("sign_in", "sign in to a server"),
        "logout": ("sign_in", "end your session and forget its token"),
        "password": ("people", "change your own password"),
        "session": ("people", "where you are signed in; end it"),
        "org": ("people", "create organisations"),
        "project": ("people", "create projects, choose the one to work in"),
        "service-account": ("people", "service accounts and their keys, from making to ending them"),
        "node": ("node", "admit nodes, look at them and their health, cordon, drain and retire them"),
        "agent": ("agent", "signed releases of the node agent; approve them, upgrade nodes one after another"),
        "allocation": ("allocation", "claim nodes for a project, choose who is on them, give them back"),
        "credential": ("access", "private keys for hosts that know no other, kept in custody"),
        "ssh-key": ("access", "your own public keys"),
        "app": ("app", "register, show, publish, retire and entitle apps"),
        "artifact": ("artifact", "publish, verify, promote and revoke content; whose signatures count"),
    },
    "Who may do what": {
        "user": ("people", "create, disable and enable people, set their passwords"),
        "binding": ("people", "who holds which role: give and take roles"),
        "policy": ("rights", "what is allowed where: show, narrow, explain"),
        "can-i": ("rights", "whether you may do something, and what decides it"),
        "grant": ("access", "who may enter machines now; end it"),
        "break-glass": ("rights", "temporary access to a project in an emergency, with a reason"),
        "custody": ("access", "where secrets are kept; open them on a sealed server"),
        "audit": ("record", "who did what, and who was refused"),
    },
    "Other programs": {
        "lab": ("", "machines on this host (gpuaas-lab)"),
        "server": ("", "the control plane (gpuaas-platform server)"),
    },
}
"""Title of the group -> command -> its module and its summary."""


def page() -> str:
    lines = ["gpuaas - apps on GPU clouds", "", "Usage: gpuaas COMMAND [ARGUMENTS] [FLAGS]"]
    for title, commands in COMMANDS.items():
        lines += ["", title, *(f"  {name:<16} {text}" for name, (_, text) in commands.items())]
    lines += ["", HELP.replace(" · ", "  "), "", "First steps: gpuaas up      Help on a command: gpuaas COMMAND --help"]
    return "\n".join(lines)
