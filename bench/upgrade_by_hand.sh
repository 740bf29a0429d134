#!/usr/bin/env bash
# Upgrade a cluster of by_hand.sh from a bundle of packages, as a careful engineer would do it by hand: verify the
# bundle, hold the queue, back up state and database, then slurmdbd, slurmctld, one worker with a job, the others with a
# job on all. Usage: upgrade_by_hand.sh KEY BUNDLE CONTROLLER_IP WORKER_IP...
set -euo pipefail
key=$1 bundle=$2 controller=$3
shift 3
workers=("$@")

on() {
    local host=$1
    shift
    ssh -q -i "$key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes "root@$host" "$@"
}

unpack=$(cat <<'REMOTE'
set -euo pipefail
rm -rf /root/bundle
mkdir -p /root/bundle/lists/partial /root/bundle/cache/archives/partial
tar -xf /root/bundle.tar -C /root/bundle --no-same-owner
cd /root/bundle && sha256sum --check --strict --status SHA256SUMS
echo "deb [trusted=yes] file:/root/bundle ./" > sources.list
REMOTE
)

install=$(cat <<'REMOTE'
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
options=(-qq -y -o Dir::Etc::sourcelist=/root/bundle/sources.list -o Dir::Etc::sourceparts=/dev/null
    -o Dir::State::lists=/root/bundle/lists -o Dir::Cache=/root/bundle/cache -o APT::Sandbox::User=root
    -o Dpkg::Options::=--force-confold -o Dpkg::Options::=--force-unsafe-io)
apt-get "${options[@]}" update
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
apt-get "${options[@]}" --no-install-recommends install $packages > /root/upgrade.log 2>&1
rm /usr/sbin/policy-rc.d
REMOTE
)

stop_controller=$(cat <<'REMOTE'
set -euo pipefail
scontrol update partitionname=main state=down
systemctl stop slurmctld
systemctl stop slurmdbd
mariadb-dump --single-transaction slurm_acct_db > /root/accounting.sql
tar -cf /root/state.tar -C /var/lib/slurm slurmctld -C /etc slurm
REMOTE
)

start_controller=$(cat <<'REMOTE'
systemctl daemon-reload
systemctl restart slurmdbd
until sacctmgr -n show cluster 2>/dev/null | grep -q byhand; do sleep 0.1; done
systemctl restart slurmctld
until scontrol ping 2>/dev/null | grep -q 'is UP'; do sleep 0.1; done
scontrol update partitionname=main state=down
REMOTE
)

upgrade_worker() {
    printf '%s\n' "packages='slurmd slurm-client'" "$install" "systemctl daemon-reload" "systemctl restart slurmd" |
        on "$1" bash -s > /dev/null
}

wait_for() { for job in "$@"; do wait "$job"; done; }

jobs=()
for host in "$controller" "${workers[@]}"; do
    on "$host" "cat > /root/bundle.tar" < "$bundle" && printf '%s\n' "$unpack" | on "$host" bash -s &
    jobs+=($!)
done
wait_for "${jobs[@]}"

packages="packages='slurmctld slurmdbd slurm-client slurm-wlm-mysql-plugin'"
printf '%s\n' "$stop_controller" "$packages" "$install" "$start_controller" | on "$controller" bash -s > /dev/null

first=${workers[0]}
upgrade_worker "$first"
name=$(on "$first" hostname)
# The partition of people is down, so the first job runs in one of its own.
on "$controller" "scontrol create partitionname=check nodes=$name allowgroups=root >/dev/null
until [ \"\$(sinfo -h -p check -o %t)\" = idle ]; do sleep 0.1; done
cd / && timeout 60 srun -p check -w $name hostname >/dev/null && scontrol delete partitionname=check"

jobs=()
for worker in "${workers[@]:1}"; do
    upgrade_worker "$worker" &
    jobs+=($!)
done
wait_for "${jobs[@]}"
on "$controller" "scontrol update partitionname=main state=up
until [ \"\$(sinfo -h -N -t idle -o %N | wc -l)\" = ${#workers[@]} ]; do sleep 0.1; done
cd / && timeout 60 runuser -u researcher -- srun -N${#workers[@]} hostname"
