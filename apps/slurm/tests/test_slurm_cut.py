"""The page about the cut between app and kit is complete, and its example works."""

import fnmatch
import re
from pathlib import Path

import gpuaas_app_slurm
from gpuaas_sdk import installs

APP = Path(gpuaas_app_slurm.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "app-and-kit.md"


def test_every_file_of_the_app_is_on_the_page_and_every_name_on_it_is_a_file() -> None:
    table = PAGE.read_text().split("## The Slurm app, file by file")[1]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name.split("/")[-1] for row in rows for name in re.findall(r"`([^`]+)`", row)]
    files = [path.name for path in APP.rglob("*.py") if path.name != "__init__.py"]
    assert [file for file in files if not any(fnmatch.fnmatch(file, name) for name in named)] == []
    assert [name for name in named if not fnmatch.filter(files, name)] == []


def test_the_footprint_of_the_page_is_one() -> None:
    example = re.findall(r"```python\n(KV = .*?)```", PAGE.read_text(), re.DOTALL)[0]
    names: dict[str, object] = {name: getattr(installs, name) for name in installs.__all__}
    exec(example, names)  # noqa: S102 - the text is a page of this repository
    kv = names["KV"]
    assert isinstance(kv, installs.Footprint)
    assert kv.packages == ("kv-server", "kv-tools")
