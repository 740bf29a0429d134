"""How the conformance kit looks at etcd on simulated machines: gpuaas app conformance etcd"""

import json
import sys
import zlib
from pathlib import Path
from typing import Any

from gpuaas_app_etcd.workload import etcd
from gpuaas_app_etcd.workload.footprint import DATA, FOLDER, UNPACKED
from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import Driver, SimulatedMachine, SimulatedPackage
from gpuaas_sdk.machine import Ran

OK, AWAY, UNIT = Ran(0, "", ""), Ran(1, "", "connection refused"), "etcd.service"

COMMAND = (str(Path(sys.executable).with_name("gpuaas-etcd")),)


class EtcdDriver(Driver):
    """`network` has the members that the cluster agrees on, by peer URL."""

    counts, runbook = {"member": 3}, Path(__file__).parent / "gpuaas_app_etcd/runbook.md"
    patience_s = 300.0  # a busy host needs seconds for each start of a controller
    packages = {n: SimulatedPackage("3.5.16-4", "etcd", (UNIT,)) for n in ("etcd-server", "etcd-client")}

    def respond(self, machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        members, command = machine.network, argv[len(etcd.CTL) :]
        if argv[0] == "systemctl" and argv[1] in ("start", "restart"):
            self._start(machine)
        elif argv[:2] == ("python3", "-c"):
            health = "true" if self.serves(machine) else "false"
            return Ran(0, json.dumps({"health": health, "reason": "no quorum"}), "")
        elif argv[:3] == ("etcdutl", "snapshot", "restore"):
            machine.files[f"{UNPACKED}/member/snap"] = b""
            return Ran(0, "", "")
        elif argv == ("mv", UNPACKED, DATA):
            machine.files[f"{DATA}/member/snap"] = machine.files.pop(f"{UNPACKED}/member/snap")
            return Ran(0, "", "")
        elif argv[0] == "etcdutl":
            return Ran(0, json.dumps({"revision": 1, "totalKey": 1, "totalSize": 1}), "")
        elif argv[: len(etcd.CTL)] == etcd.CTL:
            return self._control(machine, members, command) if machine.units.get(UNIT) == "active" else AWAY
        return None

    def serves(self, machine: SimulatedMachine) -> bool:
        mine = machine.network.get(self._env(machine).get("INITIAL_ADVERTISE_PEER_URLS", ""))
        return mine is not None and not mine["isLearner"] and machine.units.get(UNIT) == "active"

    def version(self, machine: SimulatedMachine) -> str | None:
        return machine.packages.get("etcd-server", "").split("-")[0] or None

    def _start(self, machine: SimulatedMachine) -> None:
        env, members = self._env(machine), machine.network
        mine = env.get("INITIAL_ADVERTISE_PEER_URLS", "")
        if f"{DATA}/member/wal" not in machine.files and env.get("INITIAL_CLUSTER_STATE") == "new":
            named = dict(pair.split("=")[::-1] for pair in env["INITIAL_CLUSTER"].split(","))
            if members.keys() != named.keys():
                members.clear()
            members.update({url: _member(url, name) for url, name in named.items()})
        if mine in members:
            members[mine]["name"] = env["NAME"]
            machine.files[f"{DATA}/member/wal"] = b""

    def _control(self, machine: SimulatedMachine, members: dict[str, Any], argv: tuple[str, ...]) -> Ran:
        at = {f"{member['ID']:x}": url for url, member in members.items()}
        if argv[:2] == ("member", "add"):
            url = argv[4].removeprefix("--peer-urls=")
            members[url] = _member(url, "", learner=True)
        elif argv[:2] == ("member", "remove"):
            del members[at[argv[2]]]
        elif argv[:2] == ("member", "promote"):
            members[at[argv[2]]]["isLearner"] = False
        elif argv[:2] == ("snapshot", "save"):
            machine.files[argv[2]] = b""
        status = [{"Status": {"version": self.version(machine)}}]
        return Ran(0, json.dumps(status if argv[0] == "endpoint" else {"members": list(members.values())}), "")

    def _env(self, machine: SimulatedMachine) -> dict[str, str]:
        lines = machine.files.get(f"{FOLDER}/etcd.env", b"").decode().splitlines()
        return dict(line.removeprefix("ETCD_").split("=", 1) for line in lines)


def _member(url: str, name: str, *, learner: bool = False) -> dict[str, Any]:
    return {"ID": zlib.crc32(url.encode()), "name": name, "peerURLs": [url], "isLearner": learner}


def main() -> None:
    sys.exit(conformance.main(EtcdDriver(), COMMAND))
