"""Enter machines, who may do so, and the secrets that open something: grants, credentials, SSH keys, custody.

gpuaas ssh slurm
gpuaas ssh gpu-2 -- nvidia-smi
gpuaas ssh gpu-2 -- 'df -h; free -g'
gpuaas ssh gpu-2 --root -- sudo systemctl status ssh
    Log in to a machine by SSH as yourself, with a certificate for ten minutes. For an instance: to the machine on which
    users log in.

    You have an account of your own on every machine of the project, without sudo. --root enters as the allocation's
    user, which has sudo; it needs the permission access.machine.root, which admins of the project have.

    Words after -- are a command to run there; gpuaas ssh exits with its status. One quoted word is run by the shell.
    target ALLOCATION|NODE|INSTANCE
    command COMMAND
    root --root: Log in as the allocation's user, with sudo, and not as yourself.
    tty --tty -t: Run the command in a terminal, as interactive programs need.
gpuaas grant
    A grant is a short-lived SSH certificate for one machine, usable from one source address.
gpuaas grant list --allocation gpu-3
    List who may log in to the project's machines.
    allocation_id --allocation ALLOCATION|NODE: Only grants for the machine of this allocation or node.
    operation_id --operation OPERATION: Only grants that were made for this operation.
gpuaas grant revoke grant_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "laptop stolen"
    End a grant: the machine refuses its certificate and closes its SSH sessions within seconds.
gpuaas credential
    A credential is a private SSH key that the platform stores encrypted. Apps may use it; no one can read it back.
gpuaas credential create rack-7 --username admin --key-file ~/.ssh/rack7
gpuaas credential create rack-7 < rack7.key
    Store a private SSH key. The key must have no passphrase; the platform stores it encrypted.
    private_key --key-file FILE: File with the private key; - is stdin.
    --username USER: User name with which the key logs in to the hosts.
gpuaas credential list
    List the credentials of the project with fingerprint, version and last use. The keys are never shown.
gpuaas credential rotate rack-7 --key-file ~/.ssh/rack7-new
    Replace the private key of a credential; the old key is destroyed.
    private_key --key-file FILE: File with the private key; - is stdin.
gpuaas credential revoke rack-7 --reason "hosts are gone"
    Destroy the private key of a credential. Apps that have not fetched the key yet can no longer get it.
gpuaas ssh-key
    Your public SSH keys. They open your own account on the machines of clusters that you are a person of. `gpuaas
    allocation people` sets whose keys also open the administrator's account of a machine.
gpuaas ssh-key add ~/.ssh/id_ed25519.pub
    Register a public SSH key of yours with the platform.
    public_key FILE: File with the public key (.pub); - is stdin.
    --comment: Comment that names the key; by default the comment in the file.
gpuaas ssh-key list
    Your public keys.
gpuaas ssh-key delete ada@laptop
    Delete one of your public SSH keys and remove it from every machine.
gpuaas secret
    A secret is a value that an app's controller gives to the app's machines. Its value is never shown.
gpuaas secret list slurm
    List the secrets of an instance, without their values.
gpuaas secret revoke slurm munge-key
    Destroy the value of a secret. Machines that have not read it yet can no longer get it.
gpuaas custody
    Custody is the encrypted store of secrets. A sealed server cannot store or read secrets until it gets the
    passphrase.
gpuaas custody status
    Show where secrets are stored, and whether this server can read them.
gpuaas custody unseal < passphrase
    Give this server the passphrase of the key that encrypts secrets. You are asked for it, or it is read from stdin.
"""

from collections.abc import Sequence
from typing import Any

from gpuaas_contract.access import GRANT_LIST, GRANT_REVOKE, MACHINE_ACCESS, MachineGrant
from gpuaas_contract.capacity import ALLOCATION_GET
from gpuaas_contract.credentials import CREDENTIAL_CREATE, CREDENTIAL_LIST, CREDENTIAL_REVOKE, CREDENTIAL_ROTATE
from gpuaas_contract.custody import CUSTODY_GET, UNSEAL, CustodyStatus
from gpuaas_contract.instances import ACCESS_BUNDLE_GET
from gpuaas_contract.secrets import SECRET_LIST, SECRET_REVOKE
from gpuaas_contract.ssh_keys import SSH_KEY_CREATE, SSH_KEY_DELETE, SSH_KEY_LIST

from gpuaas_cli import failures, output
from gpuaas_cli.client import machine
from gpuaas_cli.input import ask
from gpuaas_cli.output import table
from gpuaas_cli.runner import SWITCH, Call, Command, Field, asked, nothing


async def _list(call: Call) -> Sequence[Any]:
    if not call["allocation_id"]:
        return await call.rows()
    allocation = await call.session.call(ALLOCATION_GET, allocation_id=call["allocation_id"])
    return await call.rows(allocation_id=allocation.allocation_id)


def _revoked(call: Call, grant: MachineGrant) -> None:
    if grant.enforced_at is None and not call.dry_run:
        again = f"gpuaas get grant {grant.grant_id} -o json"
        output.talk(f"{grant.node_name} is being informed; enforced_at in {again} shows when it refuses the grant.")


def _private_key(call: Call, path: str) -> str:
    name = call["name"] or call["credential_id"]
    return ask.document(call.flags, path, "The private key", f"gpuaas {call.words} {name} --key-file FILE")


def _public_key(call: Call, file: str) -> str:
    content = ask.document(call.flags, file, "The public key", "gpuaas ssh-key add FILE")
    if "PRIVATE KEY" in content:
        raise failures.usage(f"{file} holds a private key; nothing was sent", f"gpuaas ssh-key add {file}.pub")
    return content.strip()


async def _confirm(call: Call) -> None:
    ask.require_answer(call.flags, call.line)
    secret = await call.send(dry_run=True)
    consequence = f"This destroys the value of {secret.name} for {call['instance_id']}. No machine can fetch it again."
    ask.confirm(consequence, name=secret.name, what="secret", again=call.line)


def state(status: CustodyStatus) -> str:
    if status.refused:
        return "refused"
    return "sealed" if status.sealed else "open"


def next_command(status: CustodyStatus) -> str:
    """Return the command that unseals custody; empty if custody is not sealed."""
    return (status.fix or "gpuaas custody unseal") if status.sealed else ""


async def _ssh(call: Call) -> int:
    async with machine.entered(call.session, call["target"], "root" if call["root"] else "person") as login:
        return machine.run(login, call["command"] or [], tty=call["tty"])


_KEY_FILE = {"private_key": Field(default="-", read=_private_key)}
_PASSPHRASE = asked(lambda call: ask.secret(call.flags, "Passphrase", "gpuaas custody unseal"))
_TABLE = table("STORE STATE KEY", state, STATE=state)
COMMANDS = {
    "ssh": Command(
        calls=(MACHINE_ACCESS, ACCESS_BUNDLE_GET),
        extra={"command": Field(type=list[str], default=None), "root": SWITCH, "tty": SWITCH},
        work=_ssh,
        show=nothing,
    ),
    "grant list": Command(GRANT_LIST, work=_list),
    "grant revoke": Command(GRANT_REVOKE, then=_revoked),
    "credential create": Command(
        CREDENTIAL_CREATE,
        fields=_KEY_FILE,
        next="put its public half on the hosts: gpuaas get credential {name} -o json",
    ),
    "credential list": CREDENTIAL_LIST,
    "credential rotate": Command(CREDENTIAL_ROTATE, fields=_KEY_FILE),
    "credential revoke": CREDENTIAL_REVOKE,
    "ssh-key add": Command(SSH_KEY_CREATE, fields={"public_key": Field(read=_public_key)}, next="gpuaas ssh INSTANCE"),
    "ssh-key list": SSH_KEY_LIST,
    "ssh-key delete": SSH_KEY_DELETE,
    "secret list": SECRET_LIST,
    "secret revoke": Command(SECRET_REVOKE, confirm=_confirm),
    "custody status": Command(CUSTODY_GET, table=_TABLE, next=next_command),
    "custody unseal": Command(UNSEAL, fields={"passphrase": _PASSPHRASE}, table=_TABLE),
}
