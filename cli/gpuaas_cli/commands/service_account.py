"""`gpuaas service-account`: identities for programs, and the keys they sign in with.

gpuaas service-account
    Service accounts are how programs sign in.
gpuaas service-account create slurm-controller --key-file slurm.json
    Create a service account, and with --key-file its first key. The secret is never shown, only written.
    --key-file FILE: Write a new key here, 0600; - is stdout.
gpuaas service-account list
    Service accounts of the project.
gpuaas service-account disable slurm-controller
    End all of its sessions at once; its keys open nothing until it is enabled.
gpuaas service-account enable slurm-controller
    Let a disabled service account sign in again, with its keys.
gpuaas service-account delete slurm-controller
    Delete a service account with all its keys, for good.
gpuaas service-account key slurm-controller --key-file slurm.json
    Make another key for a service account.
    --key-file FILE: Write a new key here, 0600; - is stdout.
gpuaas service-account keys slurm-controller
    Keys of a service account: when they were made and last used. Never a secret.
gpuaas service-account rotate-key slurm-controller key_01k9z0c5p3v2m8q7r6t5w4x3y2 --key-file new.json
    Put a new key in the place of another; at most a day of grace.
    grace_s --grace TIME: How long the old key still works: 10m, 1h.
    --key-file FILE: Write a new key here, 0600; - is stdout.
gpuaas service-account revoke-key slurm-controller key_01k9z0c5p3v2m8q7r6t5w4x3y2
    End a key and the sessions that were made with it.
"""

import json
import sys
from pathlib import Path
from typing import Any

from gpuaas_contract import identity
from gpuaas_contract.identity import KEY_GRACE_MAX_S, ServiceAccount, ServiceAccountKey

from gpuaas_cli import failures, output
from gpuaas_cli.client import home
from gpuaas_cli.input import values
from gpuaas_cli.output import table
from gpuaas_cli.runner import Call, Command, Field, run

_KEYS = table("KEY=key_id AGE=created_at USED=last_used_at UNTIL=expires_at BY=created_by")
_KEY_FILE = Field(default=...)


def _check_file(call: Call) -> None:
    """A key that is in use must not be lost to a typo, and none is made that cannot be written."""
    file = call["key_file"]
    if file not in ("", "-") and Path(file).exists():
        raise failures.Failure(f"{file} exists; it may hold a key in use", fix="Name another file.", code="exists")


async def _create(call: Call) -> tuple[ServiceAccount, ServiceAccountKey | None]:
    account = await call.send()
    if not call["key_file"] or call.dry_run:
        return account, None
    key = await call.session.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=account.service_account_id)
    return account, key


def _keep(call: Call, key: ServiceAccountKey) -> None:
    if call.dry_run:
        return
    file = call["key_file"]
    content = json.dumps({"key_id": key.key_id, "client_secret": key.client_secret}) + "\n"
    if file == "-":
        sys.stdout.write(content)
        return
    home.write_private(Path(file).absolute(), content.encode())
    output.talk(f"Key {key.key_id} is in {file}; the platform keeps no copy of its secret.")


def _grace(_: Call, text: str) -> int:
    grace_s = values.span_s(text, "--grace")
    if grace_s > KEY_GRACE_MAX_S:
        raise failures.usage(f"{text} of grace is more than a day", "--grace 24h")
    return grace_s


def _made(call: Call, answer: Any) -> None:
    """The account is shown unless its key goes to stdout."""
    account, key = answer
    if call["key_file"] != "-":
        call.show(account)
    if key is not None:
        _keep(call, key)


app = run.group(
    "service-account",
    __doc__,
    create=Command(identity.SERVICE_ACCOUNT_CREATE, check=_check_file, work=_create, show=_made),
    list=identity.SERVICE_ACCOUNT_LIST,
    disable=identity.SERVICE_ACCOUNT_DISABLE,
    enable=identity.SERVICE_ACCOUNT_ENABLE,
    delete=identity.SERVICE_ACCOUNT_DELETE,
    key=Command(identity.SERVICE_ACCOUNT_KEY_CREATE, extra={"key_file": _KEY_FILE}, check=_check_file, show=_keep),
    keys=Command(identity.SERVICE_ACCOUNT_KEY_LIST, table=_KEYS),
    rotate_key=Command(
        identity.SERVICE_ACCOUNT_KEY_ROTATE,
        fields={"grace_s": Field(default="0s", read=_grace)},
        extra={"key_file": _KEY_FILE},
        check=_check_file,
        show=_keep,
    ),
    revoke_key=Command(identity.SERVICE_ACCOUNT_KEY_REVOKE, table=_KEYS),
)
