"""Which characters text may contain."""

import json

import msgspec
import pytest
from gpuaas_contract import characters, registry

ALLOWED = {"\n", "\t"}
REFUSED = [
    *(chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in ALLOWED),
    *(chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))),
]


@pytest.mark.parametrize("char", REFUSED, ids=lambda char: f"U+{ord(char):04X}")
def test_a_control_character_is_found_as_an_escape_and_as_utf_8(char: str) -> None:
    assert characters.refused(f"a{char}b") == f"U+{ord(char):04X}"
    escaped = f"\\u{ord(char):04x}"
    for document in (escaped, escaped.upper().replace("U", "u", 1), json.dumps(char)[1:-1]):
        assert characters.may_be_refused(f'{{"a":"{document}"}}'.encode())
    if ord(char) >= 0x20:  # JSON has the others as escapes only
        assert characters.may_be_refused(msgspec.json.encode({"a": char}))


@pytest.mark.parametrize(
    "text", ["a\n\tb", "Grüße, 你好, مرحبا, 😀", "a\u00a0b", "C:\\users", 'a "quote"', "\u202f\u2065"]
)
def test_text_of_any_language_is_accepted(text: str) -> None:
    assert characters.refused(text) == ""
    assert characters.clean(text) == text
    assert characters.replaced(msgspec.json.encode({"a": text})) == msgspec.json.encode({"a": text})


def test_a_backslash_before_a_letter_is_no_escape() -> None:
    document = msgspec.json.encode({"a": "\\u001b"})
    assert msgspec.json.decode(characters.replaced(document)) == {"a": "\\u001b"}


def test_control_characters_are_replaced_in_values_and_keys_of_any_depth() -> None:
    document = msgspec.json.encode({"a\x1b": ["\x9b", {"b": "\u202e", "c": 1}], "d": "\n"})
    assert msgspec.json.decode(characters.replaced(document)) == {"a�": ["�", {"b": "�", "c": 1}], "d": "\n"}


def test_secret_values_are_fields_of_the_request_itself() -> None:
    """The edge looks for secret values in the fields of a request, not deeper."""
    for endpoint in registry.ENDPOINTS:
        if not endpoint.takes_bytes:
            request = msgspec.inspect.type_info(endpoint.request)
            inner = [field.type for field in getattr(request, "fields", ())]
            assert not any(_has_secret(kind) for kind in inner if not _is_secret(kind)), endpoint.name


def test_passwords_keys_and_values_of_secrets_may_contain_every_character() -> None:
    secret = {
        f"{endpoint.name} {field.name}"
        for endpoint in registry.ENDPOINTS
        if not endpoint.takes_bytes
        for field in getattr(msgspec.inspect.type_info(endpoint.request), "fields", ())
        if _is_secret(field.type)
    }
    assert secret == {
        "auth.login password",
        "auth.service_account_token client_secret",
        "auth.password.change present_password",
        "auth.password.change new_password",
        "identity.user.create password",
        "identity.user.set_password password",
        "access.secret.issue value",
        "access.credential.create private_key",
        "access.credential.rotate private_key",
        "custody.seal.open passphrase",
    }


def _is_secret(kind: msgspec.inspect.Type) -> bool:
    return isinstance(kind, msgspec.inspect.Metadata) and bool((kind.extra or {}).get("secret"))


def _has_secret(kind: msgspec.inspect.Type) -> bool:
    if _is_secret(kind):
        return True
    inner = [getattr(kind, name) for name in ("type", "item_type", "value_type") if hasattr(kind, name)]
    return any(_has_secret(part) for part in (*inner, *getattr(kind, "types", ())))
