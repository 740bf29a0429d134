"""How long campaigns run: tests that repeat random work until a rare fault would show. `make test` runs each for
seconds; with GPUAAS_CAMPAIGNS=whole each has its whole size, for changes of what it tests."""

import os
from typing import TypeVar

Size = TypeVar("Size")

WHOLE = os.environ.get("GPUAAS_CAMPAIGNS") == "whole"


def size(short: Size, whole: Size) -> Size:
    return whole if WHOLE else short
