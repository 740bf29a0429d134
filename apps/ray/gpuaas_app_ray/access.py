"""Make the access bundle, which shows people how to use the cluster. Pure."""

from gpuaas_sdk.controller import AccessBundle, Command, Connection, Member

from gpuaas_app_ray.workload.ray import DASHBOARD, DATA, TOKEN, UNIT, USER

SUBMIT = f"sudo -u {USER} env $(systemctl show -P Environment {UNIT}) ray job submit -- python --version"


def bundle(instance: str, head: Member) -> AccessBundle:
    return AccessBundle(
        endpoints=[Connection(name="dashboard", url=DASHBOARD)],
        paths={"logs": f"{DATA}/tmp/session_latest/logs", "token": TOKEN},
        commands=[Command(title="Submit a job as an admin", line=SUBMIT, allocation_id=head.allocation_id)],
        notes=[
            f"People submit jobs with: gpuaas action run {instance} job.submit",
            f"The dashboard answers on {head.node_name} itself only. Forward port 8265 of {head.address} by SSH.",
            f"It asks for the token: gpuaas ssh {head.node_name} --root -- sudo cat {TOKEN}",
        ],
    )
