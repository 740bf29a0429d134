"""The app whose controller `bench stewards` measures: at each look it reports the same as before.

`python -m bench.steward_app run --server URL --project ID --credentials FILE`"""

import json
import sys
import tempfile
from pathlib import Path

from gpuaas_sdk.controller import App, Operation, Permanent, Reconciliation, ReportedCondition

from bench import records

EVERY_S = 10.0


def _app() -> App:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as manifest:
        json.dump(records.manifest(records.APP), manifest)
        manifest.flush()
        return App(records.APP, manifest=Path(manifest.name))


app = _app()


@app.operation("deploy")
@app.operation("decommission")
@app.operation("drain")
async def refuse(op: Operation) -> None:
    raise Permanent(f"the bench requests no {op.kind}")


@app.health(every_s=EVERY_S)
async def look(now: Reconciliation) -> None:
    seen = [now.seen(member, detail=member.adapter_detail) for member in now.members]
    await now.report([ReportedCondition(type="Answers", status="true", reason="ok", message="It answers.")], seen)


if __name__ == "__main__":
    sys.exit(app.main())
