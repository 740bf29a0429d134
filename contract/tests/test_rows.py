"""What a row of the endpoint table leaves out follows from its method, its audience and its answer."""

import pytest
from gpuaas_contract.endpoint import Route
from gpuaas_contract.identity import Login, Org, Token
from gpuaas_contract.wire import NoBody

ROW = Route("/api/v1").row("/things", "thing.create", "Create a thing")


def test_a_row_without_a_permission_needs_the_one_of_its_own_name() -> None:
    assert ROW.post(NoBody, Org).permission == "thing.create"
    assert ROW.get(Org).permission == "thing.create"
    assert ROW.get(Org, permission="").permission == ""


def test_only_callers_have_permissions_and_idempotency_keys() -> None:
    assert (ROW.post(NoBody, Org).repeat, ROW.put(NoBody, Org).repeat) == ("key", "natural")
    for audience in ("node", "public"):
        row = ROW.post(NoBody, Org, audience=audience)
        assert (row.permission, row.repeat) == ("", "natural")


def test_the_subject_of_a_change_is_the_id_of_its_answer_and_never_a_secret() -> None:
    assert ROW.post(NoBody, Org).subject == "org_id"
    with pytest.raises(ValueError, match=r"thing\.create must name its subject"):
        ROW.post(Login, Token)
    assert ROW.post(Login, Token, subject="").subject == ""
