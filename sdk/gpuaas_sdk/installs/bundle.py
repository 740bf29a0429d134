"""A bundle on a machine: compare it with its digest, unpack it, and use it as the only package source.

`bundles.make` makes the file, and the platform places it on the machine."""

from pathlib import PurePosixPath

import msgspec

from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.installs.footprint import Footprint
from gpuaas_sdk.machine import Command, Machine, commands

INDEX_NAME = "bundle.json"
SUMS_NAME = "SHA256SUMS"
DAMAGED_STATUS = 66

# The content of a folder is complete if the folder has its name.
UNPACK = rf"""
file=$1 digest=$2 folder=$3
[ ! -e "$folder/{INDEX_NAME}" ] || {{ cat "$folder/{INDEX_NAME}"; exit 0; }}
echo "$digest  $file" | sha256sum --check --status || exit {DAMAGED_STATUS}
rm -rf -- "$(dirname -- "$folder")"
mkdir -p -m 0755 "$folder.new"
tar -xf "$file" -C "$folder.new" --no-same-owner
(cd "$folder.new" && sha256sum --check --strict --status {SUMS_NAME}) || exit {DAMAGED_STATUS}
mkdir -p "$folder.new/lists/partial" "$folder.new/cache/archives/partial"
echo "deb [trusted=yes] file:$folder ./" > "$folder.new/sources.list"
mv -T "$folder.new" "$folder"
cat "$folder/{INDEX_NAME}"
"""


class File(msgspec.Struct, frozen=True):
    """One package of a bundle.

    File("kv-server", "3.5-1", "kv-server_3.5-1_amd64.deb", size_bytes=4096, sha256="00…")"""

    name: str
    version: str
    file: str
    size_bytes: int
    sha256: str


class Index(msgspec.Struct, frozen=True):
    """What a bundle contains.

    index = bundle.decode(KV, content)
    index.versions["kv-server"]  # 3.5-1"""

    version: str
    """The version of the app's software."""
    release: str
    """The Debian release that the software is from."""
    architecture: str
    files: tuple[File, ...]

    @property
    def versions(self) -> dict[str, str]:
        """Package -> version."""
        return {file.name: file.version for file in self.files}


class Unpacked(msgspec.Struct, frozen=True):
    """A verified bundle on a machine.

    unpacked = await bundle.unpack(machine, KV, path)
    await machine.run("apt-get", *unpacked.apt_options, "update")"""

    folder: str
    index: Index

    @property
    def apt_options(self) -> tuple[str, ...]:
        """Options with which apt uses this bundle and no other package source."""
        settings = {
            "Dir::Etc::sourcelist": f"{self.folder}/sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": f"{self.folder}/lists",
            "Dir::Cache": f"{self.folder}/cache",
            "APT::Sandbox::User": "root",
        }
        return tuple(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))


def encode(footprint: Footprint, index: Index) -> bytes:
    """Return the index as it is in a bundle. Its version has the name of the app: `kv_version`.

    content = bundle.encode(KV, index)"""
    values = msgspec.to_builtins(index)
    return msgspec.json.encode({f"{footprint.app}_version": values.pop("version")} | values)


def decode(footprint: Footprint, content: bytes | str) -> Index:
    """Return the index of a bundle. Raise msgspec.DecodeError if it is not one of this app.

    index = bundle.decode(KV, content)"""
    values = msgspec.json.decode(content, type=dict[str, object])
    version = values.pop(f"{footprint.app}_version", None)
    return msgspec.convert({"version": version} | values, Index)


async def unpack(machine: Machine, footprint: Footprint, path: str) -> Unpacked:
    """Verify the placed file and unpack it. Its name is its digest, which the app version states.

    unpacked = await bundle.unpack(machine, KV, await op.place(KV.bundle_artifact, member))"""
    digest = PurePosixPath(path).name.removeprefix("sha256:")
    folder = f"{footprint.packages_folder}/{digest[:16]}"
    ran = await machine.script(UNPACK, path, digest, folder, check=False)
    if ran.exit_status == DAMAGED_STATUS:
        raise Permanent(
            f"the package bundle {path} on {machine.hostname} does not have its digest; nothing was installed from it",
            fix=f"gpuaas ssh {machine.hostname} --root -- sudo rm {path}; then retry the operation",
        )
    if ran.exit_status != 0:
        raise Permanent(f"the package bundle on {machine.hostname} cannot be unpacked: {ran.stderr.strip()[-500:]}")
    try:
        return Unpacked(folder, decode(footprint, ran.stdout))
    except msgspec.DecodeError as error:
        raise Permanent(
            f"artifact {footprint.bundle_artifact} is not a bundle of this app: {error}",
            fix=f"make it with: gpuaas-{footprint.app} bundle make",
        ) from error


def remove(footprint: Footprint) -> Command:
    """Return the command that deletes the unpacked packages. The placed file stays until its allocation is released.

    await machine.run_all(bundle.remove(KV))"""
    return commands.run("rm", "-rf", "--one-file-system", footprint.packages_folder)
