"""The app's scripts wait for other programs on the machine: a dead controller's last command, ending processes."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from gpuaas_app_slurm.workload import config, home, repairs, reporter, users, watch_program


def run(script: str, *arguments: str, programs: Path) -> int:
    """Run a script as `Machine.script` does, with these programs before the system's on the search path."""
    path = f"{programs}:{os.environ['PATH']}"
    bash = ["bash", "-seuo", "pipefail", "--", *arguments]
    return subprocess.run(bash, input=script, text=True, env={**os.environ, "PATH": path}, check=False).returncode


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_home_that_another_machine_copied_at_the_same_time_stays_as_it_made_it(tmp_path: Path) -> None:
    people, shared, programs = tmp_path / "people", tmp_path / "shared", tmp_path / "programs"
    (people / "ada").mkdir(parents=True)
    (people / "ada" / "notes").write_text("of this machine")
    programs.mkdir()
    program(programs / "systemctl", "exit 0")
    program(programs / "mountpoint", '[ -e "$0.was-asked" ] || { touch "$0.was-asked"; exit 1; }')
    other = f"mkdir -p {shared}/ada; echo 'of the other machine' > {shared}/ada/notes"
    program(programs / "cp", f'{other}; exec /bin/cp "$@"')
    assert run(home.MOUNT, str(shared), str(people), home.UNIT, "0", programs=programs) == 0
    assert (shared / "ada" / "notes").read_text() == "of the other machine\n"
    assert [str(path.relative_to(shared)) for path in sorted(shared.rglob("*"))] == ["ada", "ada/notes"]


def test_the_watch_lists_accounts_of_people_that_slurm_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwd = tmp_path / "passwd"
    people = ("ada", "bob", "researcher")
    lines = ["root:x:0:0:root:/root:/bin/bash", *(f"{name}:x:1:1::/home/people/{name}:/bin/bash" for name in people)]
    passwd.write_text("\n".join([*lines, "eva:x:1:1::/home/people/ada:/bin/bash", ""]))
    monkeypatch.setattr(watch_program, "ACCOUNTS", str(passwd))
    assert watch_program.unplaced("|\nbob|0\nresearcher|") == ["ada"]


def test_the_watch_lists_the_jobs_of_blocked_users_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = "".join(f"echo 'ada|{number}'; " for number in range(30))
    program(tmp_path / "squeue", f'[ "$5" = ada,bob ] && {jobs} echo "squeue: error: Invalid user: bob"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    listed = watch_program.blocked_jobs("|0\nada|0\nbob|0\nresearcher|\ntom|10")
    assert listed == {"ada": {"count": 30, "first": [str(number) for number in range(20)]}}
    assert watch_program.blocked_jobs("researcher|") == {}
    program(tmp_path / "squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller'")
    assert watch_program.blocked_jobs("ada|0") is None


HEALTH_CHECK = Path(__file__).parent / "golden" / "health-check"
RESUMED_BY_OTHERS = """
case $* in
  "show node"*) if [ -e "$0.resumed" ]; then echo State=IDLE; else echo "State=IDLE+DRAIN Reason=gpuaas-check: x"; fi ;;
  update*) touch "$0.resumed"; echo "Invalid node state specified" >&2; exit 1 ;;
esac
"""
"""scontrol, if another run of the health check resumes the node between the look and the resume."""
NEVER_RESUMED = """
case $* in
  "show node"*) echo "State=IDLE+DRAIN Reason=gpuaas-check: x" ;;
  update*) exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("scontrol", "status"), [(RESUMED_BY_OTHERS, 0), (NEVER_RESUMED, 1)], ids=["resumed", "drained"]
)
def test_a_health_check_fails_if_the_node_stays_drained_and_not_if_another_run_resumed_it(
    tmp_path: Path, scontrol: str, status: int
) -> None:
    program(tmp_path / "scontrol", scontrol)
    program(tmp_path / "df", "echo ' 5%'")
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = subprocess.run(["sh", HEALTH_CHECK], env={**os.environ, "PATH": path}, check=False)
    assert ran.returncode == status


HEALTHY = """
case $* in
  "show node"*) echo State=IDLE ;;
  update*) echo "$*" >> "$0.updates" ;;
esac
"""


@pytest.mark.parametrize(
    ("full", "age_s", "drain"),
    [
        ({"/var": 1}, 0, "reason=gpuaas-check: the disk of /var has 1 % of its space or files left"),
        ({"/var": 2}, 0, ""),
        ({"/var/lib/mysql": 0}, 0, ""),
        ({}, 0, ""),
        ({"/var": 1}, 300, ""),
        (None, 0, ""),
    ],
    ids=["full", "nearly full", "of the database", "sound", "old report", "no report"],
)
def test_a_health_check_drains_a_node_whose_new_report_of_the_app_shows_a_full_disk(
    tmp_path: Path, full: dict[str, int] | None, age_s: float, drain: str
) -> None:
    program(tmp_path / "scontrol", HEALTHY)
    program(tmp_path / "df", "echo ' 5%'")
    report = tmp_path / "health.json"
    if full is not None:
        report.write_text(json.dumps({"full": full}))
        os.utime(report, (time.time() - age_s,) * 2)
    written = Path(config.__file__).parent / "templates" / "health-check"
    script = written.read_text().replace("/run/gpuaas-slurm/health.json", str(report))
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["sh", "-c", script], env={**os.environ, "PATH": path}, check=True)
    updates = tmp_path / "scontrol.updates"
    assert (updates.read_text().strip() if updates.exists() else "").endswith(drain)
    assert updates.exists() == bool(drain)


@pytest.mark.parametrize(("name", "status"), [("alice", 0), ("bob", 1)])
def test_a_user_whose_number_owns_the_home_of_another_name_is_refused_and_gets_no_home(
    tmp_path: Path, name: str, status: int
) -> None:
    """Two clusters that share a folder number their users alone: bob of one would own the files of alice of another."""
    people, programs, uid = tmp_path / "people", tmp_path / "programs", os.getuid()
    (people / "alice").mkdir(parents=True)
    (people / f".{name}-a1b2c3").mkdir()  # of a home that another machine makes now
    programs.mkdir()
    shown = f"{name}:x:{uid}:{uid}::{people}/{name}:/bin/bash"
    exists = f"[ -e {tmp_path}/made ]"
    program(programs / "getent", f'{exists} || exit 2; [ "$1" = passwd ] && echo {shown} || echo {name}:x:::::::')
    program(programs / "groupadd", "exit 0")
    program(programs / "useradd", f"touch {tmp_path}/made")
    program(programs / "id", f"echo {uid}")
    script = users.USERS.replace("/home/people", str(people))
    assert run(script, name, str(uid), "active", programs=programs) == status
    assert {path.name for path in people.iterdir()} == {"alice", f".{name}-a1b2c3"}
    assert (tmp_path / "made").exists() == (status == 0), "an account would make it a user of the cluster"


@pytest.mark.parametrize("state", ["active", "restored", "removed"])
def test_no_user_gets_a_group_of_the_system_as_their_own(tmp_path: Path, state: str) -> None:
    """A user named like the group `shadow` could read the passwords, and the group would be deleted with the user."""
    people, programs, made = tmp_path / "people", tmp_path / "programs", tmp_path / "made"
    people.mkdir()
    programs.mkdir()
    program(programs / "getent", '[ "$1" = group ] && echo shadow:x:42: || exit 2')
    program(programs / "groupadd", f"touch {made}")
    program(programs / "useradd", f"touch {made}")
    program(programs / "id", "exit 1")
    script = users.USERS.replace("/home/people", str(people))
    assert run(script, "shadow", "6001", state, programs=programs) == 1
    assert (made.exists(), list(people.iterdir())) == (False, [])


def test_a_group_that_a_refused_useradd_left_is_made_again_with_the_new_number(tmp_path: Path) -> None:
    """Two additions at the same time choose the same number, and one of them is repeated."""
    people, programs, uid = tmp_path / "people", tmp_path / "programs", os.getuid()
    people.mkdir()
    programs.mkdir()
    left, changed = tmp_path / "left", tmp_path / "changed"
    left.touch()
    shown = f"bob:x:{uid}:{uid}::/elsewhere:/bin/bash"
    passwd = f"[ -e {tmp_path}/made ] || exit 2; echo {shown}"
    group = f"[ -e {left} ] && echo bob:x:6013: || exit 2"
    program(programs / "getent", f"case $1 in group) {group} ;; passwd) {passwd} ;; *) echo b:*:1:0:9:7::: ;; esac")
    program(programs / "groupdel", f'rm {left}; echo groupdel "$@" >> {changed}')
    program(programs / "groupadd", f'echo groupadd "$@" >> {changed}')
    program(programs / "useradd", f"touch {tmp_path}/made")
    program(programs / "id", f"echo {uid}")
    script = users.USERS.replace("/home/people", str(people))
    assert run(script, "bob", str(uid), "active", programs=programs) == 0
    assert changed.read_text().splitlines() == ["groupdel -f bob", f"groupadd -g {uid} bob"]


@pytest.mark.parametrize(
    ("expires", "state", "owner", "changes"),
    [
        ("", "active", "", []),
        ("1", "active", "", []),
        ("1", "restored", "", ["-e  bob"]),
        ("", "restored", "", []),
        ("", "removed", "", ["-e 1 bob"]),
        ("1", "removed", "", []),
        ("", "removed", "20001", []),
    ],
)
def test_only_a_user_who_is_restored_gets_an_expired_account_back(
    tmp_path: Path, expires: str, state: str, owner: str, changes: list[str]
) -> None:
    """The other writers may have read the list before the user was removed. The account of a person is not changed."""
    people, programs, uid = tmp_path / "people", tmp_path / "programs", os.getuid()
    (people / "bob").mkdir(parents=True)
    programs.mkdir()
    shadow, passwd = f"bob:*:20000:0:99999:7::{expires}:", f"bob:x:{uid}:{uid}::{people}/bob:/bin/bash"
    program(programs / "getent", f"case $1 in shadow) echo '{shadow}' ;; passwd) echo '{passwd}' ;; esac")
    program(programs / "id", f"echo {owner or uid}")
    program(programs / "usermod", f'echo "$@" >> {tmp_path}/usermod')
    program(programs / "loginctl", "exit 1")
    script = users.USERS.replace("/home/people", str(people))
    assert run(script, "bob", str(uid), state, programs=programs) == 0
    changed = tmp_path / "usermod"
    assert (changed.read_text().splitlines() if changed.exists() else []) == changes


def test_only_owners_in_the_range_of_the_app_are_listed_and_a_folder_that_does_not_exist_has_none(
    tmp_path: Path,
) -> None:
    (tmp_path / "alice").mkdir()
    (tmp_path / "notes").write_text("no home")
    uid = os.getuid()
    assert _printed(users.OWNERS, tmp_path, uid, uid) == f"{uid} alice\n"
    assert _printed(users.OWNERS, tmp_path, uid + 1, uid + 9) == ""
    assert _printed(users.OWNERS, tmp_path / "none", uid, uid) == ""


def _printed(script: str, *arguments: object) -> str:
    bash = ["bash", "-seuo", "pipefail", "--", *map(str, arguments)]
    return subprocess.run(bash, input=script, text=True, capture_output=True, check=True).stdout


def test_one_file_is_put_back_and_the_edits_of_others_are_only_listed(tmp_path: Path) -> None:
    conf, key, gone = (tmp_path / name for name in ("slurm.conf", "slurm.key", "gone"))
    listed, saved = tmp_path / "list", tmp_path / "list.tar"
    for file in (conf, key, gone):
        file.write_text("as the app wrote it")
    _printed(reporter.SAVE, listed, saved, conf, key, gone)
    assert _printed(reporter.CHANGED, listed) == ""
    assert _printed(reporter.RESTORE_ONE, saved, conf) == "", "nothing to put back"
    conf.write_text("new settings")
    key.write_text("an edit")
    gone.unlink()
    assert _printed(reporter.CHANGED, listed).splitlines() == [str(conf), str(key), str(gone)]
    assert _printed(reporter.RESTORE_ONE, saved, conf) == "changed\n"
    assert (conf.read_text(), key.read_text()) == ("as the app wrote it", "an edit")


def test_only_a_slurmd_that_systemd_does_not_know_is_ended_before_a_restart(tmp_path: Path) -> None:
    processes, unit = tmp_path / "proc", "0::/system.slice/slurmd.service"
    shown = {
        "11": ("/usr/sbin/slurmd", unit),
        "12": ("/usr/sbin/slurmd-wlm (deleted)", unit),
        "13": ("/usr/sbin/slurmstepd", unit),
        "14": ("/usr/sbin/slurmd", "0::/system.slice/another.service"),
    }
    for pid, (exe, cgroup) in shown.items():
        (processes / pid).mkdir(parents=True)
        (processes / pid / "exe").symlink_to(exe)
        (processes / pid / "cgroup").write_text(f"{cgroup}\n")
    (processes / "15").mkdir()
    program(tmp_path / "systemctl", "echo 11")
    ended = f'kill() {{ echo "$*" >> {tmp_path}/ended; }}\n'
    assert run(ended + repairs.END_LEFT, str(processes), programs=tmp_path) == 0
    assert (tmp_path / "ended").read_text() == "-KILL 12\n"
