"""Pure: from which position a record can still be read."""


def is_forgotten(after: int, forgotten_to: int) -> bool:
    """Whether events behind `after` were deleted. 0 asks for all that are kept, so it is always valid."""
    return 0 < after < forgotten_to
