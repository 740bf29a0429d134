"""`gpuaas app`: the catalog."""

from gpuaas_contract import catalog
from gpuaas_contract.catalog import AppVersion, Manifest

from gpuaas_cli import output
from gpuaas_cli.input import documents
from gpuaas_cli.runner import run
from gpuaas_cli.runner.call import Call
from gpuaas_cli.runner.command import Command, Field, Levels, switch

_WHY = Field(help="Why; shown to people who want to deploy it.")


def _print_whole(call: Call, version: AppVersion) -> None:
    form = "json" if call.flags.output == "json" else "yaml"
    print(output.encoded(form, output.plain(version)))


def _channels(_: Call, given: list[str] | None) -> list[str] | None:
    return [part for word in given or [] for part in word.split(",") if part] or None


app = run.group(
    "app",
    "Apps have versions; a version is registered by its manifest, then published, then entitled per project.",
    Command(
        "register",
        catalog.VERSION_REGISTER,
        "Register an app version.",
        "manifest.yaml",
        whole=Field(
            "MANIFEST",
            "YAML or JSON file; - is stdin.",
            read=lambda _, path: documents.read(path, Manifest, "a manifest"),
        ),
        next=lambda made: f"gpuaas app publish {made.app_slug} {made.version}" if made.state == "registered" else "",
    ),
    Command(
        "show",
        Levels(
            catalog.PROJECT_APP_GET,
            platform=catalog.VERSION_GET,
            platform_help="Whether projects may deploy it or not.",
        ),
        "Print one version with its whole manifest, as YAML unless -o json.",
        "slurm 1.0.0",
        shows=False,
        then=_print_whole,
    ),
    Command(
        "publish",
        catalog.VERSION_PUBLISH,
        "Let projects deploy a version.",
        "slurm 1.0.0",
        fields={
            "channels": Field(
                "--channel", "Where to offer it; repeatable. stable if none.", default=None, read=_channels
            )
        },
        next="gpuaas app entitle {app_slug}",
    ),
    Command(
        "deprecate",
        catalog.VERSION_DEPRECATE,
        "Advise against a version: it is deployed only when it is named. What runs continues.",
        'slurm 1.0.0 --reason "1.1.0 is faster"',
        fields={"reason": _WHY},
    ),
    Command(
        "withdraw",
        catalog.VERSION_WITHDRAW,
        "Take a version out of the catalog for good: it is never deployed again. What runs continues.",
        'slurm 1.0.0 --reason "loses data on restart"',
        fields={"reason": _WHY},
    ),
    Command(
        "entitle",
        catalog.ENTITLEMENT_SET,
        "Let a project deploy an app, within bounds. What is not given is not bounded.",
        ("slurm --project research", "slurm --versions '1.4.*' --channels stable --instances-max 2"),
        fields={
            "enabled": switch("--off", "Stop the project from deploying more of it.", read=lambda _, off: not off),
            "versions": Field("--versions PATTERN", "Only these: 1.4.0, 1.4.*; all if none."),
            "channels": Field("--channels CHANNEL", "Only of these channels; all if none."),
            "instances_max": Field(help="Instances at once; no bound if not given."),
            "members_max": Field(help="Members of all its instances together."),
        },
    ),
)
