"""What an app may change on a machine, declared once per app. `receipts` compares it with the machine before the first
change."""

from collections.abc import Mapping

import msgspec

FOLDER = "/var/lib/gpuaas-app"
"""Receipts of all apps, in one folder per app."""


class Software(msgspec.Struct, frozen=True, kw_only=True):
    """The packages whose version is the version of the app's software. All of them always have the same version;
    other packages that a role needs have versions of their own.

    Software(packages=("kv-server", "kv-tools"), source="kv", patterns=("kv*", "libkv*"))"""

    packages: tuple[str, ...] = ()
    """Those of the roles; the one that shows the version best is the first."""
    source: str = ""
    """The source package of Debian that they are built from: an upgrade changes all installed packages of it."""
    patterns: tuple[str, ...] = ()
    """Names of these packages as dpkg-query takes them, also of libraries: `libkv*`."""

    def version(self, versions: Mapping[str, str]) -> str:
        """Return the version of the software among packages; empty if none of them is part of it.

        KV.software.version({"kv-server": "3.5-1", "libc6": "2.41"})  # 3.5-1"""
        return next((versions[name] for name in self.packages if name in versions), "")


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """What one role has on its machine.

    Role(packages=("kv-server",), units=("kv",))"""

    packages: tuple[str, ...] = ()
    """Debian packages that the role needs."""
    units: tuple[str, ...] = ()
    """Its services, without `.service`. They are stopped when the role leaves."""
    paths: tuple[str, ...] = ()
    """Deleted when the role leaves a machine on which another role stays."""
    folders: tuple[str, ...] = ()
    """Emptied when the role leaves a machine on which another role stays."""


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an app may change on a machine.

    KV = Footprint(
        app="kv",
        name="KV",
        roles={"server": Role(packages=("kv-server", "kv-tools"), units=("kv",))},
        paths=("/etc/default/kv", "/var/lib/kv"),
        foreign=("/var/lib/kv/default",),
        software=Software(packages=("kv-server", "kv-tools"), source="kv", patterns=("kv*",)),
        users=("kv",),
        units=("kv.service",),
    )"""

    app: str
    """The slug of the app; the name of its folder on machines."""
    name: str
    """The software, as people read it in errors and statements."""
    roles: dict[str, Role]
    """Role -> what it has. If the last role leaves, services are stopped in this order."""
    software: Software = Software()
    paths: tuple[str, ...] = ()
    """Every path that the app, its packages or their tools may create, folders before their content. An uninstall
    deletes those that did not exist before."""
    own_paths: tuple[str, ...] = ()
    """Paths that only this app makes. An uninstall deletes them even if an older receipt does not list them."""
    overwritten: tuple[str, ...] = ()
    """Files of packages that the app replaces. If they existed before, an uninstall puts their content back."""
    foreign: tuple[str, ...] = ()
    """If one of these exists before the app has a receipt, another installation uses the machine, and it is refused."""
    units: tuple[str, ...] = ()
    """Units whose state an uninstall restores, with their suffix: `kv.service`."""
    users: tuple[str, ...] = ()
    """Users and groups that the packages make."""
    helpers: tuple[str, ...] = ()
    """Services of the app itself, without `.service`. They are stopped first: they may report stopped services."""

    @property
    def folder(self) -> str:
        """The folder of the app's receipts on a machine."""
        return f"{FOLDER}/{self.app}"

    @property
    def packages_folder(self) -> str:
        """The folder of an unpacked bundle, while packages are installed from it. Name it in `own_paths`."""
        return f"{FOLDER}/{self.app}-packages"

    @property
    def bundle_artifact(self) -> str:
        """The name of the bundle among the artifacts of an app version."""
        return f"{self.app}-packages"

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages of all roles, each once."""
        return self.packages_of(tuple(self.roles))

    def packages_of(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        """Return the packages of these roles, each once."""
        return tuple(dict.fromkeys(name for role in roles for name in self.roles[role].packages))
