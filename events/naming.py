"""Names of data files: each carries a digest of the attempt that wrote the file.

A name is `<word>-<digest>-<rest>`: the digest stands between the first two hyphens. Since the place is fixed,
a name carries one digest only, and a file belongs to one attempt for ever. An event of another checkpoint,
region, stream or attempt that lists the file is refused without a look into any table.
"""

import hashlib
import json
from typing import Final

from sluicegate.events.envelope import Envelope
from sluicegate.events.models import FilesWritten

DIGEST_LENGTH: Final = 32
"""Hexadecimal digits: 128 bits of SHA-256."""


AttemptKey = tuple[str, str, str, int, str, str]
"""Stream, region, lineage, checkpoint, writer, and the attempt's own id."""


def attempt_digest(stream: str, region: str, lineage: str, checkpoint: int, writer: str, attempt: str) -> str:
    """Return what the names of an attempt's files carry.

    It is the digest of the six values as a JSON array without spaces, in ASCII: the encoding is unambiguous.
    """
    text = json.dumps([stream, region, lineage, checkpoint, writer, attempt], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def attempt_of(envelope: Envelope) -> AttemptKey:
    """The attempt that an event is of."""
    return (
        envelope.stream,
        envelope.region,
        envelope.lineage,
        envelope.checkpoint,
        envelope.writer,
        envelope.attempt,
    )


def names_problem(of: AttemptKey, body: FilesWritten) -> str | None:
    """Why a file that an event lists is not of the event's attempt, by its name; None if all are."""
    digest = attempt_digest(*of)
    *_, checkpoint, writer, attempt = of
    wanted = f"{digest}-"
    for file in body.files:
        name = file.path[file.path.rfind("/") + 1 :]
        start = name.find("-") + 1
        if start == 0 or not name.startswith(wanted, start):
            return (
                f"the name of the file {file.path} does not carry {digest}, the digest of checkpoint "
                f"{checkpoint}, writer {writer} and attempt {attempt}: it may be "
                "another attempt's, and be committed with that one, too. Only if the writers cannot choose "
                'names, set file_names = "unchecked" for the stream in the settings of all coordinators'
            )
    return None
