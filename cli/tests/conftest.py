"""The fixtures of `clouds`, and what compares the output of commands."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from clouds import (
    cli,
    cloud,
    fleet,
    free_port_fixture,
    guarded_server,
    release_key,
    server,
    spare,
    stranger,
    until_fixture,
)

TESTS = Path(__file__).parent
__all__ = [
    "cli",
    "cloud",
    "fleet",
    "free_port_fixture",
    "guarded_server",
    "release_key",
    "server",
    "spare",
    "stranger",
    "until_fixture",
]


@pytest.fixture(scope="session", autouse=True)
def interrupts_arrive() -> None:
    """Started in the background of a script, tests inherit an ignored Ctrl-C and would hand it on to the commands."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare with a file; GPUAAS_WRITE_GOLDEN=1 writes it again after a change on purpose."""

    def compare(name: str, text: str) -> None:
        path = TESTS / "golden" / name
        if os.environ.get("GPUAAS_WRITE_GOLDEN"):
            path.write_text(text)
        assert path.read_text() == text

    return compare


@pytest.fixture
def steady() -> Callable[[str], str]:
    """Text without what differs from run to run: ids, moments, ages, durations, and padding that follows them.

    Also without the line about the last look of a controller, which may not have begun."""

    def without_chance(text: str) -> str:
        text = re.sub(r"_[0-9a-hjkmnp-tv-z]{26}\b", "_ID", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME", text)
        text = re.sub(r"\b\d+(\.\d+)?(s|m\d\ds|m|h)\b", "AGE", text)
        text = re.sub(r"^Observed .*\n", "", text, flags=re.MULTILINE)
        return re.sub(r"(?<=\S) {2,}", "  ", text)

    return without_chance
