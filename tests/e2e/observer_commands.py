"""What the observer of a machine tries to change in a cluster: each command must be refused."""

CHANGING = (
    "scontrol update nodename=gpu-2 state=drain reason=mine",
    "scontrol update nodename=gpu-2 state=down reason=mine",
    "scontrol update nodename=gpu-2 extra=mine",
    "scontrol update partitionname=main state=down",
    "scontrol update jobid=$job timelimit=1",
    "scontrol hold $job",
    "scontrol requeue $job",
    "scontrol suspend $job",
    "scontrol create reservation reservationname=mine starttime=now duration=60 nodes=gpu-2 users=root",
    "scontrol delete nodename=gpu-3",
    "scontrol create nodename=mine",
    "scontrol reboot gpu-2",
    "scontrol reconfigure",
    "scontrol shutdown",
    "scontrol setdebug debug5",
    "sdiag --reset",
    "scancel $job",
    "sbatch --wrap true",
    "srun true",
    "salloc true",
    "echo '* * * * * true' | scrontab -",
    "strigger --set --node --down --program=/bin/true",
    "sacctmgr -i add account mine",
    "sacctmgr -i add user $(id -un) account=default",
    "sacctmgr -i modify user researcher set maxjobs=0",
    "sacctmgr -i delete user researcher",
    "mariadb slurm_acct_db -e 'show tables'",
    "cat /etc/slurm/slurm.key",
    "cat /etc/slurm/slurmdbd.conf",
    "echo mine >>/etc/slurm/slurm.conf",
    "echo mine >>/etc/slurm/gpuaas/health-check",
    "echo mine >/run/gpuaas-slurm/health.json",
    "touch /var/lib/slurm/slurmctld/mine",
    "touch /var/log/slurm/mine",
    "touch /home/people/mine",
    "touch ~researcher/mine",
    "kill $(pgrep -o slurmctld)",
    "kill $(pgrep -o mariadbd)",
    "systemctl stop slurmctld",
    "systemctl restart gpuaas-slurm-health",
)

_STATE = r"""
scontrol -o show nodes | grep -oE '^NodeName=[^ ]+| State=[^ ]+| Reason=.*| Boards=[^ ]+'
scontrol -o show partitions
scontrol -o show reservations
strigger --get
squeue -h -o '%i %T %l %u'
sacctmgr -nP show association format=Account,User,MaxJobs,GrpSubmitJobs
scontrol show config | grep SlurmctldDebug
systemctl show -p Id,ActiveState,InvocationID mariadb slurmdbd slurmctld slurmd gpuaas-slurm-health
find /etc/slurm /home/people /var/lib/slurm /var/log/slurm -user "$observer"
md5sum $(find /etc/slurm -type f) | sort -k2
"""


def state(observer: str) -> str:
    """Return a script that prints, as root, what the commands would have changed. It prints no times, so its output is
    the same if nothing was changed."""
    return f"observer={observer}\n{_STATE}"


def tried(observer: str, job: str) -> str:
    """Return a script that tries each command as the observer, and prints those that were not refused, and on the
    machine of slurmctld, which has all programs, those that could not be tried."""
    lines = "\n".join(CHANGING)
    return f"""
while IFS= read -r line; do
  timeout 30 runuser -u {observer} -- env job={job} sh -c "$line" </dev/null >/dev/null 2>&1 && echo "$line"
  [ $? != 127 ] || ! systemctl is-active -q slurmctld || echo "no such program: $line"
done <<'END'
{lines}
END
true
"""
