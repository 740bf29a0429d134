"""`make wheels`: two builds of the same source have the same bytes, with every file that the parts need."""

import os
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("contract", "platform", "agent")


def built(folder: Path, umask: int) -> dict[str, Path]:
    environment = {**os.environ, "DIST": str(folder)}
    subprocess.run([ROOT / "tools/wheels", *PARTS], env=environment, umask=umask, check=True)
    return {path.name: path for path in folder.iterdir()}


def test_two_builds_of_the_same_source_have_equal_bytes(tmp_path: Path) -> None:
    first, second = built(tmp_path / "first", 0o022), built(tmp_path / "second", 0o077)
    assert first.keys() == second.keys()
    assert len(first) == len(PARTS) + 1
    for name, path in first.items():
        assert path.read_bytes() == second[name].read_bytes(), name
    platform, agent = (
        {item.filename for item in zipfile.ZipFile(first[name]).infolist()}
        for name in ("gpuaas_platform-0.1.0-py3-none-any.whl", "gpuaas_agent-0.1.0-py3-none-any.whl")
    )
    migrations = {path.name for path in (ROOT / "platform/gpuaas_platform/migrations").iterdir() if path.is_file()}
    assert {f"gpuaas_platform/migrations/{name}" for name in migrations} <= platform
    assert "gpuaas_agent/gpuaas-agent.service" in agent
