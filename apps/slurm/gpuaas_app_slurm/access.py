"""Make the access bundle, which shows users how to use the cluster. Pure; `reports` publishes it."""

from gpuaas_sdk.controller import AccessBundle, Command, Connection

from gpuaas_app_slurm.workload import config


def bundle(
    inputs: config.Inputs, instance_name: str, allocation_id: str, hostname: str, address: str, workers: int
) -> AccessBundle:
    user = inputs.users[0]
    on_every_worker = {"Run on every worker": f"srun -N{workers} hostname"} if workers else {}
    lines = on_every_worker | {
        "See the nodes": "sinfo -N -l",
        "Submit a batch job": "sbatch --wrap 'hostname; sleep 10'",
        "Ask for one GPU": "srun --gres=gpu:1 env",
        "See the queue": "squeue",
        "See past jobs": "sacct -X",
        "Is the scheduler healthy": "scontrol ping",
        "Is accounting healthy": "sacctmgr -n show cluster",
        "Why nodes do not take jobs": "sinfo -R",
    }
    return AccessBundle(
        endpoints=[
            Connection(name="login", url=f"ssh://{address}"),
            Connection(name="slurmctld", url=f"tcp://{address}:6817"),
            Connection(name="slurmdbd", url=f"tcp://{address}:6819"),
        ],
        paths={
            "slurm.conf": "/etc/slurm/slurm.conf",
            "controller log": "/var/log/slurm/slurmctld.log",
            "accounting log": "/var/log/slurm/slurmdbd.log",
            "worker log": "/var/log/slurm/slurmd.log",
            "home": f"/home/{user}",
        },
        commands=[
            Command(title=title, line=line, allocation_id=allocation_id, user=user) for title, line in lines.items()
        ],
        notes=[
            f"Log in to the controller, {hostname}: `gpuaas ssh {instance_name} --root`, then `sudo -iu {user}`. "
            "To log in without the platform, put your public key into the user's ~/.ssh/authorized_keys there.",
            f"Every user is in the Slurm account `default`: {', '.join(inputs.users)}.",
            "MPI programs start with `srun --mpi=pmix`.",
            "Home folders are local to each machine, and are deleted when the instance is decommissioned.",
        ],
    )
