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
    channels --channel: Channel in which the version is offered; repeatable. By default stable.
gpuaas app deprecate slurm 1.0.0 --reason "1.1.0 is faster"
    Advise against an app version: it is deployed only if a request names it. Running instances continue.
    --reason: Why the version should not be used; shown to people who want to deploy it.
gpuaas app withdraw slurm 1.0.0 --reason "loses data on restart"
    Withdraw an app version permanently: it is never deployed again. Running instances continue.
    --reason: Why the version should not be used; shown to people who want to deploy it.
gpuaas app entitle slurm --project research
gpuaas app entitle slurm --versions '1.4.*' --channels stable --instances-max 2
    Let a project deploy an app, within limits. A limit that is not given does not apply.
    enabled --off: Remove the right: the project can deploy no new instance of the app.
    --versions PATTERN: Only these versions, such as 1.4.0 or 1.4.*; by default all.
    --channels CHANNEL: Only versions in these channels; by default all.
    --instances-max: Largest number of instances of the app in the project.
    --members-max: Largest number of members (machines) of the app in the project, over all its instances.
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
