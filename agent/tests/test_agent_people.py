"""People's accounts on a node, as far as a folder can show it; tests on machines show the rest."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from gpuaas_agent import commands, errors, handlers, parameters
from gpuaas_agent.handlers import people as handler
from gpuaas_agent.host import accounts, claims, facts, people, processes
from gpuaas_agent.host.ssh import paths, sessions, sshd

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"
ADA = people.Record("ada", 20001, "user_1", "alloc_1")
RUNNING = "State:\tS (sleeping)\nUid:\t20001\t20001\t20001\t20001\n"


def person(login: str = "ada", uid: int = 20001, **changes: Any) -> dict[str, Any]:
    names = {"user_id": f"user_{login}", "login": login, "uid": uid, "gid": uid}
    return {**names, "principal": f"alloc_1/user_{login}", "public_keys": [KEY], **changes}


@dataclasses.dataclass
class Host:
    """A folder in place of the host. Programs that would change accounts are recorded."""

    folder: Path
    users: dict[str, int]
    ran: list[list[str]]
    ended: list[int]

    def run(self, argv: list[str], **_: Any) -> bytes:
        self.ran.append(argv)
        if argv[0] == "useradd":
            self.users[argv[-1]] = int(argv[argv.index("--uid") + 1])
        if argv[0] == "userdel":
            del self.users[argv[-1]]
        return b""

    def end_all(self, uid: int, *, login_only: bool = False) -> int:
        assert login_only
        self.ended.append(uid)
        return 1

    def files(self) -> set[str]:
        """The files that let someone log in."""
        return {str(path.relative_to(self.folder)) for path in self.folder.glob("ssh/*/*")}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path, {}, [], [])
    for name, path in {"PEOPLE": "people", "PRINCIPALS": "ssh/principals", "KEYS": "ssh/keys"}.items():
        monkeypatch.setattr(paths, name, tmp_path / path)
    monkeypatch.setattr(paths, "KEYS_PROGRAM", tmp_path / "keys-of")
    monkeypatch.setattr(paths, "SESSIONS", tmp_path / "sessions")
    monkeypatch.setattr(people, "HOMES", tmp_path / "homes")
    monkeypatch.setattr(people, "SKELETON", tmp_path / "skeleton")
    monkeypatch.setattr(os, "chown", lambda *_, **__: None)
    monkeypatch.setattr(people, "_owner_of", lambda home: host.users.get(home.name) if home.exists() else None)
    monkeypatch.setattr(people, "_user_with", lambda uid: {n: name for name, n in host.users.items()}.get(uid, ""))
    monkeypatch.setattr(people, "_group_with", lambda _: "")
    monkeypatch.setattr(accounts, "uid_of", lambda user: host.users.get(user))
    monkeypatch.setattr(commands, "run", host.run)
    monkeypatch.setattr(processes, "end_all", host.end_all)
    monkeypatch.setattr(claims, "belongs_to", lambda user, allocation_id: allocation_id == "alloc_1")
    monkeypatch.setattr(sshd, "configure", lambda _: None)
    return host


def apply(*wanted: dict[str, Any], allocation_id: str = "alloc_1") -> dict[str, Any]:
    return handler.apply({"allocation_id": allocation_id, "user": "gpu-1", "people": list(wanted)})


def test_everyone_on_the_list_gets_an_account_a_home_a_principal_and_keys(host: Host) -> None:
    (host.folder / "skeleton").mkdir()
    (host.folder / "skeleton/.profile").write_text("x")
    result = apply(person(), person("bea", 20002, public_keys=[]))
    assert result == {"installed": ["user_ada", "user_bea"], "refused": {}, "sessions_ended": 0}
    assert host.users == {"ada": 20001, "bea": 20002}
    assert (host.folder / "homes/ada/.profile").exists()
    assert host.files() == {"ssh/principals/ada", "ssh/principals/bea", "ssh/keys/ada"}
    assert (host.folder / "ssh/principals/ada").read_text() == "alloc_1/user_ada\n"


def test_no_account_gets_sudo_or_a_password(host: Host) -> None:
    apply(person())
    (made,) = [argv for argv in host.ran if argv[0] == "useradd"]
    assert made[made.index("--groups") + 1] == "gpuaas-people"
    assert made[made.index("--password") + 1] == "*"


def test_a_new_account_takes_two_programs(host: Host) -> None:
    apply(person())
    host.ran.clear()
    apply(person(), person("bea", 20002))
    assert [argv[0] for argv in host.ran if argv[-1] == "bea"] == ["groupadd", "useradd"]


def test_a_repeat_changes_nothing(host: Host) -> None:
    apply(person())
    host.ran.clear()
    apply(person())
    assert host.ran == []


def test_a_person_who_is_not_listed_any_more_cannot_log_in_and_keeps_their_files(host: Host) -> None:
    apply(person(), person("bea", 20002))
    (host.folder / "homes/bea/thesis").write_text("x")
    result = apply(person())
    assert result["sessions_ended"] == 1
    assert host.ended == [20002]
    assert host.files() == {"ssh/principals/ada", "ssh/keys/ada"}
    assert ["usermod", "--expiredate", "1", "bea"] in host.ran
    assert (host.folder / "homes/bea/thesis").exists()
    assert "bea" in host.users


def test_a_person_who_returns_gets_the_same_account_back(host: Host) -> None:
    apply(person("bea", 20002))
    apply()
    host.ran.clear()
    apply(person("bea", 20002))
    assert [argv for argv in host.ran if argv[0] != "groupadd"] == [["usermod", "--expiredate", "", "bea"]]
    assert host.files() == {"ssh/principals/bea", "ssh/keys/bea"}


def test_an_account_that_exists_already_is_never_touched_and_the_others_are_made(host: Host) -> None:
    host.users = {"bea": 1000, "local": 20003}
    result = apply(person(), person("bea", 20002), person("cyd", 20003))
    assert result["installed"] == ["user_ada"]
    assert result["refused"] == {
        "user_bea": "the local user bea has another number, 1000",
        "user_cyd": "user number 20003 belongs to the local user local",
    }
    assert not any("bea" in argv or "cyd" in argv for argv in host.ran)


def test_a_home_of_another_number_is_not_given_to_the_person(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.users == {}
    monkeypatch.setattr(people, "_owner_of", lambda _: 7)
    assert "belongs to user number 7" in apply(person("bea", 20002))["refused"]["user_bea"]


def test_people_of_an_allocation_that_is_not_here_are_refused(host: Host) -> None:
    with pytest.raises(errors.TaskFailed, match="not on this node"):
        apply(person(), allocation_id="alloc_2")


def test_a_removed_account_takes_its_home_along_unless_the_home_is_shared(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(person(), person("bea", 20002))
    ada, bea = (people.recorded("alloc_1")[login] for login in ("ada", "bea"))
    assert str(host.folder / "homes/ada") in people.remove(ada)
    monkeypatch.setattr(facts, "shared_mounts", lambda: [{"path": str(host.folder / "homes")}])
    people.remove(bea)
    assert (host.folder / "homes/bea").is_dir()
    assert not (host.folder / "homes/ada").exists()
    assert (people.recorded(), host.users) == ({}, {})


@pytest.mark.parametrize(
    "wrong",
    [
        [person(uid=999)],
        [person(gid=1)],
        [person(login="Ada")],
        [person(principal="alloc_1")],
        [person(), person()],
        [person(), person("bea")],
        [{**person(), "sudo": True}],
        "ada",
    ],
    ids=["system number", "other group", "capital", "no person", "twice", "one number twice", "unknown field", "text"],
)
def test_anything_but_a_set_of_accounts_is_refused(wrong: object) -> None:
    params = {"allocation_id": "alloc_1", "user": "gpu-1", "people": wrong}
    assert parameters.mismatch(handlers.HANDLERS["allocation.people"].params, params) is not None


@pytest.mark.parametrize(
    ("control_group", "is_login"),
    [
        ("0::/user.slice/user-20001.slice/session-3.scope\n", True),
        ("0::/user.slice/user-20001.slice/user@20001.service/app.slice/x\n", True),
        ("0::/system.slice/ssh.service\n", True),
        ("0::/system.slice/sshd@7-10.0.0.1:22.service\n", True),
        ("0::/system.slice/cron.service\n", True),
        ("0::/system.slice/atd.service\n", True),
        ("0::/system.slice/scheduler.service/job_7\n", False),
        ("0::/user.slice/user-20002.slice/session-3.scope\n", False),
    ],
)
def test_only_processes_of_login_sessions_cron_and_at_end_with_the_person(control_group: str, is_login: bool) -> None:
    process = processes.Observed(RUNNING, "", control_group, b"")
    assert processes.is_of_login(process, 20001) == is_login


SSHD = "0::/system.slice/ssh.service\n"
ENVIRONMENT = b"A=1\0SSH_CONNECTION=10.0.0.1 4711 10.0.0.2 22\0"


def test_a_session_is_recognised_by_its_scope_its_audit_number_and_its_connection() -> None:
    scope = "0::/user.slice/user-20001.slice/session-3.scope"
    assert sessions.marks_of(f"{scope}\n", "4294967295", RUNNING, ENVIRONMENT) == {scope}
    assert sessions.marks_of("0::/x\n", "7", RUNNING, b"") == {"audit 7"}
    assert len(sessions.marks_of(SSHD, "", RUNNING, ENVIRONMENT)) == 1


def test_no_one_can_make_their_processes_look_like_another_persons_session() -> None:
    other = RUNNING.replace("20001", "20002")
    assert not sessions.marks_of(SSHD, "", RUNNING, ENVIRONMENT) & sessions.marks_of(SSHD, "", other, ENVIRONMENT)
    nested = "0::/user.slice/user-20002.slice/user@20002.service/user.slice/user-20001.slice/session-3.scope\n"
    assert sessions.marks_of(nested, "", other, b"") == set()


def test_a_schedulers_job_is_not_part_of_the_session_that_submitted_it() -> None:
    assert sessions.marks_of("0::/system.slice/scheduler.service/job_7\n", "", RUNNING, ENVIRONMENT) == set()


MOUNTINFO = """21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
90 21 0:50 / /home/people rw shared:40 - nfs4 10.0.0.5:/export/home rw,vers=4.2
91 21 0:51 / /scratch\\040fast rw - lustre 10.0.0.6@tcp:/scratch rw
92 21 0:52 / /tmp rw - tmpfs tmpfs rw
"""


def test_network_and_cluster_file_systems_are_facts() -> None:
    assert facts.network_mounts(MOUNTINFO) == [
        {"path": "/home/people", "source": "10.0.0.5:/export/home", "fstype": "nfs4"},
        {"path": "/scratch fast", "source": "10.0.0.6@tcp:/scratch", "fstype": "lustre"},
    ]


def test_operators_declare_what_the_kernel_does_not_show_as_shared(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text(MOUNTINFO)
    declared = tmp_path / "shared.json"
    declared.write_text('{"mounts": [{"path": "/data", "source": "san", "fstype": "bind"}, {"path": "/scratch"}]}')
    shared = facts.shared_mounts(declared, tmp_path / "mounts")
    assert [entry["path"] for entry in shared] == ["/data", "/home/people", "/scratch", "/scratch fast"]
    assert shared[0] == {"path": "/data", "source": "san", "fstype": "bind"}
    declared.write_text("[]")
    assert len(facts.shared_mounts(declared, tmp_path / "mounts")) == 2


@pytest.mark.parametrize(
    ("path", "shared"), [("/home/people/ada", True), ("/home/people", True), ("/home/peopled", False), ("/", False)]
)
def test_a_home_on_a_shared_mount_is_recognised(path: str, shared: bool) -> None:
    assert facts.is_shared(Path(path), facts.network_mounts(MOUNTINFO)) == shared


@pytest.mark.parametrize(
    ("name_of_uid", "uid_of_login", "name_of_gid", "is_free"),
    [
        ("", None, "", True),
        ("ada", 20001, "ada", True),
        ("bob", None, "", False),
        ("", 7, "", False),
        ("", None, "wheel", False),
    ],
)
def test_numbers_and_names_of_local_accounts_are_left_alone(
    name_of_uid: str, uid_of_login: "int | None", name_of_gid: str, is_free: bool
) -> None:
    assert (people.why_not_free(ADA, name_of_uid, uid_of_login, name_of_gid) == "") == is_free
