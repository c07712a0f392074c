"""Failures of requests to an object store: their kind, and sentences without anything secret.

The text of an error is only read for known marks. It is never shown: it may contain signed addresses.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from obstore import exceptions

from sluicegate.lakes.port import BadFiles

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,50})</Code>")
_REFUSED_CONNECTION: Final = re.compile(r"HttpError \{\s*kind: Connect\b")
_TIMED_OUT: Final = re.compile(r"HttpError \{\s*kind: Timeout\b")
_CREDENTIALS: Final = re.compile(
    r"Error performing [A-Z]+ https?://(?:169\.254\.|metadata\.google\.internal|[^/\s]+/latest/(?:api/token|meta-data/))"
)
"""Requests to the services of a cloud that give credentials to its own machines."""
_PLAIN_HTTP: Final = "source: BadScheme"
_REDIRECTED: Final = "incorrectly configured region"

_TAKEN: Final = frozenset({"BlobAlreadyExists", ""})
"""Codes of an answer 409 that a file exists; the others are of requests that run side by side."""
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})


class Kind(Enum):
    """Kind of a failure. Only after UNCLEAR may the request have had an effect."""

    TAKEN = "a file with this name exists"
    BUSY = "another request for the same name is under way"
    ABSENT = "there is no such file"
    NO_BUCKET = "there is no such bucket"
    DENIED = "access is denied"
    NO_CREDENTIALS = "no credentials were found"
    OTHER_REGION = "the bucket is in another region"
    NO_HTTP = "its address has no TLS"
    UNREACHABLE = "it cannot be reached"
    THROTTLED = "it takes no more requests now"
    UNSUPPORTED = "it does not support the operation"
    NO_NAME = "no file can have this name"
    REJECTED = "it rejected the request"
    UNCLEAR = "it gave no clear answer"


_PASSING: Final = frozenset({Kind.BUSY, Kind.UNREACHABLE, Kind.THROTTLED, Kind.UNCLEAR})

_HELP: Final[dict[Kind, str]] = {
    Kind.NO_BUCKET: "Create the bucket, or correct the location of the table",
    Kind.DENIED: (
        "Give the credentials in the environment of this process the rights to read, write, list and delete "
        "there"
    ),
    Kind.NO_CREDENTIALS: "Set credentials in the environment of this process, or give its machine a role",
    Kind.OTHER_REGION: "Set AWS_REGION to the region of the bucket",
    Kind.NO_HTTP: "Use an address with https, or set AWS_ALLOW_HTTP=true",
    Kind.UNREACHABLE: "See whether this host reaches the endpoint that its environment names",
    Kind.UNSUPPORTED: "Use a store with conditional writes",
    Kind.REJECTED: "See the settings of the object store in the environment of this process",
}
_SEE_HEALTH: Final = "See the health of the object store"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request."""

    kind: Kind
    answer: str = ""
    """Status and code of the answer, such as `503 SlowDown`; else a cause such as `no answer in time`."""

    @property
    def certain(self) -> bool:
        """True if the request certainly had no effect."""
        return self.kind is not Kind.UNCLEAR

    @property
    def passing(self) -> bool:
        """True if the same request may succeed when it is repeated."""
        return self.kind in _PASSING


def understand(error: Exception) -> Failure:
    """Return the kind of an error that a request raised. In doubt it is UNCLEAR."""
    text = str(error)
    status = _first(_STATUS, text)
    code = _first(_CODE, text)
    answer = " ".join(part for part in (status, code) if part)
    if isinstance(error, exceptions.InvalidPathError):
        return Failure(Kind.NO_NAME)
    if isinstance(error, exceptions.AlreadyExistsError):
        # The library reports every answer 409 so, also that of a request beside another one.
        busy = status == "409" and code not in _TAKEN
        return Failure(Kind.BUSY if busy else Kind.TAKEN, answer)
    if isinstance(error, exceptions.PreconditionError):
        return Failure(Kind.TAKEN, answer)
    if code in _NO_BUCKET:
        return Failure(Kind.NO_BUCKET, answer)
    if isinstance(error, FileNotFoundError):
        return Failure(Kind.ABSENT, answer)
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return Failure(Kind.DENIED, answer)
    if isinstance(error, exceptions.NotSupportedError | NotImplementedError) or status == "501":
        return Failure(Kind.UNSUPPORTED, answer)
    if status:
        return Failure(_kind_of_status(int(status)), answer)
    return _without_answer(text)


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


def _kind_of_status(status: int) -> Kind:
    if status in (401, 403):
        return Kind.DENIED
    if status == 429:
        return Kind.THROTTLED
    # 408: the server did not see the end of the request. All others of 4xx refuse the request.
    return Kind.REJECTED if 400 <= status < 500 and status != 408 else Kind.UNCLEAR


def _without_answer(text: str) -> Failure:
    if _CREDENTIALS.search(text):
        return Failure(Kind.NO_CREDENTIALS)
    if _PLAIN_HTTP in text:
        return Failure(Kind.NO_HTTP)
    if _REDIRECTED in text:
        return Failure(Kind.OTHER_REGION)
    if _REFUSED_CONNECTION.search(text):
        return Failure(Kind.UNREACHABLE)
    return Failure(Kind.UNCLEAR, "no answer in time" if _TIMED_OUT.search(text) else "no complete answer")


def explain_failure(attempt: str, failure: Failure) -> str:
    """Return the sentence for a failure. `attempt` describes the failed step and its place."""
    answer = f" ({failure.answer})" if failure.answer else ""
    return f"{attempt}: {failure.kind.value}{answer}. {_HELP.get(failure.kind, _SEE_HEALTH)}"


def is_absent(failure: Failure, name: str) -> bool:
    """Return True if the object is not there, as the answer to a read of it states.

    Raises BadFiles if the store refuses the read of this one object, whose size it has told before.
    """
    if failure.kind in (Kind.DENIED, Kind.REJECTED):
        raise BadFiles(
            f"the file {name} cannot be read: {failure.kind.value}. Write a file there that coordinators "
            "may read"
        )
    return failure.kind in (Kind.ABSENT, Kind.NO_NAME)
