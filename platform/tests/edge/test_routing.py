"""From a path to its route, through a tree."""

import pytest
from gpuaas_contract import errors
from gpuaas_contract.paths import Path
from gpuaas_platform.edge import router


class ThingPath(Path):
    thing_id: str


class PartPath(ThingPath):
    part_id: str


@pytest.fixture
def tree() -> router.Tree[str]:
    made: router.Tree[str] = router.Tree()
    made.add("GET", "/things", "list")
    made.add("POST", "/things", "create")
    made.add("GET", "/things/{thing_id}", "get", ThingPath)
    made.add("GET", "/things/newest", "newest")
    made.add("GET", "/things/{thing_id}/parts/{part_id}", "part", PartPath)
    made.add("GET", "/things/newest/reasons", "reasons")
    return made


def test_parameters_get_the_parts_of_the_path_they_stand_for(tree: router.Tree[str]) -> None:
    for _ in range(2):
        assert tree.match("GET", b"/things/t1/parts/p%201") == ("part", PartPath(thing_id="t1", part_id="p 1"))
    assert tree.match("GET", b"/things/t2/parts/p1").path == PartPath(thing_id="t2", part_id="p1")


def test_a_path_that_is_written_out_goes_first(tree: router.Tree[str]) -> None:
    assert tree.match("GET", b"/things/newest") == ("newest", Path())
    assert tree.match("GET", b"/things/newest/reasons") == ("reasons", Path())


def test_a_written_out_part_that_leads_nowhere_is_taken_as_a_parameter(tree: router.Tree[str]) -> None:
    assert tree.match("GET", b"/things/newest/parts/p1") == ("part", PartPath(thing_id="newest", part_id="p1"))


def test_methods_are_distinguished_and_head_is_answered_as_get(tree: router.Tree[str]) -> None:
    matches = [tree.match(method, b"/things").target for method in ("GET", "HEAD", "POST")]
    assert matches == ["list", "list", "create"]
    with pytest.raises(errors.MethodNotAllowed) as refused:
        tree.match("PUT", b"/things")
    assert refused.value.details == {"allow": ["GET", "HEAD", "POST"]}


@pytest.mark.parametrize("path", [b"/", b"/thing", b"/things/", b"/things/t1/parts", b"/things//parts/p1", b""])
def test_other_paths_lead_nowhere(tree: router.Tree[str], path: bytes) -> None:
    for _ in range(2):
        with pytest.raises(errors.NotFound):
            tree.match("GET", path)
