"""JSON with one text for each value.

A line of the log is read by many parsers, which differ where JSON is ambiguous: keys that are there twice,
numbers out of range, halves of characters. A text that equals the one made from its own value has none of it.
"""

import json
from typing import Any, Final

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def to_text(value: Any) -> str:
    """Return the text of a value. Raises ValueError for numbers that JSON does not have."""
    return _ENCODER.encode(value)


def to_bytes(value: Any) -> bytes:
    """Return the text of a value in UTF-8. Raises ValueError as `to_text` does, and for half characters."""
    return to_text(value).encode()


def from_text(text: str | bytes) -> Any:
    """Return the value of a text that `to_text` makes. Raises ValueError for any other text."""
    try:
        content = text if isinstance(text, str) else text.decode()
        value = json.loads(content)
        if to_text(value) != content:
            raise ValueError("it is ambiguous: its keys, numbers or characters have another, plain form")
        content.encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value
