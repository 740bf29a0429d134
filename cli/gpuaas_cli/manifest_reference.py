"""Make the reference page of the manifest from the contract, with the texts that `gpuaas explain manifest` shows.

`python -m gpuaas_cli.manifest_reference --write docs/reference/manifest.md`"""

import json
import sys

from gpuaas_contract import golden

from gpuaas_cli.explain import forms

_HEAD = """# The manifest, field by field

Made from `contract/gpuaas_contract/catalog.py`; after a change there: `make contract`. A manifest is a YAML or JSON
file. `gpuaas app register FILE --dry-run` checks one and stores nothing; an error names the field. `gpuaas explain
manifest.FIELD` prints the same texts. What the fields are for: [the catalog](../explanation/catalog.md)."""


def page() -> str:
    return "\n\n".join([_HEAD, *(_section(form) for form in _forms())]) + "\n"


def _forms() -> list[forms.Form]:
    """Return the manifest, then the forms of its fields in the order in which they are named."""
    every, names = forms.every(), ["manifest"]
    for name in names:
        names += [item.form for item in every[name].fields if item.form and item.form not in names]
    return [every[name] for name in names]


def _section(form: forms.Form) -> str:
    rows = [f"| `{item.name}` | {_type(item)} | {_given(item)} | {_text(item)} |" for item in form.fields]
    head = ["| field | type | default | meaning |", "|---|---|---|---|"]
    return "\n\n".join([f"## `{form.name}`", form.meaning, "\n".join([*head, *rows])])


def _type(item: forms.Field) -> str:
    return item.type.replace(item.form, f"[{item.form}](#{item.form})") if item.form else item.type


def _given(item: forms.Field) -> str:
    return "**required**" if item.required else f"`{json.dumps(item.default)}`"


def _text(item: forms.Field) -> str:
    values = f"One of {', '.join(f'`{value}`' for value in item.values)}." if item.values else ""
    limits = f"{item.limits[:1].upper()}{item.limits[1:].removesuffix('.')}." if item.limits else ""
    return " ".join(filter(None, (item.meaning, values, limits))).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(golden.main("the manifest in the contract", lambda _: page()))
