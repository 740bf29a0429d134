"""`gpuaas doctor`.

gpuaas doctor
gpuaas doctor --server https://gpuaas.example.com -o json
    Check this installation and its way to the server: settings, network, certificate, clock, session, programs.

    For each problem, the next step is shown. Nothing is changed. Exit status 0: no check failed; 1: a check failed.
"""

import asyncio
from dataclasses import asdict

from gpuaas_contract.identity import ME, PROJECT_GET

from gpuaas_cli import failures, output
from gpuaas_cli.doctor import checks, facts
from gpuaas_cli.runner import Call, Command

_WIDTH = max(map(len, checks.QUESTIONS))


def _doctor(call: Call) -> int:
    result = checks.judge(asyncio.run(facts.gather(call.flags)))
    lines = [line for check in result for line in _lines(check)]
    output.show_page(call.flags, {"checks": [asdict(check) for check in result]}, lines)
    return failures.FAILED if any(check.state == "fail" for check in result) else failures.OK


def _lines(check: checks.Check) -> list[str]:
    first = f"{check.state:<7}  {check.name:<{_WIDTH}}  {output.flat(check.reason)}".rstrip()
    return [first, f"{'':<7}  {'':<{_WIDTH}}  next: {output.flat(check.fix)}"] if check.fix else [first]


COMMANDS = {"doctor": Command(calls=(ME, PROJECT_GET), offline=_doctor)}
