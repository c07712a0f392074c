"""Bounds of long texts and bytes, shortened so that they are never narrower than the values.

Readers skip a file by its bounds. A lower bound may be cut; an upper one must be moved up when it is cut.
"""

from typing import Final

_LAST: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_HIGHEST: Final = b"\xff"


def shortened_above(text: str, length: int) -> str | None:
    """Return a text of so many characters, at most, that is not below another one; None if there is none."""
    if len(text) <= length:
        return text
    start = text[:length].rstrip(chr(_LAST))
    if not start:
        return None
    following = ord(start[-1]) + 1
    # They are no characters, so no text in UTF-8 has one.
    return start[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def shortened_bytes_above(value: bytes, length: int) -> bytes | None:
    """Return so many bytes, at most, that are not below others; None if there are none."""
    if len(value) <= length:
        return value
    start = value[:length].rstrip(_HIGHEST)
    return start[:-1] + bytes([start[-1] + 1]) if start else None
