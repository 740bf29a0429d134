"""A complete app controller that uses only an HTTP client and a service-account key: see write-a-controller.md.

python tiny_controller.py --url http://127.0.0.1:7070 --project PROJECT --key-file tiny-key.json
"""

import argparse
import asyncio
import datetime
import json
import uuid
from pathlib import Path
from typing import Any

import httpx

LEASE_S = 6
UP, OUT, IN, GONE = ["ready"], ["draining", "drained"], ["provisioning", "joining", "ready"], ["removing", "removed"]
WAYS = {
    "deploy": IN, "add": IN, "drain": OUT, "resume": UP, "remove": OUT + GONE, "replace": [*OUT, "removing", *IN],
    "stop": OUT, "start": UP, "restart": OUT + UP, "upgrade": OUT + UP, "rollback": OUT + UP,
    "decommission": OUT + GONE,
}  # fmt: skip
WAYS_BACK = {"deploy": GONE, "add": GONE, "resume": OUT, "start": OUT}


class Platform:
    """The platform's API. Every request of a controller may be repeated, so it is repeated until it is answered."""

    def __init__(self, url: str, project: str, key: dict[str, str]) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=60)
        self._path, self._key = f"/api/v1/projects/{project}", key

    async def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        while True:
            try:
                answer = await self._client.request(method, self._path + path, json=body, headers=headers)
                if answer.status_code == 401:
                    login = await self._client.post("/api/v1/auth/service-account/token", json=self._key)
                    self._client.headers["Authorization"] = f"Bearer {login.raise_for_status().json()['access_token']}"
                elif answer.status_code in (429, 503):
                    await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))
                else:
                    return answer.raise_for_status().json()
            except httpx.TransportError:
                await asyncio.sleep(1)

    async def report(self, claim: Any, what: str, **body: Any) -> Any:
        """Report on an operation with the epoch of the claim, under the correlation id of the operation."""
        path = f"/operations/{claim['operation']['operation_id']}/{what}"
        headers = {"X-Correlation-ID": claim["operation"]["correlation_id"]}
        return await self.call("PUT", path, {"epoch": claim["epoch"], **body}, headers)


async def serve(platform: Platform) -> None:
    """Claim operations forever, and work on all claimed ones at the same time."""
    async with asyncio.TaskGroup() as working:
        while True:
            request = {"app_slug": "tiny", "holder": "tiny", "claim_id": uuid.uuid4().hex, "lease_s": LEASE_S}
            claim = await platform.call("POST", "/operations/claim", {**request, "wait_s": 20})
            if claim["operation"]:
                working.create_task(carry_out(platform, claim))


async def carry_out(platform: Platform, claim: Any) -> None:
    """Work and extend the lease. After a cancel: stop and undo. After the lease is lost: stop and report nothing."""
    back = claim["operation"]["status"] == "cancelling" or claim["operation"]["compensating"]
    work = asyncio.create_task(work_on(platform, claim, back=back))
    try:
        while not (await asyncio.wait([work], timeout=LEASE_S / 3))[0]:
            lease = await platform.report(claim, "lease", lease_s=LEASE_S)
            if lease["cancel_requested"] and not back:
                work.cancel()
                work, back = asyncio.create_task(work_on(platform, claim, back=True)), True
        await work
    except httpx.HTTPStatusError as error:
        work.cancel()
        code, message = (error.response.json()[name] for name in ("code", "message"))
        if code != "lease_lost":
            await platform.report(claim, "fail", code=code, message=message, failure_class="repairable")


async def work_on(platform: Platform, claim: Any, *, back: bool) -> None:
    operation, outcome = claim["operation"], dict[str, Any]()
    for target in operation["targets"]:
        await move(platform, claim, target["member_id"], back=back)
    if operation["kind"] == "action":
        outcome["result"] = {"work": running_on([member["member_id"] for member in claim["members"]])}
    elif operation["kind"] == "preview":
        running = [{"work_id": work_id} for work_id in running_on(operation["inputs"]["member_ids"])]
        outcome["preview"] = {"answered": True, "source": "tiny", "observed_at": now(), "running_work": running}
    elif operation["kind"] == "deploy" and not back:
        await platform.report(claim, "access-bundle", notes=["The action list-work shows what runs."])
    await platform.report(claim, "complete", undone=back, **outcome)


async def move(platform: Platform, claim: Any, member_id: str, *, back: bool) -> None:
    """Read the present state and continue from there: after a crash another process has done part of the work."""
    operation = await platform.call("GET", f"/operations/{claim['operation']['operation_id']}")
    member = await platform.call("GET", f"/app-instances/{operation['instance_id']}/members/{member_id}")
    target = next(entry for entry in operation["targets"] if entry["member_id"] == member_id)
    done = {(step["name"], step["member_id"]) for step in operation["steps"] if step["state"] == "succeeded"}
    version = operation["from_version" if back else "to_version"] or claim["instance"]["app_version"]
    for state in way(operation["kind"], member["status"], back=back):
        step = {"name": f"back to {state}" if back else state, "member_id": member_id}
        if (step["name"], member_id) not in done and target["outcome"] != "skipped":
            await platform.report(claim, "steps", **step, state="running")
            try:
                seen = await bring(member_id, state, version, force=operation["force"])
            except OSError as error:
                await platform.report(claim, "steps", **step, state="failed", message=str(error))
                await platform.report(claim, f"members/{member_id}", status="failed", status_reason=str(error))
                return
            await platform.report(claim, f"members/{member_id}", status=state, evidence=seen, observed_version=version)
            await platform.report(claim, "steps", **step, state="succeeded")


def way(kind: str, status: str, *, back: bool) -> list[str]:
    """Return the states from the present one to the goal of the operation, or back to the state before it."""
    if back and kind in ("remove", "replace") and status in ("removing", "provisioning", "joining"):
        return WAYS[kind][WAYS[kind].index(status) + 1 :]  # too late to undo: continue to the end
    states = [] if status in ("removed", "tombstoned") else WAYS_BACK.get(kind, UP) if back else WAYS[kind]
    return [state for state in states if state not in OUT or status in ("ready", "degraded", "draining")]


def running_on(member_ids: list[str]) -> list[str]:
    """Return the work on these members. Here the app itself begins: one file per member represents its machine."""
    files = [Path(f"{member_id}.work") for member_id in member_ids]
    return [work_id for file in files if file.exists() for work_id in file.read_text().split()]


async def bring(member_id: str, state: str, version: str, *, force: bool) -> dict[str, Any]:
    """Bring the member into the state, also if it is there already; return what was observed at the end."""
    while state == "drained" and running_on([member_id]) and not force:  # noqa: ASYNC110 - the work ends elsewhere
        await asyncio.sleep(0.1)
    Path(member_id).write_text(json.dumps({"state": state, "version": version}))  # noqa: ASYNC240
    count = len(running_on([member_id]))
    return {"state": "busy" if count else "idle", "source": "tiny", "observed_at": now(), "running_work": count}


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The controller of the made-up app tiny.")
    for name in ("--url", "--project", "--key-file"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    key = json.loads(Path(options.key_file).read_text())
    asyncio.run(serve(Platform(options.url, options.project, key)))
