#!/usr/bin/env bash
# Set up a Slurm cluster with accounting on new machines, as a good engineer would do it by hand: in parallel where
# possible, and with only the checks that the next command needs. Usage: by_hand.sh KEY CONTROLLER_IP WORKER_IP...
set -euo pipefail
key=$1 controller=$2
shift 2
workers=("$@")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

on() {
    local host=$1
    shift
    ssh -q -i "$key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes "root@$host" "$@"
}

head -c 1024 /dev/urandom | base64 -w0 > "$folder/slurm.key"

common=$(cat <<'REMOTE'
set -euo pipefail
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y --no-install-recommends install $packages > /root/install.log 2>&1
rm /usr/sbin/policy-rc.d
mkdir -p /etc/slurm /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm
(umask 077; echo "$slurm_key" | base64 -d > /etc/slurm/slurm.key)
chown -R slurm:slurm /etc/slurm/slurm.key /var/lib/slurm /var/log/slurm
: > /etc/slurm/plugstack.conf
useradd -m -u 6000 researcher
REMOTE
)

start_controller=$(cat <<'REMOTE'
name=$(hostname)
cat > /etc/slurm/slurm.conf <<CONF
ClusterName=byhand
SlurmctldHost=$name($controller)
SlurmUser=slurm
AuthType=auth/slurm
CredType=cred/slurm
AuthInfo=use_client_ids
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=256
MailProg=/bin/true
ReturnToService=2
SlurmctldParameters=enable_configless
SlurmdParameters=config_overrides
GresTypes=gpu
MaxNodeCount=64
TreeWidth=64
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=$controller
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
echo CgroupPlugin=disabled > /etc/slurm/cgroup.conf
printf 'AutoDetect=off\nName=gpu File=/dev/nvidia[0-1]\n' > /etc/slurm/gres.conf
systemctl -q enable --now mariadb
mariadb -e "CREATE DATABASE slurm_acct_db; CREATE USER slurm@localhost IDENTIFIED VIA unix_socket; GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
(umask 077; cat > /etc/slurm/slurmdbd.conf <<CONF
AuthType=auth/slurm
AuthInfo=use_client_ids
DbdHost=$name
DbdAddr=$controller
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
CONF
)
chown slurm:slurm /etc/slurm/slurmdbd.conf
systemctl -q enable --now slurmdbd
until sacctmgr -n show cluster > /dev/null 2>&1; do sleep 0.1; done
sacctmgr -i -Q add cluster byhand
sacctmgr -i -Q add account default
sacctmgr -i -Q add user researcher account=default
sacctmgr -i -Q add user root account=default
systemctl -q enable --now slurmctld
until scontrol ping 2>/dev/null | grep -q UP; do sleep 0.1; done
REMOTE
)

join=$(cat <<'REMOTE'
cpus=$(nproc) memory=$(($(awk '/MemTotal/ {print $2}' /proc/meminfo) / 1024 - 512))
echo "SLURMD_OPTIONS=-Z --conf-server $controller:6817 --conf \"CPUs=$cpus RealMemory=$memory Gres=gpu:2\"" > /etc/default/slurmd
mkdir -p /etc/systemd/system/slurmd.service.d
printf '[Unit]\nConditionPathExists=\n' > /etc/systemd/system/slurmd.service.d/configless.conf
systemctl daemon-reload
until (exec 3<>"/dev/tcp/$controller/6817") 2>/dev/null; do sleep 0.1; done
systemctl -q enable --now slurmd
REMOTE
)

variables="controller=$controller slurm_key=$(cat "$folder/slurm.key")"
worker_packages="slurmd slurm-client libpmix2t64"
controller_packages="slurmctld slurmdbd slurm-client slurm-wlm-mysql-plugin mariadb-server mariadb-client libpmix2t64"

printf '%s\n' "$variables" "packages='$controller_packages'" "$common" "$start_controller" | on "$controller" bash -s > /dev/null &
jobs=($!)
for worker in "${workers[@]}"; do
    printf '%s\n' "$variables" "packages='$worker_packages'" "$common" "$join" | on "$worker" bash -s > /dev/null &
    jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job"; done
on "$controller" "until [ \"\$(sinfo -h -N -t idle -o %N | wc -l)\" = ${#workers[@]} ]; do sleep 0.1; done
cd / && timeout 60 runuser -u researcher -- srun -N${#workers[@]} hostname"
