"""Values of options as numbers and truths. Names of options are in lower case. An error names the option."""

import math
from collections.abc import Mapping
from typing import Final

from sluicegate.writer_hooks.errors import BadOption

_TRUTH: Final = {"true": True, "false": False}


def whole(options: Mapping[str, str], name: str, default: int, lowest: int) -> int:
    """Return a whole number. Raises BadOption."""
    value = options.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and int(value) >= lowest):
        raise BadOption(f"the option {name} must be a whole number from {lowest}: {value!r}")
    return int(value)


def seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """Return a number of seconds above 0. Raises BadOption."""
    value = options.get(name)
    if value is None:
        return default
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise BadOption(f"the option {name} must be a number of seconds above 0: {value!r}")
    return found


def truth(options: Mapping[str, str], name: str, default: str = "false") -> bool:
    """Return a truth value. Raises BadOption."""
    value = options.get(name, default).strip().lower()
    if value not in _TRUTH:
        raise BadOption(f"the option {name} must be true or false: {value!r}")
    return _TRUTH[value]
