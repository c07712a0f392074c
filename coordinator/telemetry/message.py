"""The three parts of a message, and the commands and remedies that several messages share.

A placeholder such as `{region}` stands for an argument of the problem. Text in brackets is left out if an
argument in it is absent.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple


class Message(NamedTuple):
    """Template of a message: what happened, why, and what to do."""

    what: str
    why: str
    remedy: str


STATUS: Final = "`sluicegate status --stream {stream}`"
RESET: Final = (
    "`sluicegate region reset --stream {stream} --region {region} --checkpoint-location LOCATION`, then "
    "start its query again. A writer without Spark registers a new incarnation at the committed position "
    "instead"
)
RESUME: Final = "`sluicegate stream resume --stream {stream}`"
VERIFY: Final = "`sluicegate replay verify --stream {stream}`"
NEW_STREAM: Final = (
    "begin with a new stream: a new name and commit_user, and empty checkpoint locations. "
    "Let its sources begin right after the committed rows"
)
ADOPT: Final = (
    "stop the coordinators and the drivers, and continue from the table: `sluicegate stream adopt --stream "
    "{stream} --from-table`. It compares both, and prints the next steps"
)
UPGRADE: Final = "Upgrade all coordinators, drivers and commands to the newest release that is in use"

_PART: Final = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_FIELD: Final = re.compile(r"\{(\w+)\}")


def fill(template: str, arguments: Mapping[str, str]) -> str:
    """Replace the placeholders. A part in brackets is left out if one of its values is absent."""
    found: list[str] = []
    for optional, fixed in _PART.findall(template):
        part = optional or fixed
        if optional and any(name not in arguments for name in _FIELD.findall(part)):
            continue
        found.append(_FIELD.sub(lambda field: arguments.get(field[1], field[1].upper()), part))
    return "".join(found)
