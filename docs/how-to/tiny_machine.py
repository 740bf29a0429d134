"""Answer the action list-work of the app tiny from its machines, over SSH: see write-a-controller.md.

python tiny_machine.py --url http://127.0.0.1:7070 --project PROJECT --key-file tiny-key.json
"""

import argparse
import asyncio
import json
import shlex
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any

from tiny_controller import Platform

LEASE_S = 60
SCRIPT = "echo $(id -un) sees $(ls -d /proc/[0-9]* | wc -l) processes"


async def enter(platform: Platform, claim: Any, member: Any, folder: Path) -> list[str]:
    """Get a certificate for the member's machine; return the beginning of an ssh command that logs in with it."""
    key, certificate, known_hosts = folder / "key", folder / "key-cert.pub", folder / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)  # noqa: ASYNC221
    operation = claim["operation"]
    body = {"public_key": key.with_suffix(".pub").read_text(), "operation_id": operation["operation_id"]}
    headers = {"X-Idempotency-Key": uuid.uuid4().hex, "X-Correlation-ID": operation["correlation_id"]}
    path = f"/allocations/{member['allocation_id']}/machine-access"
    access = await platform.call("POST", path, {**body, "epoch": claim["epoch"]}, headers)
    certificate.write_text(access["certificate"])
    known_hosts.write_text(f"[{access['host']}]:{access['port']},{access['host']} {access['host_public_key']}\n")
    given = {"UserKnownHostsFile": known_hosts, "CertificateFile": certificate, "StrictHostKeyChecking": "yes"}
    options = {**given, "IdentitiesOnly": "yes", "BatchMode": "yes", "ConnectTimeout": "10"}
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-i", str(key), "-p", str(access["port"]), *words, f"{access['user']}@{access['host']}", "--"]


async def look(platform: Platform, claim: Any, member: Any) -> str:
    """Return who this is on the machine, after sudo, and how many processes run there."""
    with tempfile.TemporaryDirectory() as folder:
        ssh = await enter(platform, claim, member, Path(folder))
        command = [*ssh, "sudo", "-n", "--", "sh", "-c", shlex.quote(SCRIPT)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        printed, _ = await process.communicate()
    if process.returncode:
        raise OSError(f"ssh to {member['node_name']} ended with {process.returncode}")
    return f"{member['node_name']}: {printed.decode().strip()}"


async def answer_one(platform: Platform) -> None:
    """Claim one operation, look at each machine of its instance, and complete it with what was seen."""
    request = {"app_slug": "tiny", "holder": "tiny", "claim_id": uuid.uuid4().hex, "lease_s": LEASE_S}
    claim = await platform.call("POST", "/operations/claim", {**request, "wait_s": 30})
    if claim["operation"]:
        try:
            seen = [await look(platform, claim, member) for member in claim["members"]]
        except OSError as error:
            failure = {"code": "machine_away", "message": str(error), "failure_class": "retryable"}
            await platform.report(claim, "fail", **failure)
        else:
            await platform.report(claim, "complete", result={"work": seen})


async def main(options: argparse.Namespace) -> None:
    platform = Platform(options.url, options.project, json.loads(Path(options.key_file).read_text()))  # noqa: ASYNC240
    while True:
        await answer_one(platform)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Actions of the made-up app tiny, from its machines.")
    for name in ("--url", "--project", "--key-file"):
        parser.add_argument(name, required=True)
    asyncio.run(main(parser.parse_args()))
