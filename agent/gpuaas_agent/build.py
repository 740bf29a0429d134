"""`python -m gpuaas_agent.build OUT.pyz` packs the agent into one file. The same source gives the same bytes."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

SHEBANG = b"#!/usr/bin/env python3\n"
STARTER = b"import sys\n\nfrom gpuaas_agent import main\n\nsys.exit(main.main())\n"
UNIT = "gpuaas-agent.service"
EXCLUDED = frozenset({"build.py", "signer.py", "testing"})


def build(target: Path) -> str:
    """Write the archive and return its sha256."""
    package = Path(__file__).resolve().parent
    # The archive includes the systemd unit: the installation of the agent copies it from there.
    contents = {"__main__.py": STARTER, UNIT: (package / UNIT).read_bytes()}
    for path in package.rglob("*.py"):
        if not EXCLUDED.intersection(path.relative_to(package).parts):
            contents[path.relative_to(package.parent).as_posix()] = path.read_bytes()
    with target.open("wb") as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "w") as archive:
            for name in sorted(contents):
                archive.writestr(_entry(name), contents[name])
    target.chmod(0o755)
    return hashlib.sha256(target.read_bytes()).hexdigest()


def _entry(name: str) -> zipfile.ZipInfo:
    # Without compression, so that the bytes do not depend on the zlib version.
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_STORED
    entry.create_system = 3
    entry.external_attr = 0o100644 << 16
    return entry


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m gpuaas_agent.build OUT.pyz\n")
        return 64
    try:
        sys.stdout.write(build(Path(arguments[0])) + "\n")
    except OSError as error:
        sys.stderr.write(f"{arguments[0]} cannot be written: {error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
