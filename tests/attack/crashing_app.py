"""The crash matrix of an app from the scaffold whose controller has short leases: python crashing_app.py FAULT"""

import asyncio
import dataclasses
import sys
from pathlib import Path

from bench import crashes
from bench.crashes import subjects

CONTROLLER = Path(__file__).with_name("short_leases.py")
SIZES = {
    "none": crashes.Size(instants=6, at_once=3, seed=1, kinds=("add",)),
    "appends": crashes.Size(instants=60, at_once=3, seed=1, kinds=("add",), fail_fast=True),
}

if __name__ == "__main__":
    fault = sys.argv[1]
    with subjects.from_scaffold() as sound:
        subject = dataclasses.replace(sound, command=(sys.executable, str(CONTROLLER), fault))
        sys.exit(asyncio.run(crashes.matrix(subject, SIZES[fault])))
