"""The accounting and the Unix accounts of the fake Slurm: associations with their limits, from memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuaas_sdk.machine import Ran

LIMITS = ("GrpJobs", "GrpSubmitJobs", "MaxJobs", "MaxSubmitJobs", "MaxWall", "GrpTRES", "Fairshare")
OK = Ran(0, "", "")
SHOWN = ("GrpSubmitJobs", "MaxJobs", "MaxSubmitJobs", "MaxWall", "GrpTRES", "Fairshare")


@dataclass
class FakeAccounting:
    """What `sacctmgr` shows and changes, and which people have a Unix account."""

    users: dict[str, dict[str, str]] = field(default_factory=lambda: {"": {}})
    """User -> limits by name; the account itself has an empty user."""
    waits_for_account: set[str] = field(default_factory=set)
    """Logins without a Unix account: each is asked for once, and there afterwards."""
    without_account: set[str] = field(default_factory=set)
    """Logins that never get one."""
    unix: dict[str, dict[str, tuple[str, bool]]] = field(default_factory=dict)
    """Machine -> name -> number and whether the account is expired, of the Unix accounts with numbers of the app."""
    on_ensure: Callable[[str], None] | None = None
    """What happens, with the name of the machine, immediately before accounts are written there."""
    refuses: str = ""
    """What sacctmgr prints, with status 1, instead of a change."""
    is_deaf: bool = False
    """Changes are confirmed and lost."""
    commands: list[tuple[str, ...]] = field(default_factory=list)

    def answer(self, argv: Sequence[str]) -> Ran:
        """Answer `sacctmgr` without its options."""
        self.commands.append(tuple(argv))
        match tuple(argv):
            case ("show", "association", *_):
                return Ran(0, "".join(self._line(user) for user in self.users), "")
            case ("add", "user", names, *_) if not self.is_deaf:
                known = [name for name in names.split(",") if name in self.users]
                self.users |= {name: {} for name in names.split(",") if name not in self.users}
                return Ran(1 if known else 0, "", "")
            case ("modify", *_) if self.refuses:
                return Ran(1, "", self.refuses)
            case ("modify", "user", "where", name, _, _, "set", *values) if not self.is_deaf:
                known = [user for user in name.removeprefix("name=").split(",") if user in self.users]
                for user in known:
                    self._set(user, values)
                return OK if known else Ran(1, " Nothing modified\n", "")
            case ("modify", "account", "where", _, _, "set", *values) if not self.is_deaf:
                self._set("", values)
        return Ran(0, "", "")

    def accounts(self, words: Sequence[str]) -> Ran:
        """Answer the script that makes homes: print who has no Unix account."""
        waiting = [login for login in words[::3] if login in self.waits_for_account | self.without_account]
        self.waits_for_account -= set(waiting)
        return Ran(0, "\n".join(waiting), "")

    def ensure(self, words: Sequence[str], machine: str) -> Ran:
        """Answer the script that makes users of the cluster on a machine."""
        if self.on_ensure:
            self.on_ensure(machine)
        here = self.unix.setdefault(machine, {})
        for name, uid, state in zip(words[::3], words[1::3], words[2::3], strict=True):
            was_expired = here.get(name, (uid, False))[1]
            here[name] = (uid, state == "removed" or (was_expired and state != "restored"))
        return OK

    def listed(self, machine: str) -> list[str]:
        """Return what the script prints that lists the users on a machine: `ann 6000 ` or `bob 6001 removed`."""
        here = self.unix.get(machine, {})
        return [f"{name} {uid} {'removed' if is_expired else ''}" for name, (uid, is_expired) in here.items()]

    def _set(self, user: str, values: Sequence[str]) -> None:
        for name, _, value in (text.partition("=") for text in values):
            if name == "GrpTRES":
                tres = dict(part.split("=") for part in self.users[user].get(name, "").split(",") if part)
                tres |= dict(part.split("=") for part in value.split(","))
                value = ",".join(f"{key}={number}" for key, number in tres.items() if number != "-1")
            self.users[user][name] = "" if value == "-1" else value

    def _line(self, user: str) -> str:
        return "|".join([user, *(self.users[user].get(name, "") for name in SHOWN)]) + "\n"
