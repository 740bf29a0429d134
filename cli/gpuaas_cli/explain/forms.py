"""Pure: the requests and responses of the API, each as a form with a name, fields and their meaning. All of it is read
from the installed contract. For `gpuaas explain` and `gpuaas schema`."""

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
    """The only permitted values; empty if every value of the type is permitted."""
    limits: str
    meaning: str
    form: str
    """Name of the form of its value, if the value has fields; else empty."""


@dataclass(frozen=True)
class Form:
    name: str
    struct: type
    meaning: str
    fields: list[Field]
    is_sent: bool
    """Whether callers send it; only then the pages show which fields are required."""


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
    """Return the form and the field of a path such as `node.facts.gpus`; without a field, `node`, `Node` or `nodes`."""
    word, *rest = path.split(".")
    form, field = _named(word), None
    for name in rest:
        if field and not field.form:
            message = f"{form.name}.{field.name} is {field.type}, without fields"
            raise failures.not_found(message, f"gpuaas explain {form.name}")
        form = every()[field.form] if field else form
        fields = {item.name: item for item in form.fields}
        if name not in fields:
            hint = failures.hint(name, fields)
            raise failures.not_found(f"{form.name} has no field {name!r}{hint}", f"gpuaas explain {form.name}")
        field = fields[name]
    return form, field


def endpoints_of(form: Form) -> list[Endpoint[Any, Any]]:
    """Return the endpoints that take, return or list the form, or that have its id as the last path parameter."""
    id_field = form.fields[0].name if form.fields else ""
    is_its_own = f"{form.name.replace('-', '_')}_id".endswith(id_field) and id_field.endswith("_id")
    return [
        item
        for item in registry.ENDPOINTS
        if form.struct in (item.request, item.response, kinds.item_of(item.response))
        or (is_its_own and re.findall(r"{(\w+)}", item.path)[-1:] == [id_field])
    ]


def parents_of(form: Form) -> list[str]:
    """Return the fields whose value has this form, such as `node.facts`."""
    return [
        f"{item.name}.{field.name}" for item in every().values() for field in item.fields if field.form == form.name
    ]


def name_of(struct: Any) -> str:
    """Return the name of a struct: `create-allocation`; for the response of a list: `page of node`."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", struct.__name__).lower()
    inside = getattr(struct, "__args__", ())
    return f"page of {name_of(inside[0])}" if inside else name


def _named(word: str) -> Form:
    forms, plain = every(), word.lower().replace("_", "-")
    kind = kinds.find(plain)
    known = {name.replace("-", ""): form for name, form in forms.items()} | forms
    for name in (name_of(kind.struct) if kind else plain, plain, plain.removesuffix("s")):
        if name in known:
            return known[name]
    raise failures.not_found(f"There is no form {word!r}{failures.hint(plain, forms)}", "gpuaas explain")


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
    texts, meaning = meanings.of(struct.cls), inspect.cleandoc(struct.cls.__dict__.get("__doc__") or "")
    fields = [_field(field, texts.get(field.name, "")) for field in struct.fields]
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
    """Return the limits of a type: the contract's text if there is one, else the numbers."""
    if isinstance(kind, shapes.Metadata) and "description" in (kind.extra_json_schema or {}):
        return str((kind.extra_json_schema or {})["description"])
    if isinstance(kind, shapes.StrType | shapes.BytesType | shapes.ListType | shapes.DictType):
        return _range(kind.min_length, kind.max_length, f" {_UNITS.get(type(kind), 'items')}")
    if isinstance(kind, shapes.IntType | shapes.FloatType):
        return _range(kind.ge, kind.le, "")
    return next(filter(None, map(limits, meanings.parts(kind))), "")


def _range(least: float | None, most: float | None, unit: str) -> str:
    if least is None:
        return f"at most {most}{unit}" if most is not None else ""
    if most is None:
        return f"{least} or more{unit}"
    return f"{least:g} to {most:g}{unit}" if isinstance(least, float) else f"{least} to {most}{unit}"
