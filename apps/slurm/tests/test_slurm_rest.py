"""The REST API on a fake Slurm: what a cluster with it has and one without it has not, tokens, repair and removal."""

import datetime
import pathlib
from typing import Any

import msgspec
import pytest
from gpuaas_app_slurm import access, checks, controller
from gpuaas_app_slurm.workload import config, footprint, home, reporter_program, rest
from gpuaas_app_slurm.workload.observed import Observed, Report, Reported
from gpuaas_app_slurm_conformance.fake_slurm import Cluster
from gpuaas_app_slurm_conformance.fake_tokens import SIGNATURE, encoded
from gpuaas_app_slurm_conformance.fresh_machines import NewCluster, new_cluster
from gpuaas_contract.posix import PosixPerson
from gpuaas_sdk.checks import Check
from gpuaas_sdk.failures import Refused
from gpuaas_sdk.machine import Ran
from test_slurm_upgrade import NEW, OLD, add_version, move

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2"], "login": ["gpu-4"]}
LINES = f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={footprint.TOKEN_KEY}\n"
CONFIGURATION = (config.SLURM_CONF, "/etc/slurm/slurmdbd.conf")


def add_ada(cluster: Cluster) -> None:
    cluster.platform.records.people.append(
        PosixPerson(
            user_id="user_ada",
            name="ada",
            login="ada",
            uid=20000,
            gid=20000,
            state="active",
            is_admin=False,
            public_keys=[],
        )
    )


async def deployed(cluster: NewCluster) -> None:
    ended = await cluster.perform("deploy")
    assert ended.status == "succeeded", ended.error
    add_ada(cluster)


def has_rest(cluster: NewCluster, name: str) -> tuple[bool, ...]:
    """Return whether the machine has the packages, the unit, the key of the tokens, and a slurmrestd that runs."""
    host = cluster.host(name)
    packages = set(footprint.REST_PACKAGES) <= host.installed
    return packages, footprint.REST_DROP_IN in host.files, footprint.TOKEN_KEY in host.files, rest.UNIT in host.active


async def test_only_the_controller_machine_of_a_cluster_with_the_option_has_the_rest_api() -> None:
    async with new_cluster(MEMBERS, rest_api=True) as cluster:
        await deployed(cluster)
        assert {name: has_rest(cluster, name) for name in ("gpu-1", "gpu-2", "gpu-4")} == {
            "gpu-1": (True,) * 4,
            "gpu-2": (False,) * 4,
            "gpu-4": (False,) * 4,
        }
        files = cluster.host("gpu-1").files
        assert all(LINES in files[path].decode() for path in CONFIGURATION)
        assert "-a rest_auth/jwt gpu-1:6820\n" in files[footprint.REST_DROP_IN].decode()


async def test_a_cluster_without_the_option_has_nothing_of_it() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await deployed(cluster)
        assert has_rest(cluster, "gpu-1") == (False,) * 4
        files = cluster.host("gpu-1").files
        assert not any(b"AuthAlt" in files[path] for path in CONFIGURATION)


async def test_a_token_is_in_a_file_of_its_owner_and_in_no_result_step_or_command_line() -> None:
    async with new_cluster(MEMBERS, rest_api=True) as cluster:
        await deployed(cluster)
        before = datetime.datetime.now(datetime.UTC)
        ended = await cluster.act("token.issue", by="user_ada", minutes=90)
        assert ended.status == "succeeded", ended.error
        [row] = ended.result["rows"]
        assert (row["login"], row["machine"], row["url"]) == ("ada", "gpu-4", "http://gpu-1:6820")
        assert row["path"] == "/home/people/ada/.slurm-token-lab"
        length = datetime.datetime.fromisoformat(row["ends_at"]) - before
        assert datetime.timedelta(minutes=89) < length < datetime.timedelta(minutes=92)
        [made] = commands(cluster, "gpu-1", "token")
        assert (made.argv, made.as_user) == (("scontrol", "token", "username=ada", "lifespan=5400"), "ada")
        [written] = commands(cluster, "gpu-4", rest.WRITE)
        assert written.as_user == "ada"
        assert SIGNATURE.encode() in written.input
        assert SIGNATURE not in msgspec.json.encode(ended).decode()
        assert not any(SIGNATURE in word for name in ("gpu-1", "gpu-4") for word in words(cluster, name))


def commands(cluster: NewCluster, name: str, word: str) -> list[Any]:
    return [command for command in cluster.host(name).commands if word in command.argv]


def words(cluster: NewCluster, name: str) -> list[str]:
    return [word for command in cluster.host(name).commands for word in (*command.argv, *command.summary)]


async def test_a_token_is_written_on_the_controller_machine_if_there_is_no_login_machine() -> None:
    async with new_cluster({"controller": ["gpu-1"], "worker": ["gpu-2"]}, rest_api=True) as cluster:
        await deployed(cluster)
        ended = await cluster.act("token.issue", by="user_ada")
        assert [row["machine"] for row in ended.result["rows"]] == ["gpu-1"]
        assert [made.argv[-1] for made in commands(cluster, "gpu-1", "token") if made.argv[0] == "scontrol"] == [
            "lifespan=3600"
        ]


async def test_without_the_option_a_token_is_refused_with_the_next_command() -> None:
    async with new_cluster(MEMBERS) as cluster:
        await deployed(cluster)
        ended = await cluster.act("token.issue", by="user_ada")
        assert (ended.status, ended.error.code) == ("failed", "refused")
        assert "deployed without a REST API" in ended.error.message
        assert "--set rest_api=true" in ended.error.fix
        assert not commands(cluster, "gpu-1", "token")


async def test_a_caller_without_a_login_gets_no_token() -> None:
    async with new_cluster(MEMBERS, rest_api=True) as cluster:
        await deployed(cluster)
        ended = await cluster.act("token.issue", by="user_unknown")
        assert ended.status == "failed"
        assert "you have no login" in ended.error.message
        assert not commands(cluster, "gpu-1", "token")


async def test_a_token_that_slurm_does_not_make_or_that_cannot_be_written_fails_without_its_text() -> None:
    async with new_cluster(MEMBERS, rest_api=True) as cluster:
        await deployed(cluster)
        cluster.slurm.tokens.not_written = Ran(1, "", "mktemp: No such file or directory")
        ended = await cluster.act("token.issue", by="user_ada")
        assert ended.status == "failed"
        assert "mktemp: No such file" in ended.error.message
        assert SIGNATURE not in msgspec.json.encode(ended).decode()
        cluster.slurm.tokens.not_made = Ran(0, f"SLURM_JWT={SIGNATURE} and more", "it is too early")
        ended = await cluster.act("token.issue", by="user_ada")
        assert ended.status == "failed"
        assert "made no token for ada: it is too early" in ended.error.message
        assert SIGNATURE not in msgspec.json.encode(ended).decode()


@pytest.mark.parametrize("operation", ["stop", "restart"])
async def test_slurmrestd_stops_starts_and_restarts_with_the_cluster(operation: str) -> None:
    async with new_cluster(MEMBERS, rest_api=True) as cluster:
        await deployed(cluster)
        starts = cluster.host("gpu-1").started.count(f"{rest.UNIT} 24.11.5")
        assert (await cluster.perform(operation)).status == "succeeded"
        assert (rest.UNIT in cluster.host("gpu-1").active) == (operation == "restart")
        if operation == "stop":
            assert (await cluster.perform("start")).status == "succeeded"
        assert cluster.host("gpu-1").started.count(f"{rest.UNIT} 24.11.5") > starts
        assert rest.UNIT in cluster.host("gpu-1").active


async def test_the_rest_api_moves_with_the_controller_and_gets_a_key_of_its_own() -> None:
    async with new_cluster(MEMBERS, rest_api=True) as cluster:
        await deployed(cluster)
        key = cluster.host("gpu-1").files[footprint.TOKEN_KEY]
        ended = await cluster.perform("replace", [cluster.member_of(cluster.instance, "gpu-1")], replacements=["gpu-5"])
        assert ended.status == "succeeded", ended.error
        assert (has_rest(cluster, "gpu-1")[1:], has_rest(cluster, "gpu-5")) == ((False,) * 3, (True,) * 4)
        assert cluster.host("gpu-5").files[footprint.TOKEN_KEY] != key
        assert "gpu-5:6820" in cluster.host("gpu-5").files[footprint.REST_DROP_IN].decode()


async def test_slurmrestd_starts_with_each_version_that_an_upgrade_and_a_rollback_install() -> None:
    async with new_cluster(MEMBERS, rest_api=True) as cluster:
        cluster.platform.add_version(msgspec.structs.replace(controller.app.manifest, version="1.0.0"))
        await deployed(cluster)
        for kind, slurm_version in (("upgrade", NEW), ("rollback", OLD)):
            version = add_version(cluster, NEW, footprint.REST_PACKAGES) if kind == "upgrade" else "1.0.0"
            ended = await move(cluster, kind, version)
            assert ended.status == "succeeded", ended.error
            started = [each for each in cluster.host("gpu-1").started if each.startswith(rest.UNIT)]
            assert started[-1] == f"{rest.UNIT} {slurm_version}"
            assert rest.UNIT in cluster.host("gpu-1").active


async def test_an_upgrade_to_a_bundle_without_the_rest_api_is_refused_before_anything_changes() -> None:
    async with new_cluster(MEMBERS, rest_api=True) as cluster:
        await deployed(cluster)
        before = list(cluster.host("gpu-1").started)
        ended = await move(cluster, "upgrade", add_version(cluster, NEW))
        assert (ended.status, ended.error.code) == ("failed", "refused")
        assert "has no slurmrestd and no slurm-wlm-jwt-plugin" in ended.error.message
        assert cluster.host("gpu-1").started == before


def test_packages_of_the_rest_api_are_missing_only_if_other_packages_change() -> None:
    rest.refuse_without_packages([])
    rest.refuse_without_packages(["slurmctld=26.05-1", *(f"{name}=26.05-1" for name in footprint.REST_PACKAGES)])
    with pytest.raises(Refused, match="has no slurm-wlm-jwt-plugin, which"):
        rest.refuse_without_packages(["slurmctld=26.05-1", "slurmrestd=26.05-1"])


async def test_a_repair_of_the_controller_starts_slurmrestd_again() -> None:
    async with new_cluster(MEMBERS, rest_api=True) as cluster:
        await deployed(cluster)
        cluster.host("gpu-1").active.discard(rest.UNIT)
        ended = await cluster.perform("repair", [cluster.member_of(cluster.instance, "gpu-1")])
        assert ended.status == "succeeded", ended.error
        assert rest.UNIT in cluster.host("gpu-1").active


async def test_a_deploy_fails_with_the_next_command_if_slurmrestd_does_not_start() -> None:
    async with new_cluster(MEMBERS, rest_api=True) as cluster:
        cluster.faults.broken_units.add(f"gpu-1 {rest.UNIT}")
        ended = await cluster.perform("deploy")
        assert ended.status == "failed"
        assert "slurmrestd on gpu-1 did not start" in ended.error.message
        assert f"journalctl -n 50 -u {rest.UNIT}" in ended.error.fix


async def test_a_decommission_removes_the_packages_the_unit_and_the_key() -> None:
    async with new_cluster(MEMBERS, rest_api=True) as cluster:
        await deployed(cluster)
        assert (await cluster.perform("decommission")).status == "succeeded"
        host = cluster.host("gpu-1")
        assert (host.active & {rest.UNIT}, host.installed & set(footprint.REST_PACKAGES)) == (set(), set())
        assert not {footprint.REST_DROP_IN, footprint.TOKEN_KEY} & host.files.keys()


@pytest.mark.parametrize(
    ("unit", "codes"), [("active", []), ("activating", []), ("inactive", ["RestDown"]), ("restarting", ["RestDown"])]
)
def test_a_slurmrestd_that_does_not_run_is_a_fault_that_the_app_repairs(unit: str, codes: list[str]) -> None:
    report = Report(units={rest.UNIT: (unit, 0)})
    seen = Observed(Check(True), Check(True), {}, Reported(report=report, is_stale=False))
    findings = checks.of_controller(checks.Machine("slurm", "gpu-1", "10.0.0.1"), seen)
    assert [finding.code for finding in findings] == codes
    assert all(finding.status == "degraded" and finding.repairs for finding in findings)


def test_the_reporter_looks_at_slurmrestd_only_on_a_machine_that_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str]) -> str:
        asked.append(argv)
        return ""

    monkeypatch.setattr(reporter_program, "run", run)
    monkeypatch.setattr(reporter_program, "OPTIONS", {rest.UNIT: str(tmp_path / "unit")})
    reporter_program.unit_states(["slurmctld"])
    (tmp_path / "unit").touch()
    reporter_program.unit_states(["slurmctld"])
    assert [argv[4:] for argv in asked] == [["slurmctld"], ["slurmctld", rest.UNIT]]
    assert reporter_program.OPTIONS.keys() == {rest.UNIT}


def test_the_access_bundle_shows_the_address_of_the_rest_api_only_with_the_option() -> None:
    def names(**inputs: Any) -> list[str]:
        form = config.Inputs("lab", "alloc_gpu-1", **inputs)
        place = access.Login("alloc_gpu-1", "gpu-1", "10.0.0.1")
        shown = access.bundle(form, "slurm", place, "10.0.0.1", 1, home.LOCAL).endpoints
        return [f"{each.name} {each.url}" for each in shown if each.name == "rest"]

    assert names() == []
    assert names(rest_api=True) == ["rest http://10.0.0.1:6820"]


def test_the_end_of_a_token_is_the_one_that_the_token_states_and_its_text_is_not_printed() -> None:
    text = f"{encoded({'alg': 'HS256'})}.{encoded({'exp': 1790000000, 'sun': 'ada'})}.{SIGNATURE}"
    token = rest.Token(text, rest.ends_at(text))
    assert int(token.ends_at.timestamp()) == 1790000000
    assert SIGNATURE not in f"{token} {token!r}"
