"""A file of wheels: how it is made, what it is registered as, and what a machine does with it."""

from pathlib import Path

import local_shell
import pytest
from gpuaas_contract.catalog import Manifest, RoleSpec
from gpuaas_sdk.installs import wheels
from gpuaas_sdk.installs.bundles import wheels as bundles

MANIFEST = Manifest(
    slug="kv",
    display_name="KV",
    version="1.0.0",
    summary="A store.",
    runtime_backend="kv",
    operating_modes=["managed"],
    control_plane_scopes=["instance"],
    roles=[RoleSpec(component_key="server", max=1)],
    topologies={"default": {}},
    deploy_form={"type": "object"},
)
LONG_NAME = f"kv-3.5-py3-none-{'x' * 120}.whl"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / LONG_NAME).write_bytes(b"kv")
    (tmp_path / "wheels" / "pip-26.0-py3-none-any.whl").write_bytes(b"pip")
    bundles.write(tmp_path / "wheels", "kv[server]==3.5", tmp_path / "kv.tar")
    return tmp_path / "kv.tar"


def test_the_same_wheels_give_the_same_file(made: Path, tmp_path: Path) -> None:
    bundles.write(tmp_path / "wheels", "kv[server]==3.5", tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == made.read_bytes()
    assert bundles.read(made)[0] == "kv[server]==3.5"


def test_a_version_of_the_app_names_the_file_and_the_software(made: Path) -> None:
    requirement, digest = bundles.read(made)
    manifest = bundles.version_manifest(MANIFEST, requirement, digest)
    assert manifest.version == "1.0.0+kv3.5"
    assert manifest.artifacts["kv-wheels"].digest == digest


def test_another_file_is_no_file_of_wheels(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"other")
    with pytest.raises(bundles.CannotMake, match="is not a file of wheels"):
        bundles.read(tmp_path / "other")


def test_a_damaged_file_is_not_installed(made: Path, tmp_path: Path) -> None:
    status = local_shell.run(wheels.INSTALL, str(made), "0" * 64, str(tmp_path / "env"), programs=tmp_path)
    assert status == wheels.DAMAGED_STATUS
    assert not (tmp_path / "env").exists()


def test_an_environment_that_was_made_from_the_file_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / ".digest").write_text("0" * 64)
    assert local_shell.run(wheels.INSTALL, "/absent", "0" * 64, str(tmp_path / "env"), programs=tmp_path) == 0


def test_an_interrupted_installation_is_made_again_from_the_wheels_of_the_file(made: Path, tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "half").touch()
    made_environment = 'mkdir -p "$4/bin"; printf \'#!/bin/sh\\necho "$@" > "%s/pip-ran"\\n\' "$4" > "$4/bin/python"'
    local_shell.program(tmp_path / "python3", f'{made_environment}; chmod +x "$4/bin/python"')
    digest = bundles.read(made)[1].removeprefix("sha256:")
    assert local_shell.run(wheels.INSTALL, str(made), digest, str(tmp_path / "env"), programs=tmp_path) == 0
    assert not (tmp_path / "env" / "half").exists()
    assert "--no-index" in (tmp_path / "env" / "pip-ran").read_text()
    assert (tmp_path / "env" / ".digest").read_text().strip() == digest
    assert not (tmp_path / "env.wheels").exists()
