"""A small app for the tests of installs: a store with a server and a proxy role."""

from gpuaas_sdk.installs import Footprint, Receipt, Role, Software, UnitBefore

KV = Footprint(
    app="kv",
    name="KV",
    roles={
        "proxy": Role(packages=("kv-proxy",), units=("kv-proxy",), paths=("/etc/kv/proxy.conf",)),
        "server": Role(packages=("kv-server", "kv-tools"), units=("kv",), folders=("/var/lib/kv",)),
    },
    software=Software(packages=("kv-server", "kv-tools", "kv-proxy"), source="kv", patterns=("kv*", "libkv*")),
    paths=("/etc/kv", "/etc/kv/kv.conf", "/var/lib/kv"),
    own_paths=("/usr/local/lib/gpuaas-kv",),
    overwritten=("/etc/default/kv",),
    foreign=("/etc/kv/kv.conf",),
    units=("kv.service", "database.service"),
    users=("kv",),
    helpers=("gpuaas-kv-health",),
)


def receipt_of(*roles: str) -> Receipt:
    """Return the receipt of a machine that had a database before the app."""
    units = [UnitBefore("kv.service", "not-found", "inactive"), UnitBefore("database.service", "enabled", "active")]
    return Receipt("inst_1", list(roles), ["kv-server"], ["/etc/kv"], ["/var/lib/kv"], ["kv"], ["kv"], units)
