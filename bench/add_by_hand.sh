#!/usr/bin/env bash
# Add machines that have the packages of Slurm to a cluster of the Slurm app, or take them off it again, as a good
# engineer would do it by hand: with the files of a worker that the cluster has already, all machines at once, one
# connection for each. It makes the same changes as the platform, without inspection, receipt and checks.
# Usage: add_by_hand.sh KEY add|remove CONTROLLER_IP PRESENT_WORKER_IP WORKER_IP...
set -euo pipefail
key=$1 act=$2 controller=$3 present=$4
shift 4

on() {
    local host=$1
    shift
    ssh -q -i "$key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes "root@$host" "$@"
}

add=$(cat <<'REMOTE'
set -euo pipefail
tar -C /etc -cf /root/before.tar slurm
echo "$files" | base64 -d | tar -C / -xp
install -d -o slurm -g slurm /var/lib/slurm /var/lib/slurm/slurmd /var/log/slurm
mkdir -p /home/people
useradd -M -d /home/people/researcher -u 6000 researcher
systemctl -q enable --no-reload slurmd home-people.mount
systemctl daemon-reload
systemctl start home-people.mount
systemctl start slurmd
hostname
REMOTE
)

remove=$(cat <<'REMOTE'
set -euo pipefail
systemctl -q disable --now slurmd
systemctl -q disable --now home-people.mount
userdel researcher
rm -rf /etc/slurm /var/lib/slurm/slurmd /etc/systemd/system/slurmd.service.d /etc/systemd/system/home-people.mount
tar -C /etc -xpf /root/before.tar
rm /root/before.tar
systemctl daemon-reload
hostname
REMOTE
)

on_all() {
    local jobs=() worker job
    for worker in "$@"; do
        printf '%s\n' "files=$files" "${!act}" | on "$worker" bash -s &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job"; done
}

files=
if [ "$act" = add ]; then
    files=$(on "$present" "tar -C / -cp etc/slurm etc/systemd/system/slurmd.service.d etc/systemd/system/home-people.mount | base64 -w0")
fi
names=$(on_all "$@" | paste -sd,)
if [ "$act" = add ]; then
    on "$controller" "until [ \"\$(sinfo -h -N -n $names -t idle -o %N | sort -u | wc -l)\" = $# ]; do sleep 0.05; done
        cd / && timeout 60 runuser -u researcher -- srun --nodelist=$names --nodes=$# hostname"
else
    on "$controller" "for name in ${names//,/ }; do until scontrol delete nodename=\$name; do sleep 0.2; done; echo \$name; done"
fi
