"""Arguments and options that several commands take, so that each is called and explained the same everywhere."""

from typing import Annotated

import typer

from gpuaas_cli import failures

InstanceName = Annotated[str, typer.Argument(metavar="INSTANCE")]
OperationId = Annotated[str, typer.Argument(metavar="OPERATION")]
Reason = Annotated[str, typer.Option(help="Why, for those who look later.")]
NeededReason = Annotated[str, typer.Option("--reason", help="Why; kept on the audit trail.")]
Force = Annotated[
    bool,
    typer.Option("--force", help="Against holds, budgets and missing evidence that it is safe; needs --reason."),
]
Detach = Annotated[bool, typer.Option("--detach/--wait", "-d/-w", help="Return at once, or follow it to its end.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, change nothing.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An input; repeatable.")]


def check_force(force: bool, reason: str, command: str) -> None:
    """The server would say the same, but not which option is missing."""
    if force and not reason.strip():
        raise failures.usage("--force needs a reason", f'{command} --force --reason "WHY"')


def words(given: list[str]) -> list[str]:
    """`a,b c` and `a b c` are the same three."""
    return [part for one in given for part in one.split(",") if part]
