"""Who may do what, and what was used: people, roles, policy, audit, usage; a real server, the real executable."""

import datetime
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib import dsse
from securesystemslib.signer import CryptoSigner

Cli = Any
YESTERDAY = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)
SINCE = ("--since", str(YESTERDAY), "--until", str(YESTERDAY + datetime.timedelta(days=2)), "--instance", "metered")
PASSWORD = "a long enough password"


@pytest.fixture(scope="module")
def ada(cli: Cli) -> dict[str, Any]:
    """A person with a password and no role."""
    made = cli("user", "create", "ada", "--password", "-o", "json", given=f"{PASSWORD}\n")
    assert PASSWORD not in made.out + made.err
    person: dict[str, Any] = made.json
    return person


@pytest.fixture
def as_ada(ada: dict[str, Any], server: Any, stranger: Cli) -> Cli:
    stranger("login", "--server", server.url, "--name", "ada", given=f"{PASSWORD}\n")
    return stranger


@pytest.fixture(scope="module")
def used(cloud: Cli, until: Callable[..., None]) -> Iterator[Cli]:
    """An instance on gpu-3 whose app reports two records between operations."""
    given = ("--set", "head_allocation=gpu-3", "--set", "behaviour=meter")
    cloud("deploy", "demo", "--name", "metered", "--version", "1.0.0", *given)
    until(lambda: len(cloud("usage", "list", *SINCE, "-o", "json").json["items"]) == 2, "the app reports its usage")
    yield cloud
    cloud("decommission", "metered", "--yes")


def test_a_role_reaches_from_the_next_call_on(cli: Cli, as_ada: Cli) -> None:
    project_id = cli("get", "project", "research", "-o", "json").json["project_id"]
    as_ada("get", "instances", "--project", project_id, expect=4)
    granted = cli("binding", "grant", "ada", "viewer", "-o", "json").json
    as_ada("get", "instances", "--project", project_id)
    assert "viewer" in cli("binding", "list").out
    cli("binding", "revoke", granted["binding_id"])
    as_ada("get", "instances", "--project", project_id, expect=4)


def test_roles_are_given_where_they_belong(cli: Cli, ada: dict[str, Any]) -> None:
    ended = cli("binding", "grant", "ada", "viewer", "--platform", expect=64)
    assert "viewer cannot be given at this level (platform); platform_admin, platform_ops can" in ended.err
    assert "tenant_admin" in cli("binding", "list", "--org", "acme").out
    assert "exclude each other" in cli("binding", "list", "--org", "acme", "--platform", expect=64).err
    for words in (("binding", "list", "--org", "acme"), ("service-account", "list", "--org", "acme")):
        refused = cli(*words, "--project", "research", expect=64).err
        assert "--org and --project exclude each other" in refused
    assert "exclude each other" in cli("binding", "list", "--platform", "--project", "research", expect=64).err
    assert cli("binding", "list", "--org", "acme", GPUAAS_PROJECT="research").out, "a default is not a choice"
    assert "There is no user" in cli("binding", "grant", "nobody", "viewer", expect=1).err


def test_a_disabled_person_is_out_at_once(cli: Cli, as_ada: Cli) -> None:
    cli("user", "disable", "ada")
    assert "disabled" in cli("user", "list").out
    as_ada("whoami", expect=3)
    cli("user", "enable", "ada")


def test_a_new_password_comes_from_stdin_and_counts(cli: Cli, ada: dict[str, Any], server: Any, stranger: Cli) -> None:
    ended = cli("user", "set-password", "ada", given="another good password\n")
    assert "another good" not in ended.out + ended.err
    stranger("login", "--server", server.url, "--name", "ada", given="another good password\n")
    cli("user", "set-password", "ada", given=f"{PASSWORD}\n")
    assert "The password is empty" in cli("user", "set-password", "ada", given="\n", expect=64).err


@pytest.mark.parametrize(
    "words",
    [
        ("org", "create", "Bad Name!!", "--admin", "admin"),
        ("node", "token", "a b"),
        ("custody", "unseal"),
        ("audit", "list", "--since", "99999999d"),
        ("get", "node", "\udcff"),
    ],
)
def test_a_value_that_breaks_a_rule_of_its_field_is_a_usage_error(cli: Cli, words: tuple[str, ...]) -> None:
    ended = cli(*words, expect=64, given="\n")
    assert ended.err.startswith("ERROR: A value is not accepted: ")
    assert "Traceback" not in ended.err
    assert "regex" not in ended.err


def test_a_bad_name_is_refused_with_the_rule_of_its_field(cli: Cli) -> None:
    refused = cli("service-account", "create", "x y", "--app", "demo", "--org", "acme", expect=64).err
    assert "name: A name has 1 to 63 letters, digits, hyphens or underscores" in refused


def test_a_list_of_no_rows_has_no_next_row(cli: Cli) -> None:
    assert "There may be more" not in cli("audit", "list", "--limit", "0").err


def test_a_token_that_was_pasted_over_two_lines_is_used_without_the_break(cli: Cli) -> None:
    ended = cli("whoami", expect=3, GPUAAS_TOKEN="gpuaas_\ntoken")
    assert "gpuaas_" not in ended.err


def test_a_project_that_does_not_exist_is_named_once(cli: Cli) -> None:
    ended = cli("project", "use", "absent", expect=4)
    assert "There is no project absent, or you have no access to it" in ended.err
    assert "next: gpuaas get projects\n" in ended.err


def test_can_i_answers_with_its_exit_code(cli: Cli) -> None:
    assert cli("can-i", "apps.instance.create").out == "yes\n"
    refused = cli("can-i", "apps.operation.execute", expect=1)
    assert refused.out == "no\n"
    assert refused.err
    assert cli("can-i", "identity.user.create", "--platform", "-o", "json").json["allowed"] is True


def test_a_policy_is_read_changed_and_explained(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "overlay.yaml"
    file.write_text("regions: {deny: [test-*]}\nreason: test sites are not for tenants\n")
    assert "revision 1" in cli("policy", "set", str(file)).out
    shown = cli("policy", "show")
    assert "test-*" in shown.out
    assert "revision 1" in shown.err
    assert "refused" in cli("policy", "explain", "--region", "test-7").out
    again = cli("policy", "set", "-", given=shown.out.replace("test-*", "trial-*"))
    assert "revision 2" in again.out


def test_a_policy_that_another_user_changed_is_not_overwritten(cli: Cli) -> None:
    ended = cli("policy", "set", "-", "--revision", "41", given="reason: late\n", expect=5)
    assert "code=precondition_failed" in ended.err


def test_an_overlay_with_a_typo_is_refused_by_field(cli: Cli) -> None:
    ended = cli("policy", "set", "-", given="region: {}\n", expect=1)
    assert "- is not an overlay: Object contains unknown field `region` (code=overlay_invalid)" in ended.err


def test_the_audit_trail_is_searched(cli: Cli, as_ada: Cli) -> None:
    cli("user", "create", "eve")
    rows = cli("audit", "list", "--platform", "--action", "identity.user.create", "--since", "1h", "-o", "json").json
    assert {row["action"] for row in rows["items"]} == {"identity.user.create"}
    assert cli("audit", "list", "--platform", "--limit", "1").err.startswith(
        "There may be more rows: repeat the command with --after "
    )
    newest = ("audit", "list", "--platform", "--action", "identity.user.create", "--order", "newest")
    assert cli(*newest, "-o", "json").json["items"] == rows["items"][::-1]
    assert cli(*newest, "--limit", "1").err.startswith(
        "There may be older rows: repeat the command with a larger --limit"
    )
    actor = cli("whoami", "-o", "json").json["actor_id"]
    assert cli("audit", "list", "--actor", actor, "-o", "json").json["items"]
    assert "--since takes a moment" in cli("audit", "list", "--since", "yesterday", expect=64).err


def test_logout_ends_the_session_at_the_server_too(as_ada: Cli, server: Any) -> None:
    token = json.loads((as_ada.home / "config.json").read_text())["contexts"]["default"]["token"]
    assert as_ada("logout").err.startswith(f"Signed out of {server.url}")
    ended = as_ada("whoami", expect=3, GPUAAS_SERVER=server.url, GPUAAS_TOKEN=token)
    assert "code=token_invalid" in ended.err
    assert as_ada("logout").err == "You were not signed in.\n"


def test_a_token_is_forgotten_even_if_its_server_is_gone(as_ada: Cli, free_port: int) -> None:
    file = as_ada.home / "config.json"
    config = json.loads(file.read_text())
    config["contexts"]["default"]["server"] = f"http://127.0.0.1:{free_port}"
    file.write_text(json.dumps(config))
    assert "the session may live on at the server" in as_ada("logout").err
    assert "token" not in json.loads(file.read_text())["contexts"]["default"]


def test_app_versions_are_retired_with_a_reason(cli: Cli) -> None:
    manifest = (Path(__file__).parent / "demo_manifest.yaml").read_text().replace("slug: demo", "slug: old")
    cli("app", "register", "-", given=manifest)
    cli("app", "publish", "old", "1.0.0")
    assert "deprecated" in cli("app", "deprecate", "old", "1.0.0", "--reason", "1.1.0 is faster").out
    assert "withdrawn" in cli("app", "withdraw", "old", "1.0.0", "--reason", "loses data").out
    assert "code=conflict" in cli("app", "publish", "old", "1.0.0", expect=5).err


def test_who_may_not_deploy_an_app_learns_how_to_request_it(cli: Cli) -> None:
    manifest = Path(__file__).with_name("demo_manifest.yaml").read_text().replace("demo", "wanted")
    cli("app", "register", "-", given=manifest)
    cli("app", "publish", "wanted", "1.0.0")
    cli("project", "create", "newcomers", "--org", "acme")
    empty = cli("get", "apps", "--project", "newcomers")
    assert (empty.out, empty.err.splitlines()[0]) == ("", "Nothing found.")
    assert "next: gpuaas get app-offers" in empty.err
    able = cli("can-i", "apps.instance.create", "--app", "wanted", "--project", "newcomers")
    assert able.out == "yes\n"
    assert (
        "no entitlement for wanted yet, so a deploy is refused.\n  next: gpuaas entitlement request wanted" in able.err
    )
    cli("app", "entitle", "wanted", "--project", "newcomers")
    entitled = cli("can-i", "apps.instance.create", "--app", "wanted", "--project", "newcomers")
    assert "entitlement" not in entitled.err


def test_who_may_not_list_people_learns_to_name_a_person_by_id(cli: Cli, server: Any, stranger: Cli) -> None:
    for name in ("tess", "uma"):
        cli("user", "create", name, "--password", given=f"{PASSWORD}\n")
    cli("binding", "grant", "tess", "tenant_admin", "--org", "acme")
    stranger("login", "--server", server.url, "--name", "tess", given=f"{PASSWORD}\n")
    grant = ("project_member", "--project", "research")
    refused = stranger("binding", "grant", "uma", *grant, expect=1)
    assert "You may not list people, so name the person by id" in refused.err
    assert "next: Ask the person for the id, which `gpuaas whoami` shows." in refused.err
    user_id = cli("get", "user", "uma", "-o", "json").json["user_id"]
    stranger("binding", "grant", user_id, *grant)
    unknown = cli("binding", "grant", "nobody", *grant, expect=1)
    assert "There is no user with this name or id" in unknown.err
    assert "next: gpuaas user list" in unknown.err


def test_an_entitlement_has_bounds(cli: Cli) -> None:
    manifest = (Path(__file__).parent / "demo_manifest.yaml").read_text().replace("slug: demo", "slug: bounded")
    cli("app", "register", "-", given=manifest)
    cli("app", "publish", "bounded", "1.0.0")
    cli("app", "entitle", "bounded", "--versions", "1.*,2.0.0", "--channels", "stable", "--instances-max", "2")
    entitlement = cli("get", "entitlement", "bounded", "-o", "json").json
    assert (entitlement["versions"], entitlement["channels"], entitlement["instances_max"]) == (
        ["1.*", "2.0.0"],
        ["stable"],
        2,
    )
    cli("app", "entitle", "bounded", "--off")
    assert "no" in cli("get", "entitlement", "bounded").out.split()


def test_usage_is_listed_summed_and_exported(used: Cli, tmp_path: Path) -> None:
    assert [record["quantity"] for record in used("usage", "list", *SINCE, "-o", "json").json["items"]] == ["1.5", "2"]
    (total,) = used("usage", "summary", *SINCE, "-o", "json").json["items"]
    assert (total["day"], total["quantity"], total["records"]) == (str(YESTERDAY), "3.5", 2)
    file = tmp_path / "usage.csv"
    assert used("usage", "export", *SINCE, "--csv", str(file)).err == f"Written to {file}.\n"
    assert used("usage", "export", *SINCE).out.splitlines() == file.read_text().splitlines()
    assert len(file.read_text().splitlines()) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["usage.csv"]


def test_an_export_that_cannot_be_written_is_reported(used: Cli, tmp_path: Path) -> None:
    ended = used("usage", "export", "--csv", str(tmp_path / "nowhere" / "usage.csv"), expect=64)
    assert "cannot be written: No such file or directory" in ended.err


def test_an_artifact_goes_from_a_file_into_a_channel_and_out_of_use(cli: Cli, tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    file, signature = tmp_path / "tool.sh", tmp_path / "tool.dsse"
    file.write_text("#!/bin/sh\n")
    signature.write_text(json.dumps(_signed(key, hashlib.sha256(file.read_bytes()).hexdigest())))
    made = cli("artifact", "publish", "tool", "--file", str(file), "--media-type", "text/x-sh", "-o", "json").json
    unsigned = cli("artifact", "verify", "tool", expect=1)
    assert "tool is not verified: " in unsigned.err
    assert "code=artifact_unsigned" in unsigned.err
    cli("artifact", "sign", "tool", str(signature))
    assert "code=artifact_signer_unknown" in cli("artifact", "verify", "tool", expect=1).err
    cli("artifact", "trust", "add", "release", "-", given=_public_pem(key))
    assert "trusted" in cli("artifact", "trust", "list").out
    assert f"next: gpuaas artifact promote {made['artifact_id']}" in cli("artifact", "verify", "tool").err
    promoted = cli("artifact", "promote", made["artifact_id"], "--channel", "stable", "-o", "json").json
    assert (promoted["lifecycle"], promoted["channels"]) == ("promoted", ["stable"])
    assert cli("artifact", "storage", "-o", "json").json["bytes_used"] == file.stat().st_size
    size = str(file.stat().st_size)
    assert cli("artifact", "storage").out.split()[-5:] == [size, "1", "none", size, str(20 * 1024**3)]
    cli("artifact", "deprecate", "tool", "--reason", "replaced")
    cli("artifact", "retire", made["digest"], "--reason", "too old")
    assert "tool" not in cli("artifact", "list").out
    cli("artifact", "revoke", "tool", "--reason", "broken into")
    assert "revoked" in cli("artifact", "list", "--all").out
    cli("artifact", "trust", "revoke", "release")
    assert "revoked" in cli("get", "trust-keys").out


def test_an_upload_that_is_not_what_was_published_is_refused(cli: Cli, tmp_path: Path) -> None:
    file, other = tmp_path / "real", tmp_path / "other"
    file.write_text("the real thing")
    other.write_text("another thing!")
    cli("artifact", "publish", "thing", "--file", str(file), "--media-type", "text/plain")
    assert "code=artifact_digest_mismatch" in cli("artifact", "upload", "thing", str(other), expect=1).err
    rehearsed = cli("artifact", "upload", "thing", str(other), "--dry-run", expect=1)
    assert "code=artifact_digest_mismatch" in rehearsed.err
    assert "Nothing was changed." in cli("artifact", "upload", "thing", str(file), "--dry-run").err
    assert "cannot be read: No such file" in cli("artifact", "upload", "thing", str(tmp_path / "no"), expect=64).err
    ended = cli("artifact", "publish", "thing", "--media-type", "text/plain", expect=64)
    assert "Exactly one of --file, --url and --oci is needed" in ended.err


def _public_pem(key: Ed25519PrivateKey) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def _signed(key: Ed25519PrivateKey, digest: str) -> dict[str, Any]:
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "tool", "digest": {"sha256": digest}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {},
    }
    envelope = dsse.Envelope(json.dumps(statement).encode(), "application/vnd.in-toto+json", {})
    envelope.sign(CryptoSigner(key))
    signed: dict[str, Any] = envelope.to_dict()
    return signed
