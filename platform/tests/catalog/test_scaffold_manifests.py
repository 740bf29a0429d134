"""The catalog accepts the manifests of new apps as they are."""

from pathlib import Path

import pytest
from gpuaas_platform.catalog import manifests
from gpuaas_sdk import scaffold
from gpuaas_sdk.controller import App


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_the_manifest_of_a_new_app_has_no_flaws(kind: str, tmp_path: Path) -> None:
    scaffold.create("hello", kind, tmp_path / "hello")
    manifest = App("hello", manifest=tmp_path / "hello" / "gpuaas_app_hello" / "manifest.yaml").manifest
    assert list(manifests.flaws_of(manifest)) == []
