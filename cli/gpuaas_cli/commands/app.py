"""`gpuaas app`: the catalog.

gpuaas app
    Apps have versions; a version is registered by its manifest, then published, then entitled per project.
gpuaas app register manifest.yaml
    Register an app version.
    body MANIFEST: YAML or JSON file; - is stdin.
gpuaas app show slurm 1.0.0
    Print one version with its whole manifest, as YAML unless -o json.
gpuaas app publish slurm 1.0.0
    Let projects deploy a version.
    channels --channel: Where to offer it; repeatable. stable if none.
gpuaas app deprecate slurm 1.0.0 --reason "1.1.0 is faster"
    Advise against a version: it is deployed only when it is named. What runs continues.
    --reason: Why; shown to people who want to deploy it.
gpuaas app withdraw slurm 1.0.0 --reason "loses data on restart"
    Take a version out of the catalog for good: it is never deployed again. What runs continues.
    --reason: Why; shown to people who want to deploy it.
gpuaas app entitle slurm --project research
gpuaas app entitle slurm --versions '1.4.*' --channels stable --instances-max 2
    Let a project deploy an app, within bounds. What is not given is not bounded.
    enabled --off: Stop the project from deploying more of it.
    --versions PATTERN: Only these: 1.4.0, 1.4.*; all if none.
    --channels CHANNEL: Only of these channels; all if none.
    --instances-max: Instances at once; no bound if not given.
    --members-max: Members of all its instances together.
"""

from gpuaas_contract import catalog
from gpuaas_contract.catalog import AppVersion

from gpuaas_cli import output, terminal
from gpuaas_cli.runner import Call, Command, Field, Levels, words


def _print_whole(call: Call, version: AppVersion) -> None:
    form = "json" if call.flags.output == "json" else "yaml"
    terminal.out(output.encoded(form, output.plain(version)))


COMMANDS = {
    "app register": Command(
        catalog.VERSION_REGISTER,
        next=lambda made: f"gpuaas app publish {made.app_slug} {made.version}" if made.state == "registered" else "",
    ),
    "app show": Command(
        Levels(catalog.PROJECT_APP_GET, catalog.VERSION_GET, platform_help="Whether projects may deploy it or not."),
        show=_print_whole,
    ),
    "app publish": Command(
        catalog.VERSION_PUBLISH,
        fields={"channels": Field(default=None, read=lambda _, given: words(given or []) or None)},
        next="gpuaas app entitle {app_slug}",
    ),
    "app deprecate": catalog.VERSION_DEPRECATE,
    "app withdraw": catalog.VERSION_WITHDRAW,
    "app entitle": Command(
        catalog.ENTITLEMENT_SET, fields={"enabled": Field(type=bool, default=False, read=lambda _, off: not off)}
    ),
}
