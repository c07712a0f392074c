"""Data files in events: an event names files of its own attempt, in allowed places, and fits into Kafka."""

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from pydantic import TypeAdapter

from sluicegate.events.envelope import Envelope
from sluicegate.events.models import LONGEST_FACTS, FileInfo, FilesWritten
from sluicegate.events.problems import Cause, CauseCode, Code, Problem

# Names. A name is `<word>-<digest>-<incarnation>-<checkpoint>-<rest>`. The position of the digest is fixed,
# so a name contains exactly one digest, and a file belongs to exactly one attempt. Incarnation and checkpoint
# are in clear: a file that no event names, because its driver died, still shows its checkpoint.

DIGEST_LENGTH: Final = 32
"""Number of hexadecimal digits: 128 bits of SHA-256."""


STATED_LENGTH: Final = 16
"""Letters and digits of an incarnation that a name states: enough of a random one to identify it."""
_STATED: Final = re.compile(
    rf"[^-/]+-[0-9a-f]{{{DIGEST_LENGTH}}}-([A-Za-z0-9]{{1,16}})-([0-9]{{1,19}})-[^/]+"
)
_NO_WORD: Final = re.compile("[^A-Za-z0-9]")

AttemptKey = tuple[str, str, str, int, str, str]
"""Stream, region, incarnation, checkpoint, writer, and the attempt's own id."""


def attempt_digest(
    stream: str, region: str, incarnation: str, checkpoint: int, writer: str, attempt: str
) -> str:
    """Return the digest that the file names of an attempt contain.

    Its input is unambiguous: only the attempt, which is last, may contain a slash.
    """
    text = f"{stream}/{region}/{incarnation}/{checkpoint}/{writer}/{attempt}"
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def stated_incarnation(incarnation: str) -> str:
    """Return the part of an incarnation that file names state: its first 16 letters and digits."""
    return _NO_WORD.sub("", incarnation)[:STATED_LENGTH]


def attempt_label(
    stream: str, region: str, incarnation: str, checkpoint: int, writer: str, attempt: str
) -> str:
    """Return what the file names of an attempt contain: its digest, incarnation and checkpoint."""
    digest = attempt_digest(stream, region, incarnation, checkpoint, writer, attempt)
    return f"{digest}-{stated_incarnation(incarnation)}-{checkpoint}"


def stated_attempt(name: str) -> tuple[str, int] | None:
    """Return the incarnation, as `stated_incarnation` has it, and the checkpoint that a file name states.

    None: the name states neither, so the file is of another program.
    """
    found = _STATED.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))


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
    """Return the problem of the first listed file whose name lacks the attempt's label, or None.

    Such a file may belong to another attempt, and be committed a second time with that one. Or it states
    another checkpoint, and is deleted with the files of that one.
    """
    label = attempt_label(*of)
    _, region, incarnation, checkpoint, writer, attempt = of
    wanted = f"{label}-"
    for file in body.files:
        name = file.path[file.path.rfind("/") + 1 :]
        start = name.find("-") + 1
        if start == 0 or not name.startswith(wanted, start):
            return Problem(
                code=Code.FILE_NAME_DIFFERS,
                region=region,
                incarnation=incarnation,
                checkpoint=checkpoint,
                names=(file.path, label, writer, attempt),
            )
    return None


# Validation of file locations against the allowed locations of a stream.

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_=.\-][A-Za-z0-9_=.\-/]*")
"""Characters that every reader interprets alike: no percent-encoding, no scheme, no control characters."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/")
_SAME_STORE: Final = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}
"""Schemes with which Hadoop's file systems name a store, and its canonical scheme."""
_DECODED: Final = 4
"""Maximum number of readings of a text: the text itself, and the results of repeated percent-decoding."""


def location_problem(body: FilesWritten, allowed: Sequence[str]) -> Problem | None:
    """Return the problem if an event's files are outside all allowed locations, else None."""
    folder = place_of(body.location)
    for file in body.files:
        if _escapes(file.path):
            return Problem(code=Code.PATH_ESCAPES, names=(file.path, body.location))
    if (ambiguity := _ambiguity(body.location)) is not None:
        return Problem(code=Code.LOCATION_AMBIGUOUS, names=(body.location,), cause=ambiguity)
    if not _inside(folder, list(map(place_of, allowed))):
        return Problem(code=Code.LOCATION_NOT_ALLOWED, names=(body.location, *allowed))
    return None


def is_allowed_table(table: str | None, allowed: Sequence[str]) -> bool:
    """Return False if the stream refuses the files of a job that writes to this table.

    An unknown table (None) is allowed here: each file is validated later.
    """
    # Not by `place_of`: the log decides this, so all releases must find the same.
    return table is None or (_ambiguity(table) is None and _inside(normal(table), list(map(normal, allowed))))


def is_same_place(one: str, other: str) -> bool:
    """Return True if two locations name one folder, without a doubt."""
    return _ambiguity(one) is None and place_of(one) == place_of(other)


def place_of(location: str) -> str:
    """Return the canonical URI of a location by which files are found: `normal`, and one scheme a store."""
    found = normal(location)
    scheme, colon, rest = found.partition(":")
    return f"{_SAME_STORE.get(scheme, scheme)}{colon}{rest}"


def is_inside(location: str, folder: str) -> bool:
    """Return True if a location is a folder, or lies in it."""
    return _inside(place_of(location), [place_of(folder)])


def _inside(folder: str, prefixes: Sequence[str]) -> bool:
    return any(folder == prefix or folder.startswith(f"{prefix}/") for prefix in prefixes)


def _escapes(path: str) -> bool:
    """Return True if a path leads out of its folder, either literally or after percent-decoding."""
    if _PLAIN.fullmatch(path) and ".." not in path:
        return False
    if urlsplit(path).scheme or _CONTROL.search(path):
        return True
    # An encoded slash in a partition value may be followed by dots. Only a climb above the folder is an
    # escape.
    for text in _readings(path):
        if text.startswith("/") or _SCHEME.match(text):
            return True
        depth = 0
        for segment in text.split("/"):
            depth += {"..": -1, ".": 0, "": 0}.get(segment, 1)
            if depth < 0:
                return True
    # No legitimate writer encodes a whole segment of dots.
    return any(".." in _readings(segment) for segment in path.split("/"))


def _ambiguity(location: str) -> Cause | None:
    """Return the fault of a location that readers could interpret in different ways, else None."""
    if _CONTROL.search(location):
        return Cause(code=CauseCode.CONTROL_CHARACTERS)
    parts = urlsplit(location)
    if parts.scheme and (parts.query or parts.fragment):
        return Cause(code=CauseCode.QUERY_IN_LOCATION)
    if parts.scheme in ("", "file") and parts.netloc not in ("", "localhost"):
        return Cause(code=CauseCode.OTHER_MACHINE, names=(parts.netloc,))
    if any(".." in text.split("/") for text in _readings(parts.path)[1:]):
        return Cause(code=CauseCode.ENCODED_DOTS)
    return None


def _readings(text: str) -> list[str]:
    """Return a text and the results of decoding it once, twice and so on, without repetitions."""
    found = [text]
    while len(found) < _DECODED and (decoded := unquote(found[-1])) != found[-1]:
        found.append(decoded)
    return found


def normal(location: str) -> str:
    """Return the canonical URI of a location (`file` by default), so that each folder has one.

    It has no trailing or double slash and no dot segments. In a `file` URI, the same characters are always
    percent-encoded. Other URIs stay as they are: the keys of object stores are not encoded.
    """
    parts = urlsplit(location)
    path = unquote(parts.path) if parts.scheme == "file" else parts.path
    if path:
        # POSIX keeps two leading slashes.
        path = re.sub("^//+", "/", posixpath.normpath(path))
    if parts.scheme in ("", "file"):
        return f"file://{quote(path, errors='backslashreplace')}"
    return f"{parts.scheme}://{parts.netloc}{path}".rstrip("/")


# Split a `files.written` into parts that fit into Kafka messages.

HEADROOM: Final = 4096
"""Bytes of a message reserved for key, headers and framing. In practice these take under 2,000."""

_FILE: Final = TypeAdapter(FileInfo)


class FileTooLarge(ValueError):
    """The description of a single file exceeds a message, so no split helps."""


def split_files(body: FilesWritten, limit: int, *, with_facts: bool = False) -> list[FilesWritten]:
    """Split a body so that each encoded part is at least `HEADROOM` bytes smaller than `limit`.

    `limit` is the topic's `max.message.bytes`. The parts list the same files in the same order; each needs an
    event id of its own. `with_facts`: each part has room for the facts of its files, which follow later.
    Raises FileTooLarge.
    """
    frame = len(body.model_copy(update={"files": ()}).model_dump_json().encode())
    room = limit - HEADROOM - frame
    return [
        body.model_copy(update={"files": body.files[start:end]})
        for start, end in _ranges(body, room, limit, with_facts=with_facts)
    ]


def _ranges(body: FilesWritten, room: int, limit: int, *, with_facts: bool) -> Iterator[tuple[int, int]]:
    """Yield start and end of each part. Each file is encoded once, to measure its size."""
    start, used = 0, 0
    for index, file in enumerate(body.files):
        size = len(_FILE.dump_json(file))
        if with_facts:
            # The path is their key: in quotes, with a colon and a comma.
            size += len(json.dumps(file.path)) + 2 + LONGEST_FACTS
        if size > room:
            raise FileTooLarge(
                f"the description of {file.path} takes {size} bytes, and a message of at most {limit} bytes "
                f"has room for {max(room, 0)}; raise max.message.bytes of the events topic, or collect "
                "statistics on fewer columns"
            )
        with_comma = size + (index > start)
        if used + with_comma > room:
            yield start, index
            start, used, with_comma = index, 0, size
        used += with_comma
    yield start, len(body.files)
