"""The only module that writes to stdout and stderr. Text from machines, apps and servers may contain commands to the
terminal; every text passes `clean` here. A test checks that no other module writes."""

import codecs
import sys

_MARKS = {"✓": "32", "✗": "31"}
"""Marks that are coloured on a terminal, with the number of their colour."""
_decoder = codecs.getincrementaldecoder("utf-8")("replace")


def out(text: str, *, end: str = "\n") -> None:
    """Print data on stdout."""
    print(clean(text), end=end, flush=True)


def talk(text: str, *, end: str = "\n", mark: str = "", colour: bool = False) -> None:
    """Print a message for users on stderr; stdout is for data. A mark at its begin may have a colour."""
    code = _MARKS[mark] if colour else ""
    begin = f"\x1b[{code}m{mark}\x1b[0m " if code else f"{mark} " if mark else ""
    print(f"{begin}{clean(text)}", end=end, file=sys.stderr, flush=True)


def copy(content: bytes) -> None:
    """Write bytes of a file to stdout: unchanged to a pipe or a file, as clean text to a terminal."""
    if sys.stdout.isatty():
        out(_decoder.decode(content).replace("\r\n", "\n"), end="")
    else:
        sys.stdout.buffer.write(content)


def clean(text: str) -> str:
    """Replace characters that do not print: a terminal can take them for commands, or show text in another order."""
    if is_clean(text):
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


def is_clean(text: str) -> bool:
    return text.replace("\n", "").replace("\t", "").isprintable()


def escaped(document: str) -> str:
    """Return a JSON document in which characters that do not print are escapes, so that its values stay the same."""
    return document if is_clean(document) else "".join(_escape(char) for char in document)


def _escape(char: str) -> str:
    if char == "\n" or char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
