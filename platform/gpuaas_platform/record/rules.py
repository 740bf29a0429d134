"""Pure: from which position a record can still be read."""


def is_forgotten(after: int, forgotten_to: int) -> bool:
    """Return whether events after this position were deleted. 0 requests all stored events, so it is always valid."""
    return 0 < after < forgotten_to
