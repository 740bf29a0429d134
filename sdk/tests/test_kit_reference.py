"""The reference of the kit: every public name has a docstring, and the page shows it with its examples."""

import ast

import pytest
from gpuaas_sdk import docstrings, reference


def test_every_public_name_of_the_kit_has_a_docstring() -> None:
    """A field of a struct may have only its type."""
    assert [path for path, entry in reference.every() if not entry.text and not entry.type] == []


def test_every_module_of_the_kit_has_a_docstring() -> None:
    assert [module for module, (text, _) in reference.sections().items() if not text] == []


def test_every_name_that_the_kit_exports_has_an_example() -> None:
    """Methods may have none: the example of their class shows how it is used."""
    exported = [(module, entry) for module, (_, entries) in reference.sections().items() for entry in entries]
    without = [
        f"{module}.{entry.name}"
        for module, entry in exported
        if not any(is_code for is_code, _ in docstrings.pieces(entry.text))
    ]
    assert without == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Return it.", [(False, "Return it.")]),
        ("Return it.\n\nawait op.say('x')", [(False, "Return it."), (True, "await op.say('x')")]),
        ("Return it.\n\n    a = 1\n\n    b = 2", [(False, "Return it."), (True, "a = 1\n\nb = 2")]),
        ("Members", [(False, "Members")]),
    ],
    ids=["sentence", "code-that-parses", "indented-code", "one-word"],
)
def test_code_in_a_docstring_is_found(text: str, expected: list[tuple[bool, str]]) -> None:
    assert docstrings.pieces(text) == expected


def test_names_are_read_from_the_source_with_their_texts_and_signatures() -> None:
    source = '''
class Box:
    """A box."""

    kind: str
    def __init__(self, size: int) -> None:
        """`size` is its length."""
        self.size = size
        """Length in metres."""
        self.hidden = 1

    async def fill(self, what: str, *, fast: bool = False) -> int:
        """Fill it."""
'''
    entry = docstrings.entry_of(ast.parse(source), "Box")
    assert (entry.signature, entry.text) == ("Box(size: int)", "A box.\n\n`size` is its length.")
    assert [(part.name, part.signature, part.text, part.type) for part in entry.inner] == [
        ("kind", "kind", "", "str"),
        ("size", "size", "Length in metres.", ""),
        ("fill", "await fill(what: str, *, fast: bool=False) -> int", "Fill it.", ""),
    ]
