"""Make the access bundle, which shows users how to use the cluster. Pure; `reports` publishes it."""

import msgspec
from gpuaas_sdk.controller import AccessBundle, Command, Connection

from gpuaas_app_slurm.workload import choices, config, home


class Login(msgspec.Struct, frozen=True):
    """The machine where people log in: a login machine if there is one, otherwise the controller machine."""

    allocation_id: str
    hostname: str
    address: str


def bundle(
    inputs: config.Inputs,
    instance_name: str,
    login: Login,
    controller_address: str,
    workers: int,
    homes: home.Home,
) -> AccessBundle:
    user = inputs.users[0]
    on_every_worker = {"Run on every worker": f"srun -N{workers} hostname"} if workers else {}
    lines = on_every_worker | {
        "See the nodes": "sinfo -N -l",
        _surprising("Submit a batch job", homes): "sbatch --wrap 'hostname; sleep 10'",
        "Ask for one GPU": "srun --gres=gpu:1 env",
        "See the queue": "squeue",
        "See past jobs": "sacct -X",
        "Is the scheduler healthy": "scontrol ping",
        "Is accounting healthy": "sacctmgr -n show cluster",
        "Why nodes do not take jobs": "sinfo -R -o '%60E %12u %N'",
    }
    return AccessBundle(
        endpoints=[
            Connection(name="login", url=f"ssh://{login.address}"),
            Connection(name="slurmctld", url=f"tcp://{controller_address}:6817"),
            Connection(name="slurmdbd", url=f"tcp://{controller_address}:6819"),
            *([Connection(name="rest", url=config.rest_url(controller_address))] if inputs.rest_api else []),
        ],
        paths={
            "slurm.conf": "/etc/slurm/slurm.conf",
            "controller log": "/var/log/slurm/slurmctld.log",
            "accounting log": "/var/log/slurm/slurmdbd.log",
            "worker log": "/var/log/slurm/slurmd.log",
            "home": f"{home.PEOPLE}/{user}",
        },
        commands=[
            Command(title=title, line=line, allocation_id=login.allocation_id, user=user)
            for title, line in lines.items()
        ],
        notes=[
            f"Log in to {login.hostname} as yourself: `gpuaas ssh {instance_name}`. All people of the project can.",
            f"Admins enter as root with `gpuaas ssh {instance_name} --root`, for example for `sudo -iu {user}`.",
            f"Every user is in the Slurm account `default`: {', '.join(inputs.users)}.",
            "MPI programs start with `srun ./program`; `srun --mpi=list` shows which interfaces this Slurm has.",
            f"A job without `--time` gets {inputs.default_time}; at most {inputs.max_time} can be requested.",
            *(_partition_note(partition) for partition in inputs.partitions),
            _home_note(homes),
        ],
    )


def _surprising(title: str, homes: home.Home) -> str:
    """Add to the title of a command where its output is, if that is not where people look for it."""
    return f"{title} (its output is on the machine that ran it)" if homes.kind == "local" else title


def _partition_note(partition: choices.Partition) -> str:
    limits = f"without `--time` {partition.default_time}, at most {partition.max_time}"
    return f"`--partition={partition.name}` has the same workers: {limits}, priority tier {partition.priority_tier}."


def _home_note(homes: home.Home) -> str:
    if homes.kind == "local":
        return f"Warning: {home.LOCAL_WARNING}. Homes are deleted when the instance is decommissioned."
    return f"Home folders are on {homes.source} and the same on every machine. They stay after a decommission."
