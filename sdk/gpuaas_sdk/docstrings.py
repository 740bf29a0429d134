"""Read public names, signatures and docstrings from the source, as they are written there. `reference` makes a page."""

import ast
import functools
import importlib
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Entry:
    """A public name: how it is written in a call, its type if it is a field, its docstring, and the names inside."""

    name: str
    signature: str
    text: str
    type: str = ""
    inner: list["Entry"] = field(default_factory=list)


def entry(module: ModuleType, name: str) -> Entry:
    """Return the entry of a name that the module exports."""
    return entry_of(_tree(_home(module, name)), name)


def entry_of(tree: ast.Module, name: str) -> Entry:
    """Return the entry of a name that the source defines. Pure."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            return _of_class(node) if isinstance(node, ast.ClassDef) else _of_function(node)
    return next(item for item in _assigned(tree.body) if item.name == name)


def pieces(text: str) -> list[tuple[bool, str]]:
    """Return the paragraphs of a docstring, each with whether it is code. Neighbouring paragraphs of code are one."""
    result: list[tuple[bool, str]] = []
    for paragraph in filter(None, text.split("\n\n")):
        is_indented = paragraph.startswith("    ")
        plain = textwrap.dedent(paragraph) if is_indented else paragraph
        is_code = is_indented or _is_code(plain)
        if is_code and result and result[-1][0]:
            result[-1] = (True, f"{result[-1][1]}\n\n{plain}")
        else:
            result.append((is_code, plain))
    return result


def _is_code(paragraph: str) -> bool:
    """Return whether a paragraph is Python and more than a word."""
    try:
        body = ast.parse(paragraph).body
    except SyntaxError:
        return False
    return not all(isinstance(part, ast.Expr) and isinstance(part.value, ast.Name) for part in body)


def _home(module: ModuleType, name: str) -> ModuleType:
    """Return the module that defines the name; packages only export it."""
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            return _home(importlib.import_module(node.module or ""), name)
    return module


@functools.cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _of_class(node: ast.ClassDef) -> Entry:
    functions = [part for part in node.body if isinstance(part, Function)]
    made = next((part for part in functions if part.name == "__init__"), None)
    fields = [item for item in _assigned(node.body) if item.text or not item.type.startswith("ClassVar")]
    # An attribute without a text is for the class itself and its tests.
    attributes = [item for item in _assigned(made.body, "self") if item.text] if made else []
    methods = [_of_function(part) for part in functions if not part.name.startswith("_")]
    text = "\n\n".join(filter(None, [ast.get_docstring(node), ast.get_docstring(made) if made else ""]))
    signature = f"{node.name}({_arguments(made)})" if made else node.name
    return Entry(node.name, signature, text, inner=[*fields, *attributes, *methods])


def _of_function(node: Function) -> Entry:
    text, returns = ast.get_docstring(node) or "", ast.unparse(node.returns) if node.returns else ""
    if any(ast.unparse(mark) == "property" for mark in node.decorator_list):
        return Entry(node.name, node.name, text, type=returns)
    is_awaited = isinstance(node, ast.AsyncFunctionDef) and not returns.startswith("Async")
    call = f"{'await ' if is_awaited else ''}{node.name}({_arguments(node)})"
    return Entry(node.name, f"{call} -> {returns}" if returns not in ("", "None") else call, text)


def _arguments(node: Function) -> str:
    arguments = ast.unparse(node.args)
    return arguments if arguments.split(",")[0] not in ("self", "cls") else arguments.partition(", ")[2]


def _assigned(body: list[ast.stmt], owner: str = "") -> Iterator[Entry]:
    """Yield each public name that these statements assign, or each attribute of `owner`, with the text below it."""
    for statement, after in itertools.zip_longest(body, body[1:]):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
        annotation = ast.unparse(statement.annotation) if isinstance(statement, ast.AnnAssign) else ""
        for target in targets:
            *owners, name = ast.unparse(target).split(".")
            if owners == ([owner] if owner else []) and not name.startswith("_"):
                yield Entry(name, name, _text(after), type=annotation)


def _text(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return inspect.cleandoc(str(statement.value.value))
    return ""
