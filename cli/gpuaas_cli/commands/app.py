"""`gpuaas app`: the catalog.

gpuaas app
    Apps have versions; a version is registered by its manifest, then published, then entitled per project.
gpuaas app init hello --kind service
    Write a new app into the folder NAME: manifest, controller, workload, unit file, tests, docs. It works as it is.
    name NAME
    --kind: service (servers), batch (a head and workers) or quorum (peers that keep data together).
gpuaas app conformance hello
gpuaas app conformance hello --check residue --junit conformance.xml
gpuaas app conformance hello --credentials key.json --machine gpu-1 --machine gpu-2
    Prove that an app is sound: run its controller against a fake platform and disturb it. Exit status 0: it conforms;
    1: it does not. Needs no server; the app must be installed with its extra `conformance`. With --credentials, deploy
    and operate it in the current project instead, with the checks that are possible there.
    app APP
    checks --check NAME: Only this check; repeatable. --list shows all.
    kinds --kind KIND: Only this kind of operation, such as deploy; repeatable.
    listed --list: Print the checks and what each tries to disprove.
    --json FILE: Write the score card as JSON.
    --junit FILE: Write the score card as JUnit XML.
    --report FILE: Write the gaps by class, as Markdown.
    --sign KEY: Sign the whole score card with this private key, for gpuaas app attach-card.
    --manifest FILE: The registered manifest that the card is about, if a release set its version and artifacts.
    --card FILE: Where to write the signed card; by default conformance.dsse.
    --credentials FILE: Run on the current server and project. FILE is the key file of the app's service account there.
    machines --machine NAME: With --credentials, a machine to use; repeatable. By default all that no instance uses.
gpuaas app register manifest.yaml
    Register an app version.
    body MANIFEST: YAML or JSON file; - is stdin.
gpuaas app versions slurm
    List all registered versions of an app, for its publishers and for admins of the platform.
gpuaas app attach-card slurm 1.0.0 conformance.dsse
    Attach the conformance card that gpuaas app conformance --sign wrote. Only the card of a later run replaces a card.
    body FILE: The signed card; - is stdin.
gpuaas app card slurm 1.0.0
    Show the conformance card of a version: what the conformance kit found out, and which keys signed it.
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
    enabled --off: Remove the right: the project can deploy no new instance of the app, and no service account of the
    organisation operates the app there any more.
    --versions PATTERN: Only these versions, such as 1.4.0 or 1.4.*; by default all.
    --channels CHANNEL: Only versions in these channels; by default all.
    --instances-max: Largest number of instances of the app in the project.
    --members-max: Largest number of members (machines) of the app in the project, over all its instances.
"""

import contextlib
import os

from gpuaas_contract import catalog, conformance, errors, instances
from gpuaas_contract.catalog import AppVersion, CheckedVersion, Entitlement
from gpuaas_contract.policy import CAN_I, CanI
from gpuaas_sdk import scaffold
from gpuaas_sdk.outcomes import NoAnswer

from gpuaas_cli import failures, output, programs, terminal
from gpuaas_cli.client import home
from gpuaas_cli.runner import SWITCH, Call, Command, Field, Levels, words
from gpuaas_cli.show import cards

_FILES = ("json", "junit", "report", "sign", "manifest", "card")


def _init(call: Call) -> None:
    try:
        made = scaffold.create(call["name"], call["kind"])
    except scaffold.CannotCreate as error:
        raise failures.usage(str(error), f"gpuaas app init {error.name} --kind service") from error
    terminal.out("\n".join(str(path) for path in made))
    output.talk(f"next: pip install -e './{call['name']}[conformance]' && gpuaas app conformance {call['name']}")


def _conformance(call: Call) -> int:
    """Run the app's own command, so that no code of an app runs in this process."""
    name = f"gpuaas-{call['app']}-conformance"
    program = programs.find(name)
    if program is None:
        raise failures.not_found(
            f"There is no command {name}: the app is not installed here, or has no conformance driver",
            f"pip install -e './{call['app']}[conformance]'",
        )
    flags = [word for check in call["checks"] or [] for word in ("--check", check)]
    flags += [word for kind in call["kinds"] or [] for word in ("--kind", kind)]
    flags += [word for option in _FILES if call[option] for word in (f"--{option}", call[option])]
    flags += ["--list"] if call["listed"] else []
    if not call["credentials"]:
        return programs.run([program, *flags])
    return _conformance_on_platform(call, [program, *flags])


def _conformance_on_platform(call: Call, command: list[str]) -> int:
    """Run the app's command on the server and project of this session. The token is in no command line, because other
    users of this machine can read those."""
    target = home.resolve(call.flags, os.environ, home.load(home.folder(os.environ)))
    if not (target.server and target.token and target.project):
        fix = "gpuaas login --server URL, then gpuaas project use NAME"
        raise failures.usage("--credentials needs a server, a session and a project", fix)
    command += ["--credentials", call["credentials"], "--server", target.server, "--project", target.project]
    command += ["--ca-file", target.ca_file] if target.ca_file else []
    command += [word for name in words(call["machines"] or []) for word in ("--machine", name)]
    return programs.run(command, {"GPUAAS_TOKEN": target.token})


async def _register(call: Call) -> CheckedVersion:
    """Register the version under the slug of its manifest: a publisher may do that for their own app only."""
    manifest = call.sent["body"]
    made: CheckedVersion = await call.session.call(
        call.endpoint, manifest, dry_run=call.dry_run, app_slug=manifest.slug
    )
    return made


def _warn(_: Call, version: CheckedVersion) -> None:
    for warning in version.warnings:
        output.talk(f"warning: {warning}")


async def _entitle(call: Call) -> Entitlement:
    entitlement: Entitlement = await call.send()
    if not entitlement.enabled:
        await _warn_of_instances(call, entitlement, "could" if call.dry_run else "can")
    return entitlement


async def _warn_of_instances(call: Call, entitlement: Entitlement, can: str) -> None:
    """Warn that instances may have no controller any more. The change is made already, so a failed count is no failure
    of the command. Platform admins may not read the instances of a project."""
    slug, project_id = entitlement.app_slug, entitlement.project_id
    asked = CanI(permission=instances.INSTANCE_LIST.permission, project_id=project_id)
    what = f"live instances of {slug}"
    with contextlib.suppress(errors.ApiError, NoAnswer):
        if (await call.session.call(CAN_I, asked)).allowed:
            query = {"live": "true", "search": slug}
            listed = await call.session.every(instances.INSTANCE_LIST, query=query, project_id=project_id)
            live = sum(instance.app_slug == slug for instance in listed)
            if live == 0:
                return
            what = f"{live} live instance{'s' if live > 1 else ''} of {slug}"
    output.talk(
        f"warning: {what} in project {project_id} {can} no longer be operated by a service account of the "
        f"organisation. "
        f"Without an account of the project for {slug}, no controller can change them: "
        f"gpuaas service-account create NAME --app {slug} --project {project_id}"
    )


def _print_whole(call: Call, version: AppVersion) -> None:
    form = "json" if call.flags.output == "json" else "yaml"
    terminal.out(output.encoded(form, output.plain(version)))


_MANY = Field(type=list[str], default=None)
COMMANDS = {
    "app init": Command(offline=_init, extra={"name": Field(default=...), "kind": Field(default="service")}),
    "app conformance": Command(
        offline=_conformance,
        extra={"app": Field(default=...), "checks": _MANY, "kinds": _MANY, "listed": SWITCH, "machines": _MANY}
        | {"credentials": Field(default="")}
        | {option: Field(default="") for option in _FILES},
    ),
    "app register": Command(
        catalog.APP_VERSION_REGISTER,
        fields={"app_slug": None},
        work=_register,
        then=_warn,
        next=lambda made: f"gpuaas app publish {made.app_slug} {made.version}" if made.state == "registered" else "",
    ),
    "app versions": catalog.APP_VERSION_LIST,
    "app attach-card": Command(conformance.CARD_PUT, page=cards.page),
    "app card": Command(
        Levels(
            conformance.PROJECT_CARD_GET, conformance.CARD_GET, platform_help="Whether projects may deploy it or not."
        ),
        page=cards.page,
    ),
    "app show": Command(
        Levels(catalog.PROJECT_APP_GET, catalog.VERSION_GET, platform_help="Whether projects may deploy it or not."),
        show=_print_whole,
    ),
    "app publish": Command(
        catalog.VERSION_PUBLISH,
        fields={"channels": Field(default=None, read=lambda _, given: words(given or []) or None)},
        then=_warn,
        next="gpuaas app entitle {app_slug}",
    ),
    "app deprecate": catalog.VERSION_DEPRECATE,
    "app withdraw": catalog.VERSION_WITHDRAW,
    "app entitle": Command(
        catalog.ENTITLEMENT_SET,
        fields={"enabled": Field(type=bool, default=False, read=lambda _, off: not off)},
        work=_entitle,
        also=(CAN_I, instances.INSTANCE_LIST),
    ),
}
