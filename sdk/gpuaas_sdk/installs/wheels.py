"""Python software on a machine without a package source: a virtual environment made from one file of wheels.

`bundles.wheels` makes the file, and the platform places it on the machine, which needs `python3` and nothing else."""

from pathlib import PurePosixPath

from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine

REQUIREMENTS_NAME = "requirements.txt"
SUMS_NAME = "SHA256SUMS"
DAMAGED_STATUS = 66
INSTALL_S = 900

# The digest is written last, so an environment with the digest is complete. Machines have no pip: the file brings it.
INSTALL = rf"""
file=$1 digest=$2 folder=$3
[ "$(cat -- "$folder/.digest" 2>/dev/null)" != "$digest" ] || exit 0
echo "$digest  $file" | sha256sum --check --status || exit {DAMAGED_STATUS}
rm -rf --one-file-system -- "$folder" "$folder.wheels"
mkdir -p -m 0755 -- "$folder.wheels"
tar -xf "$file" -C "$folder.wheels" --no-same-owner
(cd "$folder.wheels" && sha256sum --check --strict --status {SUMS_NAME}) || exit {DAMAGED_STATUS}
python3 -m venv --without-pip "$folder"
PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1 \
  "$folder/bin/python" "$(echo "$folder.wheels"/pip-*.whl)/pip" install -q --no-index --find-links "$folder.wheels" \
  -r "$folder.wheels/{REQUIREMENTS_NAME}"
rm -rf --one-file-system -- "$folder.wheels"
echo "$digest" > "$folder/.digest"
"""


async def install(machine: Machine, path: str, folder: str) -> None:
    """Make the virtual environment `folder` from the placed file, unless it was made from it before. Its name is its
    digest, which the app version states. Name `folder` and `folder.wheels` in the footprint.

    await wheels.install(machine, await op.place(wheels.artifact("kv"), member), "/opt/kv")"""
    digest = PurePosixPath(path).name.removeprefix("sha256:")
    ran = await machine.script(INSTALL, path, digest, folder, check=False, timeout_s=INSTALL_S)
    if ran.exit_status == DAMAGED_STATUS:
        raise Permanent(
            f"the file of wheels {path} on {machine.hostname} does not have its digest; nothing was installed from it",
            fix=f"gpuaas ssh {machine.hostname} --root -- sudo rm {path}; then retry the operation",
        )
    if ran.exit_status != 0:
        raise Permanent(f"the wheels on {machine.hostname} cannot be installed: {ran.stderr.strip()[-500:]}")


def artifact(app: str) -> str:
    """Return the name of the file of wheels among the artifacts of an app version. Pure.

    wheels.artifact("kv")  # kv-wheels"""
    return f"{app}-wheels"
