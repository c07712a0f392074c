"""Names of the folders of partitions. Readers do not parse them."""

import hashlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote_plus

_LONGEST: Final = 120
"""Characters of each half of a folder's name. File systems allow 255 bytes in all."""


def folder_name(field: str, text: str | None) -> str:
    """Return the name of the folder of a partition value, given as text; None for null."""
    name, escaped = quote_plus(field, safe=""), quote_plus("null" if text is None else text, safe="")
    return f"{_shortened(name)}={_shortened(escaped)}"


def folder_path(values: Mapping[str, str | None]) -> str:
    """Return the folder of a partition, without a slash at its end."""
    return "/".join(folder_name(field, text) for field, text in values.items())


def _shortened(escaped: str) -> str:
    """Return a text, or its digest if it is too long for the half of a name of a folder."""
    if len(escaped) <= _LONGEST:
        return escaped
    return hashlib.sha256(escaped.encode()).hexdigest()[:32]
