"""The command `gpuaas-lab`: parse the arguments, call one method of the lab, print the result or the error."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gpuaas_lab import enrolment, errors, host, machine, plan, provisioner, shell
from gpuaas_lab.lab import Lab, as_json

app = typer.Typer(
    name="gpuaas-lab",
    help="Run real Debian machines on this host, for a local GPU cloud.\n\nExample: gpuaas-lab up --nodes 3",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LabName = Annotated[str, typer.Option("--lab", envvar="GPUAAS_LAB", help="Name of the lab.")]
StateFolder = Annotated[Path, typer.Option("--state", envvar="GPUAAS_LAB_STATE", help="Folder for images and disks.")]
PackageList = Annotated[Path | None, typer.Option("--packages", help="File: one Debian package per line.")]
Toolchain = Annotated[
    bool, typer.Option("--toolchain", help="New machines have gcc, git, Open MPI, pip and venv; a larger image.")
]
Gpus = Annotated[int, typer.Option("--gpus", min=0, max=16, help="Fake GPUs per new machine.")]
AgentFile = Annotated[Path | None, typer.Option("--agent", help="Node agent (.pyz) to install; needs --enrol.")]
EnrolFile = Annotated[
    Path | None, typer.Option("--enrol", help="JSON: server, ca_sha256, tokens by machine, release_keys.")
]
Output = Annotated[str, typer.Option("--output", "-o", help="table or json.")]
Names = Annotated[list[str], typer.Argument(help="Machine names.", metavar="NAME...")]

DEFAULT_STATE = Path("/var/lib/gpuaas/lab")


@app.command()
def check() -> None:
    """Check that you can make machines on this host: as root, or with sudo that needs no password.

    Example: gpuaas-lab check
    """
    host.require_root()
    print("you can make machines on this host")


@app.command("image")
def build_image(
    packages: PackageList = None,
    toolchain: Toolchain = False,
    lab: LabName = "local",
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Build the machine image and, with --packages, an offline package repository. Both are cached.

    A new build continues with the packages that an interrupted one has fetched.

    Example: gpuaas-lab image --packages packages.txt
    """
    host.require_root()
    host.require_packages()
    image_key, packages_key = Lab(state, lab).build(_package_names(packages), toolchain=toolchain)
    print(f"image {image_key}" + (f"\npackages {packages_key}" if packages_key else ""))


@app.command()
def network(lab: LabName = "local", state: StateFolder = DEFAULT_STATE) -> None:
    """Make the lab's bridge and print it as JSON. A server can then listen on the gateway before machines start.

    Example: gpuaas-lab network
    """
    host.require_root()
    host.require_packages()
    print(json.dumps(vars(Lab(state, lab).ensure_network())))


@app.command()
def up(
    nodes: Annotated[int, typer.Option("--nodes", min=0, max=200, help="Number of machines: gpu-1 to gpu-N.")],
    packages: PackageList = None,
    toolchain: Toolchain = False,
    gpus: Gpus = 2,
    agent: AgentFile = None,
    enrol: EnrolFile = None,
    lab: LabName = "local",
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Make missing machines, start every machine of the lab and wait for its sshd. It is safe to repeat.

    Example: gpuaas-lab up --nodes 3 --packages packages.txt
    """
    host.require_root()
    host.require_packages()
    agents = _enrolment(agent, enrol)
    Lab(state, lab).up(nodes, gpus, _package_names(packages), agents, toolchain=toolchain)


@app.command()
def add(
    names: Annotated[list[str] | None, typer.Argument(help="Names of the new machines.", metavar="[NAME...]")] = None,
    count: Annotated[int, typer.Option("--count", min=0, help="Number of new machines, with the next free names.")] = 0,
    gpus: Gpus = 2,
    agent: AgentFile = None,
    enrol: EnrolFile = None,
    lab: LabName = "local",
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Add machines and start them. A machine that already exists is only started.

    Example: gpuaas-lab add --count 1
    """
    host.require_root()
    host.require_packages()
    if bool(names) == bool(count):
        raise errors.UsageError("give either names or --count", "gpuaas-lab add --count 1")
    Lab(state, lab).add(names or [], count, gpus, _enrolment(agent, enrol))


@app.command()
def remove(names: Names, lab: LabName = "local", state: StateFolder = DEFAULT_STATE) -> None:
    """Destroy machines and their disks.

    Example: gpuaas-lab remove gpu-3
    """
    host.require_root()
    Lab(state, lab).remove(names)


@app.command()
def status(output: Output = "table", lab: LabName = "local", state: StateFolder = DEFAULT_STATE) -> None:
    """List the machines of the lab.

    Example: gpuaas-lab status -o json
    """
    rows = as_json(Lab(state, lab).status())
    if not rows:
        shell.progress(f"lab {lab} has no machines; to make some: gpuaas-lab up --lab {lab} --nodes 3")
    if output == "json":
        print(json.dumps(rows, indent=1))
    elif output == "table":
        for cells in [("NAME", "ADDRESS", "STATE", "NETWORK", "GPUS"), *(row.values() for row in rows)]:
            print("{:<16} {:<15} {:<8} {:<10} {}".format(*cells))
    else:
        raise errors.UsageError(f"unknown output '{output}'", "gpuaas-lab status -o json")


@app.command()
def address(name: str, lab: LabName = "local", state: StateFolder = DEFAULT_STATE) -> None:
    """Print a machine's address.

    Example: gpuaas-lab address gpu-1
    """
    print(Lab(state, lab).address(name))


@app.command("exec")
def execute(
    name: str,
    command: Annotated[list[str], typer.Argument(help="Command and arguments, after --.", metavar="-- COMMAND...")],
    lab: LabName = "local",
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Run a command as root inside a running machine and exit with its exit code.

    Example: gpuaas-lab exec gpu-1 -- systemctl status ssh
    """
    host.require_root()
    _exec(Lab(state, lab).exec_command(name, command))


@app.command()
def console(
    name: str,
    log: Annotated[bool, typer.Option("--log", help="Print the console output since the machine was started.")] = False,
    lab: LabName = "local",
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Open a console on a running machine: a root shell with its own terminal. Type `exit` to leave.

    Example: gpuaas-lab console gpu-1
    """
    host.require_root()
    if log:
        print(Lab(state, lab).console_log(name), end="")
        return
    if not sys.stdin.isatty():
        raise errors.UsageError("console needs a terminal", f"gpuaas-lab exec --lab {lab} {name} -- COMMAND")
    _exec(Lab(state, lab).console_command(name))


@app.command()
def kill(names: Names, lab: LabName = "local", state: StateFolder = DEFAULT_STATE) -> None:
    """Cut the power of machines: all processes end at once, the disks stay.

    Example: gpuaas-lab kill gpu-2
    """
    host.require_root()
    Lab(state, lab).kill(names)


@app.command()
def start(names: Names, lab: LabName = "local", state: StateFolder = DEFAULT_STATE) -> None:
    """Start stopped machines and wait for their sshd.

    Example: gpuaas-lab start gpu-2
    """
    host.require_root()
    host.require_packages()
    Lab(state, lab).start(names)


@app.command()
def freeze(names: Names, lab: LabName = "local", state: StateFolder = DEFAULT_STATE) -> None:
    """Freeze machines: their processes stop running, their connections stay open.

    Example: gpuaas-lab freeze gpu-2
    """
    host.require_root()
    Lab(state, lab).set_frozen(names, True)


@app.command()
def thaw(names: Names, lab: LabName = "local", state: StateFolder = DEFAULT_STATE) -> None:
    """Let frozen machines continue.

    Example: gpuaas-lab thaw gpu-2
    """
    host.require_root()
    Lab(state, lab).set_frozen(names, False)


@app.command()
def cut(names: Names, lab: LabName = "local", state: StateFolder = DEFAULT_STATE) -> None:
    """Cut the network of machines.

    Example: gpuaas-lab cut gpu-2
    """
    host.require_root()
    Lab(state, lab).set_cut(names, True)


@app.command()
def heal(names: Names, lab: LabName = "local", state: StateFolder = DEFAULT_STATE) -> None:
    """Connect machines to the network again, and wait until they can be reached.

    Example: gpuaas-lab heal gpu-2
    """
    host.require_root()
    Lab(state, lab).set_cut(names, False)


@app.command("provisioner")
def run_provisioner(
    token_file: Annotated[Path, typer.Option("--token-file", help="File with the token that callers must send.")],
    server: Annotated[str, typer.Option("--server", help="URL of the platform, as machines reach it.")] = "",
    agent: Annotated[Path | None, typer.Option("--agent", help="Node agent (.pyz) to install.")] = None,
    release_keys: Annotated[
        list[Path] | None, typer.Option("--release-key", help="Public key of agent releases to pin; repeatable.")
    ] = None,
    pretend: Annotated[
        bool, typer.Option("--pretend", help="Answer requests as if machines were reinstalled, but reinstall none.")
    ] = False,
    listen: Annotated[
        str, typer.Option("--listen", help="Address to listen on, HOST:PORT; the host must be a loopback address.")
    ] = "127.0.0.1:7071",
    lab: LabName = "local",
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Reinstall machines when the platform asks for it over HTTP (gpuaas-platform server --sanitise-url).

    Example: gpuaas-lab provisioner --token-file hook.token --agent agent.pyz --server https://10.83.0.1:7443
    """
    work, token = provisioner.Attempts(lambda order: None), provisioner.read_token(token_file)
    if not pretend:
        host.require_root()
        host.require_packages()
        if agent is None or not server:
            raise errors.UsageError("--agent and --server are needed", "gpuaas-lab provisioner --help")
        machines, (program, unit) = Lab(state, lab), enrolment.read_agent(agent)
        keys = [file.read_text() for file in release_keys or []]

        def reinstall(order: provisioner.Order) -> None:
            tokens = {order.name: order.token}
            agent_of_node = enrolment.Enrolment(program, unit, server, order.ca_sha256, tokens, keys)
            machines.reinstall(order.name, agent_of_node)

        work = provisioner.Attempts(reinstall)
    hook = provisioner.serve(*provisioner.parse_address(listen), token, work)
    shell.progress(f"provisioner of lab {lab} on http://{listen}")
    hook.serve_forever()


@app.command()
def down(
    purge: Annotated[bool, typer.Option("--purge", help="Also delete the disks of this lab's machines.")] = False,
    images: Annotated[bool, typer.Option("--images", help="With --purge: also delete unused images.")] = False,
    lab: LabName = "local",
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Stop all machines and remove their mounts, network and cgroups. Disks stay, so `up` starts the same machines.

    Example: gpuaas-lab down --purge
    """
    host.require_root()
    if images and not purge:
        raise errors.UsageError(
            "--images needs --purge, because disks depend on images", "gpuaas-lab down --purge --images"
        )
    names = Lab(state, lab).down(purge=purge, images=images)
    disks = "disks deleted" if purge else "disks kept"
    print(f"lab {lab} is down: {plan.counted(len(names))}, {disks}")


def main() -> None:
    try:
        app()
    except errors.LabError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _exec(argv: list[str]) -> NoReturn:
    """Replace this process by the command, which then gets the terminal, the signals and sets the exit code."""
    terminal = {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}
    os.execvpe(argv[0], argv, {**machine.EXEC_ENVIRONMENT, **terminal})  # noqa: S606


def _package_names(path: Path | None) -> list[str] | None:
    if path is None:
        return None
    try:
        return plan.parse_package_list(path.read_text())
    except OSError as reason:
        raise errors.UsageError(f"cannot read the package list {path}: {reason.strerror}") from reason


def _enrolment(agent: Path | None, enrol: Path | None) -> enrolment.Enrolment | None:
    if agent is None and enrol is None:
        return None
    if agent is None or enrol is None:
        raise errors.UsageError("--agent and --enrol must be given together", "gpuaas-lab up --help")
    return enrolment.read(agent, enrol)


if __name__ == "__main__":
    main()
