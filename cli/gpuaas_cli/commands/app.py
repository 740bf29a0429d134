"""`gpuaas app`: the catalog."""

from gpuaas_contract import catalog
from gpuaas_contract.catalog import AppVersion, Manifest

from gpuaas_cli import output
from gpuaas_cli.input import documents
from gpuaas_cli.runner import Call, Command, Field, Levels, run, switch

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
        catalog.VERSION_REGISTER,
        "register manifest.yaml",
        "Register an app version.",
        whole=Field(
            "MANIFEST",
            "YAML or JSON file; - is stdin.",
            read=lambda _, path: documents.read(path, Manifest, "a manifest"),
        ),
        next=lambda made: f"gpuaas app publish {made.app_slug} {made.version}" if made.state == "registered" else "",
    ),
    Command(
        Levels(
            catalog.PROJECT_APP_GET,
            platform=catalog.VERSION_GET,
            platform_help="Whether projects may deploy it or not.",
        ),
        "show slurm 1.0.0",
        "Print one version with its whole manifest, as YAML unless -o json.",
        show=_print_whole,
    ),
    Command(
        catalog.VERSION_PUBLISH,
        "publish slurm 1.0.0",
        "Let projects deploy a version.",
        fields={
            "channels": Field(
                "--channel", "Where to offer it; repeatable. stable if none.", default=None, read=_channels
            )
        },
        next="gpuaas app entitle {app_slug}",
    ),
    Command(
        catalog.VERSION_DEPRECATE,
        'deprecate slurm 1.0.0 --reason "1.1.0 is faster"',
        "Advise against a version: it is deployed only when it is named. What runs continues.",
        fields={"reason": _WHY},
    ),
    Command(
        catalog.VERSION_WITHDRAW,
        'withdraw slurm 1.0.0 --reason "loses data on restart"',
        "Take a version out of the catalog for good: it is never deployed again. What runs continues.",
        fields={"reason": _WHY},
    ),
    Command(
        catalog.ENTITLEMENT_SET,
        ("entitle slurm --project research", "entitle slurm --versions '1.4.*' --channels stable --instances-max 2"),
        "Let a project deploy an app, within bounds. What is not given is not bounded.",
        fields={
            "enabled": switch("--off", "Stop the project from deploying more of it.", read=lambda _, off: not off),
            "versions": Field("--versions PATTERN", "Only these: 1.4.0, 1.4.*; all if none."),
            "channels": Field("--channels CHANNEL", "Only of these channels; all if none."),
            "instances_max": Field(help="Instances at once; no bound if not given."),
            "members_max": Field(help="Members of all its instances together."),
        },
    ),
)
