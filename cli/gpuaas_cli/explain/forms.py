"""Pure: what crosses the wire, as people ask for it: a form by its name, its fields, what each means. Needs no server;
everything is read from the contract that is installed. For `gpuaas explain` and `gpuaas schema`."""

import functools
import inspect
import re
from dataclasses import dataclass
from typing import Any

import msgspec
from gpuaas_contract import meanings, registry
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, NoQuery, Page
from msgspec import inspect as shapes

from gpuaas_cli import failures, kinds

_WORDS: dict[type[shapes.Type], str] = {
    shapes.StrType: "text",
    shapes.IntType: "integer",
    shapes.FloatType: "number",
    shapes.BoolType: "true or false",
    shapes.DateTimeType: "moment",
    shapes.BytesType: "bytes in base64",
    shapes.NoneType: "null",
    shapes.AnyType: "any value",
    shapes.LiteralType: "text",
}
_UNITS: dict[type[shapes.Type], str] = {shapes.StrType: "characters", shapes.BytesType: "bytes"}


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    required: bool
    default: Any
    values: list[str]
    """Nothing else is permitted; empty where anything of the type is."""
    limits: str
    meaning: str
    form: str
    """The form its value has, when it has fields of its own."""


@dataclass(frozen=True)
class Form:
    name: str
    struct: type
    meaning: str
    fields: list[Field]
    is_sent: bool
    """Callers fill it in; of any other it makes no difference which fields are required."""


@functools.cache
def every() -> dict[str, Form]:
    sent: dict[str, shapes.StructType] = {}
    answered: dict[str, shapes.StructType] = {}
    for endpoint in registry.ENDPOINTS:
        for kind, result in ((endpoint.request, sent), (endpoint.query, sent), (endpoint.response, answered)):
            if kind not in (NoBody, NoQuery, bytes):
                _gather(shapes.type_info(kind), result)
    both = answered | sent
    return {name: _form(name, both[name], is_sent=name in sent) for name in sorted(both)}


def find(path: str) -> tuple[Form, Field | None]:
    """`node`, `Node`, `nodes`, or on into it: `node.facts.gpus`."""
    word, *rest = path.split(".")
    form, field = _named(word), None
    for place, name in enumerate(rest):
        field = next((item for item in form.fields if item.name == name), None)
        if field is None:
            raise _unknown(f"{form.name} has no field {name!r}", name, [item.name for item in form.fields], form.name)
        if place + 1 < len(rest):
            if not field.form:
                message = f"{form.name}.{name} is {field.type}, without fields"
                raise failures.not_found(message, f"gpuaas explain {form.name}")
            form = every()[field.form]
    return form, field


def endpoints_of(form: Form) -> list[Endpoint[Any, Any]]:
    """Those that take one, answer with one, list them, or have one as the last thing their path names."""
    id_field = form.fields[0].name if form.fields else ""
    is_its_own = f"{form.name.replace('-', '_')}_id".endswith(id_field) and id_field.endswith("_id")
    return [
        item
        for item in registry.ENDPOINTS
        if form.struct in (item.request, item.response, kinds.item_of(item.response))
        or (is_its_own and re.findall(r"{(\w+)}", item.path)[-1:] == [id_field])
    ]


def parents_of(form: Form) -> list[str]:
    """Where the form is a part: `node.facts`."""
    return [
        f"{item.name}.{field.name}" for item in every().values() for field in item.fields if field.form == form.name
    ]


def name_of(struct: type) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", struct.__name__).lower()


def _named(word: str) -> Form:
    forms, plain = every(), word.lower().replace("_", "-")
    kind = kinds.find(plain)
    for name in (name_of(kind.struct) if kind else plain, plain, plain.removesuffix("s")):
        if name in forms:
            return forms[name]
    squeezed = {name.replace("-", ""): form for name, form in forms.items()}
    if plain in squeezed:
        return squeezed[plain]
    raise _unknown(f"There is no form {word!r}", plain, list(forms), "")


def _unknown(message: str, word: str, known: list[str], of_form: str) -> failures.Failure:
    return failures.not_found(f"{message}{failures.hint(word, known)}", f"gpuaas explain {of_form}".rstrip())


def _gather(kind: shapes.Type, result: dict[str, shapes.StructType]) -> None:
    for struct in meanings.structs(kind):
        is_page = getattr(struct.cls, "__origin__", None) is Page
        name = "" if is_page else name_of(struct.cls)
        if name not in result:
            if name:
                result[name] = struct
            for field in struct.fields:
                _gather(field.type, result)


def _form(name: str, struct: shapes.StructType, *, is_sent: bool) -> Form:
    texts = meanings.of(struct.cls)
    fields = [_field(field, texts.get(field.name, "")) for field in struct.fields]
    meaning = inspect.cleandoc(struct.cls.__dict__.get("__doc__") or "")
    return Form(name, struct.cls, meaning, fields, is_sent)


def _field(field: shapes.Field, meaning: str) -> Field:
    inner = next(meanings.structs(field.type), None)
    default = None if field.default is msgspec.NODEFAULT else field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return Field(
        name=field.encode_name,
        type=type_text(field.type),
        required=field.required,
        default=msgspec.to_builtins(default),
        values=permitted(field.type),
        limits=limits(field.type),
        meaning=meaning,
        form=name_of(inner.cls) if inner else "",
    )


def type_text(kind: shapes.Type) -> str:
    if isinstance(kind, shapes.Metadata):
        return type_text(kind.type)
    if isinstance(kind, shapes.StructType):
        return name_of(kind.cls)
    if isinstance(kind, shapes.ListType):
        return f"list of {type_text(kind.item_type)}"
    if isinstance(kind, shapes.DictType):
        return f"map of {type_text(kind.value_type)}"
    if isinstance(kind, shapes.UnionType):
        return " or ".join(type_text(item) for item in kind.types)
    return _WORDS.get(type(kind), type(kind).__name__.removesuffix("Type").lower())


def permitted(kind: shapes.Type) -> list[str]:
    if isinstance(kind, shapes.LiteralType):
        return [str(value) for value in kind.values]
    return [value for part in meanings.parts(kind) for value in permitted(part)]


def limits(kind: shapes.Type) -> str:
    """As the contract words it, else by its numbers."""
    if isinstance(kind, shapes.Metadata):
        text_of = (kind.extra_json_schema or {}).get("description", "")
        return str(text_of) or limits(kind.type)
    if isinstance(kind, shapes.StrType | shapes.BytesType | shapes.ListType | shapes.DictType):
        return _range(kind.min_length, kind.max_length, _UNITS.get(type(kind), "items"))
    if isinstance(kind, shapes.IntType | shapes.FloatType):
        return _range(kind.ge, kind.le, "")
    if isinstance(kind, shapes.UnionType):
        return next(filter(None, map(limits, kind.types)), "")
    return ""


def _range(least: Any, most: Any, unit: str) -> str:
    after = f" {unit}" if unit else ""
    if least is not None and most is not None:
        return f"{least:g} to {most:g}{after}" if isinstance(least, float) else f"{least} to {most}{after}"
    if least is not None:
        return f"{least} or more{after}"
    return f"at most {most}{after}" if most is not None else ""
