"""The actions of the app: jobs through the API of Ray's dashboard on the head, and what waits for resources."""

from typing import Any

from gpuaas_sdk import results
from gpuaas_sdk.controller import Operation, cluster

from gpuaas_app_ray import plan
from gpuaas_app_ray.workload import ray


async def submit(op: Operation) -> dict[str, Any]:
    """Submit a job. Its id is that of the operation, so it is not submitted twice after a crash."""
    script = f"{ray.DATA}/jobs/{op.id}.py"
    entrypoint = op.inputs.get("entrypoint", "python {script}").replace("{script}", script)

    async def run() -> None:
        machine = await op.machine(cluster.head(op, plan.HEAD))
        await machine.put(script, op.inputs.get("script", ""))
        if op.id not in {job["submission_id"] for job in await _api(op, "GET")}:
            await _api(op, "POST", "", {"entrypoint": entrypoint, "submission_id": op.id})

    await op.step("submit", run)
    return await _status(op, op.id)


async def stop(op: Operation) -> dict[str, Any]:
    await _api(op, "POST", f"{op.inputs['job']}/stop", {})
    return await _status(op, op.inputs["job"])


async def listed(op: Operation) -> dict[str, Any]:
    newest = sorted(await _api(op, "GET"), key=lambda job: job["start_time"] or 0, reverse=True)
    return results.first_rows(map(plan.job_row, newest[:200]), len(newest), "They are the newest jobs.")


async def logs(op: Operation) -> dict[str, Any]:
    text = str((await _api(op, "GET", f"{op.inputs['job']}/logs"))["logs"] or "")
    return {"rows": [{"line": line} for line in results.last_lines(text.splitlines()[-1000:])]}


async def demand(op: Operation) -> dict[str, Any]:
    status = await ray.api(await op.machine(cluster.head(op, plan.HEAD)), "GET", "/api/cluster_status?format=0")
    workers = sum(member.component_key == plan.WORKER and member.status == "ready" for member in op.members)
    return plan.demand(status["data"]["clusterStatus"]["loadMetricsReport"], workers)


async def _status(op: Operation, job: str) -> dict[str, Any]:
    return {"rows": [{"job": job, "status": (await _api(op, "GET", job))["status"]}]}


async def _api(op: Operation, method: str, path: str = "", body: object = None) -> Any:
    return await ray.api(await op.machine(cluster.head(op, plan.HEAD)), method, f"/api/jobs/{path}", body)
