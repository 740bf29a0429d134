"""Entity tags: the revision of a resource, so that a caller changes only what they have read."""

from typing import Any

from gpuaas_contract import errors


def of(answer: Any) -> str:
    return f'"{answer.revision}"'


def is_known(if_none_match: str, tag: str) -> bool:
    """Whether the caller's copy is the present one: 304."""
    return bool(if_none_match) and (if_none_match.strip() == "*" or tag in _tags(if_none_match))


def check(if_match: str, if_none_match: str, present: str | None) -> None:
    """Guard a change; `present` is the tag of what is there, None where nothing is."""
    if not if_match and not if_none_match:
        raise errors.PreconditionRequired
    if if_match and (present is None or (if_match.strip() != "*" and present not in _tags(if_match))):
        raise errors.PreconditionFailed(details={"etag": present})
    if if_none_match and present is not None and is_known(if_none_match, present):
        raise errors.PreconditionFailed("There is one already.", details={"etag": present})


def _tags(header: str) -> set[str]:
    return {part.strip().removeprefix("W/") for part in header.split(",")}
