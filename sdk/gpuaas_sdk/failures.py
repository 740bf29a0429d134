"""What a piece of an app controller's work may raise.  The type alone tells the kit whether to try again."""


class Temporary(Exception):
    """Worth trying again by itself: the kit repeats the step after `after_s` until the operation's deadline."""

    def __init__(self, text: str, after_s: float = 5.0) -> None:
        super().__init__(text)
        self.after_s = after_s


class Permanent(Exception):
    """Trying again changes nothing: the operation fails. `fix` is the next command a person would run."""

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.fix = fix


class NeedsOperator(Permanent):
    """Permanent, and only a person can decide what happens next."""
