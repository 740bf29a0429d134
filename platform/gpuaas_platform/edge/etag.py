"""Entity tags (ETag): the revision of a resource. With them a caller changes only a revision that they have read."""

from typing import Protocol, cast

from gpuaas_contract import errors


class _Revised(Protocol):
    @property
    def revision(self) -> int | str: ...


def of(answer: object) -> str:
    """Return the tag of a resource. It must have a revision, as every answer of a tagged endpoint does."""
    return f'"{cast("_Revised", answer).revision}"'


def is_known(if_none_match: str, tag: str) -> bool:
    """Return whether the caller already has the current revision. If so, the response is 304."""
    return bool(if_none_match) and (if_none_match.strip() == "*" or tag in _tags(if_none_match))


def check(if_match: str, if_none_match: str, present: str | None) -> None:
    """Refuse a change if the caller has not read the current revision, `present`. It is None if nothing exists."""
    if not if_match and not if_none_match:
        raise errors.PreconditionRequired
    if if_match and (present is None or (if_match.strip() != "*" and present not in _tags(if_match))):
        raise errors.PreconditionFailed(details={"etag": present})
    if if_none_match and present is not None and is_known(if_none_match, present):
        raise errors.PreconditionFailed("It exists already.", details={"etag": present})


def _tags(header: str) -> set[str]:
    return {part.strip().removeprefix("W/") for part in header.split(",")}
