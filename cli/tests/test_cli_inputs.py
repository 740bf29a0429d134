"""The inputs of an action as people read them, from the schema of any app."""

from gpuaas_cli.show import inputs

LIMITS = {
    "type": "object",
    "required": ["names"],
    "properties": {
        "names": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "minItems": 1},
        "state": {"type": "string", "enum": ["all", "running"], "default": "all", "description": "Only jobs in it."},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3, "title": "Count"},
        "other": {},
    },
}


def test_inputs_of_an_action_show_what_is_required_and_what_has_a_default() -> None:
    assert inputs.brief(LIMITS) == "names*,state=all,count=3,other"
    assert inputs.brief({"type": "object"}) == ""
    assert inputs.of(LIMITS) == [
        inputs.Input("names", True, "", "array[string]", "at least 1 items, matches ^[a-z]+$", ""),
        inputs.Input("state", False, "all", "string", "all|running", "Only jobs in it."),
        inputs.Input("count", False, "3", "integer", "at least 1, at most 9", "Count"),
        inputs.Input("other", False, "", "any", "", ""),
    ]
