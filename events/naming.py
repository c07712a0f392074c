"""Names of data files: each name contains a digest of the attempt that wrote the file.

A name is `<word>-<digest>-<rest>`: the digest is between the first two hyphens. The position is fixed, so a
name contains exactly one digest, and a file belongs to exactly one attempt. An event of another checkpoint,
region, stream or attempt that lists the file is refused without a read of any table.
"""

import hashlib
import json
from typing import Final

from sluicegate.events.envelope import Envelope
from sluicegate.events.models import FilesWritten
from sluicegate.events.problems import Code, Problem

DIGEST_LENGTH: Final = 32
"""Number of hexadecimal digits: 128 bits of SHA-256."""


AttemptKey = tuple[str, str, str, int, str, str]
"""Stream, region, incarnation, checkpoint, writer, and the attempt's own id."""


def attempt_digest(
    stream: str, region: str, incarnation: str, checkpoint: int, writer: str, attempt: str
) -> str:
    """Return the digest that the file names of an attempt contain.

    The input of the digest is a JSON array of the six values, without spaces, in ASCII. This encoding is
    unambiguous, so different attempts have different inputs.
    """
    text = json.dumps([stream, region, incarnation, checkpoint, writer, attempt], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def attempt_of(envelope: Envelope) -> AttemptKey:
    """Return the key of the attempt that an event belongs to."""
    return (
        envelope.stream,
        envelope.region,
        envelope.incarnation,
        envelope.checkpoint,
        envelope.writer,
        envelope.attempt,
    )


def names_problem(of: AttemptKey, body: FilesWritten) -> Problem | None:
    """Return the problem of the first listed file whose name lacks the attempt's digest, or None.

    Such a file may belong to another attempt, and be committed a second time with that one.
    """
    digest = attempt_digest(*of)
    _, region, incarnation, checkpoint, writer, attempt = of
    wanted = f"{digest}-"
    for file in body.files:
        name = file.path[file.path.rfind("/") + 1 :]
        start = name.find("-") + 1
        if start == 0 or not name.startswith(wanted, start):
            return Problem(
                code=Code.FILE_NAME_DIFFERS,
                region=region,
                incarnation=incarnation,
                checkpoint=checkpoint,
                names=(file.path, digest, writer, attempt),
            )
    return None
