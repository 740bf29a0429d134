"""What the app may change on a machine. The kit records what did not exist before and takes off exactly that."""

from gpuaas_sdk.installs import Footprint, Role, Software

ROLE, UNIT = "member", "etcd"
FOLDER, DROP_IN = "/etc/gpuaas-etcd", f"/etc/systemd/system/{UNIT}.service.d"
DATA, SNAPSHOTS = "/var/lib/etcd/gpuaas", "/var/lib/gpuaas-etcd-snapshots"
UNPACKED = f"{DATA}.new"
PACKAGES = ("etcd-server", "etcd-client")
OWN_PATHS = (FOLDER, DROP_IN, DATA, UNPACKED, SNAPSHOTS, "/var/lib/gpuaas-app/etcd-packages")
BY_TOOLS = ("/usr/sbin/policy-rc.d", "/run/adduser", "/etc/subuid-", "/etc/subgid-", "/var/cache/debconf/tmp.ci")

ETCD = Footprint(
    app="etcd",
    name="etcd",
    roles={ROLE: Role(packages=PACKAGES, units=(UNIT,))},
    software=Software(packages=PACKAGES, source="etcd", patterns=("etcd*",)),
    paths=(*BY_TOOLS, "/etc/default/etcd", "/var/lib/etcd", "/var/lib/etcd/default", *OWN_PATHS),
    own_paths=OWN_PATHS,
    foreign=("/var/lib/etcd/default", FOLDER),
    units=(f"{UNIT}.service",),
    users=("etcd",),
)
