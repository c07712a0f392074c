"""The storage of a table in an object store: S3, Google Cloud Storage or Azure, through obstore.

Credentials and addresses come from the environment of the process, or from the catalog of the table, which
hands out keys that end soon. An object appears whole when its request succeeds, and is durable then. So there
is nothing to link and nothing to sync.
"""

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import obstore
from obstore import exceptions
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from sluicegate.events.problems import CauseCode
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes.port import BadFiles, LakeError, LakeUnavailable, TableRefused
from sluicegate.lakes.storage import (
    CannotPut,
    Content,
    Keys,
    KeySource,
    Range,
    Stamped,
    Storage,
    Uncertain,
    Variables,
    whole,
)

if TYPE_CHECKING:
    from obstore.store import RetryConfig, S3Config, S3Credential


# Failures of requests to an object store: their kind, and sentences without anything secret.
#
# The text of an error is only read for known marks. It is never shown: it may contain signed addresses.

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
_REFUSED_KEYS: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired"}
)
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})


class Kind(Enum):
    """Kind of a failure. Only after UNCLEAR may the request have had an effect."""

    TAKEN = "a file with this name exists"
    BUSY = "another request for the same name is under way"
    ABSENT = "there is no such file"
    NO_BUCKET = "there is no such bucket"
    DENIED = "access is denied"
    NO_CREDENTIALS = "no credentials were found"
    NO_KEYS = "the catalog gives no keys"
    REFUSED_KEYS = "the keys are not valid, or not any more"
    OTHER_REGION = "the bucket is in another region"
    NO_HTTP = "its address has no TLS"
    UNREACHABLE = "it cannot be reached"
    THROTTLED = "it takes no more requests now"
    UNSUPPORTED = "it does not support the operation"
    NO_NAME = "no file can have this name"
    REJECTED = "it rejected the request"
    UNCLEAR = "it gave no clear answer"


_PASSING: Final = frozenset({Kind.BUSY, Kind.NO_KEYS, Kind.UNREACHABLE, Kind.THROTTLED, Kind.UNCLEAR})

_OF_KEYS: Final = frozenset({Kind.DENIED, Kind.REFUSED_KEYS, Kind.REJECTED})
"""Failures of which keys may be the cause. The answer to a HEAD has a status alone, such as 400."""

_HELP: Final[dict[Kind, str]] = {
    Kind.NO_BUCKET: "Create the bucket, or correct the location of the table",
    Kind.DENIED: (
        "Give the credentials in the environment of this process the rights to read, write, list and delete "
        "there"
    ),
    Kind.NO_CREDENTIALS: "Set credentials in the environment of this process, or give its machine a role",
    Kind.NO_KEYS: "Until it does, nothing is read or written",
    Kind.REFUSED_KEYS: "Renew those in the environment of this process, or those that the catalog hands out",
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
    """Status and code of the answer, such as `503 SlowDown`; else the cause, such as `no answer in time`."""

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
    if code in _REFUSED_KEYS:
        return Failure(Kind.REFUSED_KEYS, answer)
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


_T = TypeVar("_T")
_U = TypeVar("_U")

_LONGEST_NAME: Final = 1024
"""Bytes of the longest name of an object, in all three stores."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_PART: Final = 16 << 20
"""Bytes of a part of an upload. A file that is not longer is one request."""
_AT_ONCE: Final = 32
"""Requests that run side by side."""
PAUSES: Final = (0.0, 0.2, 0.8, 2.0)
"""Seconds before each attempt of a conditional put."""
_ONCE: Final["RetryConfig"] = {"max_retries": 0}
RETRIES: Final["RetryConfig"] = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}


class Stores(NamedTuple):
    """Clients of one bucket."""

    patient: ObjectStore
    """Repeats failed requests by itself: for all requests that may be repeated blindly."""
    single: ObjectStore
    """Sends each request once: an answer is of this request, and of no earlier one."""


class Clients:
    """Clients of the bucket of a folder, with the keys of the environment."""

    source: KeySource | None = None

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def call(self, request: Callable[[Stores], _T]) -> _T | Failure:
        """Return the result of a request."""
        return _attempt(request, self._stores)


class KeyedClients(Clients):
    """Clients with the keys of a source."""

    def __init__(self, uri: str, source: KeySource, variables: Variables) -> None:
        """Prepare clients, without access to the source. Raises TableRefused."""
        if not uri.startswith("s3://"):
            raise TableRefused(
                f"the catalog is asked for keys of the storage of {uri}, which works for S3 alone. Leave out "
                "the option that asks for them, and set credentials in the environment of each process"
            )
        self._uri = uri
        self.source = self._source = source
        self._variables = variables
        self._made: tuple[Keys, Stores] | None = None

    def call(self, request: Callable[[Stores], _T]) -> _T | Failure:
        """Return the result of a request. If the store refuses the keys, others are asked for, once."""
        found: _T | Failure
        for _ in range(2):
            try:
                keys, stores = self._connected()
            except LakeError as error:
                # An earlier request may have had an effect, so it is no more than the failure of this one.
                return Failure(Kind.NO_KEYS, str(error))
            found = _attempt(request, stores)
            if not (isinstance(found, Failure) and found.kind in _OF_KEYS and self._source.drop(keys)):
                break
            # The request was refused, so it had no effect.
        return found

    def _connected(self) -> tuple[Keys, Stores]:
        """Return valid keys, and clients with them. Raises LakeUnavailable or TableRefused."""
        keys, made = self._source.keys(self._uri), self._made
        if made is None or made[0] != keys:
            with self._variables():
                made = self._made = keys, connect(self._uri, keys)
        return made


def _attempt(request: Callable[[Stores], _T], stores: Stores) -> _T | Failure:
    # The error is not chained: its text may contain signed addresses, and tracebacks are logged.
    try:
        return request(stores)
    except (BaseError, OSError, ValueError, NotImplementedError) as error:
        return understand(error)


def connect(uri: str, keys: Keys | None = None) -> Stores:
    """Return the clients for the bucket of a canonical URI, without access to it.

    They are configured by the environment of the process, and by keys. Raises TableRefused if that cannot be
    read.
    """
    scheme, _, rest = uri.partition("://")
    bucket = rest.partition("/")[0]
    try:
        return Stores(_client(scheme, bucket, RETRIES, keys), _client(scheme, bucket, _ONCE, keys))
    except (BaseError, OSError, ValueError):
        # The text of the error may contain values of the variables.
        refused = TableRefused(
            f"the object store of {uri} cannot be used: the environment of this process has a setting that "
            "cannot be read. Correct its variables for the object store (docs/formats/object-stores.md)"
            if keys is None
            else f"the object store of {uri} cannot be used: the address that the catalog gives, or a "
            "variable of this process, cannot be read. Correct it (docs/formats/object-stores.md)"
        )
    raise refused


def _client(scheme: str, bucket: str, retries: "RetryConfig", keys: Keys | None) -> ObjectStore:
    if scheme == "gs":
        return GCSStore(bucket, retry_config=retries)
    if scheme == "abfss":
        container, _, host = bucket.partition("@")
        account = host.partition(".")[0]
        return AzureStore(container, account_name=account, retry_config=retries)
    # Without this setting, the environment could switch conditions off.
    config: S3Config = {"conditional_put": "etag"}
    if keys is None:
        return S3Store(bucket, config=config, retry_config=retries)
    if keys.region is not None:
        config["region"] = keys.region
    if keys.endpoint is not None:
        config["endpoint"] = keys.endpoint
    # In place of all keys of the environment, a session token among them.
    given: S3Credential = {
        "access_key_id": keys.access,
        "secret_access_key": keys.secret,
        "token": keys.session,
        "expires_at": None,
    }
    return S3Store(bucket, config=config, retry_config=retries, credential_provider=lambda: given)


class ObjectStorage:
    """A table's folder in an object store."""

    local = False
    object_store = True

    def __init__(self, uri: str, clients: Clients) -> None:
        self.uri = self.root = uri
        self.source = clients.source
        self._clients = clients
        self._bucket, _, self._prefix = uri.partition("://")[2].partition("/")
        self._proven = False
        self._own: tuple[str, str | None] = ("", None)
        """Name and stamp of the latest file that was created."""

    def make_folder(self) -> None:
        """Do nothing: an object store has no folders."""

    def read(self, name: str) -> bytes | None:
        found = self.read_stamped(name)
        return None if found is None else found.content

    def read_stamped(self, name: str) -> Stamped | None:
        found = self._read(name)
        if isinstance(found, Failure):
            raise self._unavailable(f"cannot read {name}", found)
        return found

    def stamp(self, name: str) -> str | None:
        key = self._key(name)
        if key is None:
            return None
        found = self._clients.call(
            lambda stores: Stamped(b"", _strong(obstore.head(stores.patient, key)["e_tag"]))
        )
        if isinstance(found, Failure):
            if found.kind in (Kind.ABSENT, Kind.NO_NAME):
                return None
            raise self._unavailable(f"cannot look at {name}", found)
        return found.stamp

    def stamp_of_put(self, name: str) -> str | None:
        put, stamp = self._own
        return stamp if put == name else None

    def names(self, folder: str, after: str = "") -> list[str]:
        key = self._key(folder)
        if key is None:
            return []
        found = self._clients.call(lambda stores: _list(stores.patient, key, after))
        if isinstance(found, Failure):
            if found.kind is Kind.ABSENT:
                return []
            raise self._unavailable(f"cannot list the folder {folder}", found)
        skipped = len(key) + 1 if key else 0
        names = {path[skipped:].partition("/")[0] for path in found}
        return [name for name in names if name > after]

    def size(self, name: str) -> int | None:
        key = self._key(name)
        if key is None:
            return None
        found = self._clients.call(lambda stores: obstore.head(stores.patient, key)["size"])
        if isinstance(found, Failure):
            if found.kind in (Kind.ABSENT, Kind.NO_NAME):
                return None
            raise self._unavailable(f"cannot look at {name}", found)
        return found

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        return _side_by_side(self.size, names)

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        return _side_by_side(self._read_range, ranges)

    def _read_range(self, wanted: Range) -> bytes | None:
        key = self._key(wanted.name)
        if key is None:
            return None
        start, length = wanted.start, wanted.length
        found = self._clients.call(
            lambda stores: bytes(obstore.get_range(stores.patient, key, start=start, length=length))
        )
        if isinstance(found, Failure):
            if is_absent(found, wanted.name):
                return None
            raise self._unavailable(f"cannot read {wanted.name}", found)
        return found

    def leads_out(self, name: str) -> bool:
        return ".." in name.split("/")

    def is_link(self, name: str) -> bool:
        return False

    def has_link(self, name: str) -> bool:
        return self.leads_out(name)

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        def send(name: str) -> Failure | None:
            return self._overwrite(f"{folder}/{name}", files[name])

        for name, failure in zip(files, _side_by_side(send, list(files)), strict=True):
            if failure is not None:
                raise self._unavailable(f"cannot write {name} to the folder {folder}", failure)
            self._pass(Failpoint.LAKE_MANIFEST_WRITTEN, f"cannot write to the folder {folder}")
        self._pass(Failpoint.LAKE_MANIFESTS_DURABLE, f"cannot write to the folder {folder}")

    def put_if_absent(self, name: str, content: Content, draft: str = "") -> bool:
        self._prove_conditions()
        self._pass(Failpoint.LAKE_PUT_BEFORE, f"cannot put {name}")
        put = self._put(name, whole(content))
        try:
            hit(Failpoint.LAKE_PUT_AFTER)
            hit(Failpoint.LAKE_PUT_DURABLE)
        except OSError as error:
            raise Uncertain(f"{name} of {self.uri} may be there: {error}") from error
        return put

    def put_after(
        self, folder: str, files: Mapping[str, bytes], name: str, content: Content, draft: str = ""
    ) -> bool:
        self.write(folder, files)
        return self.put_if_absent(name, content)

    def _put(self, name: str, content: bytes) -> bool:
        """Put until the outcome is certain, or no attempt is left. A repetition never replaces a file."""
        unclear: Failure | None = None
        failure = Failure(Kind.UNCLEAR)
        for pause in PAUSES:
            time.sleep(pause)
            outcome = self._create(name, content)
            if outcome is None:
                return True
            failure = outcome
            if failure.kind in (Kind.TAKEN, Kind.BUSY):
                there = self._read(name)
                if isinstance(there, Stamped):
                    # The same content is of an earlier attempt, whose answer was lost.
                    return there.content == content
                if failure.kind is Kind.TAKEN and there is None:
                    # It was there, and was deleted meanwhile. Ours must not appear again after that.
                    if unclear is None:
                        return False
                    break
                if isinstance(there, Failure):
                    unclear = Failure(Kind.UNCLEAR, there.answer)
                continue
            if not failure.certain:
                unclear = failure
            elif not failure.passing:
                break
        return self._give_up(name, content, unclear, failure)

    def _give_up(self, name: str, content: bytes, unclear: Failure | None, last: Failure) -> bool:
        """Return or raise the outcome after the last attempt. `unclear`: one that may have had an effect."""
        attempt = f"cannot put {name} of {self.uri}"
        if unclear is None:
            if last.kind is Kind.UNSUPPORTED:
                raise CannotPut(explain_failure(attempt, last), CauseCode.NO_CONDITIONAL_PUT)
            raise LakeUnavailable(explain_failure(attempt, last))
        there = self._read(name)
        if isinstance(there, Stamped):
            return there.content == content
        # It is not there yet, but a request of ours may still be on its way.
        raise Uncertain(explain_failure(f"{attempt}, perhaps", unclear))

    def _create(self, name: str, content: bytes) -> Failure | None:
        """Send one conditional put."""
        key = self._key(name)
        if key is None:
            return Failure(Kind.NO_NAME)
        self._own = ("", None)
        found = self._clients.call(lambda stores: obstore.put(stores.single, key, content, mode="create"))
        if isinstance(found, Failure):
            return found
        self._own = (name, _strong(found["e_tag"]))
        return None

    def _prove_conditions(self) -> None:
        """See once that the store heeds a condition: a store that ignores it would overwrite commits.

        Raises CannotPut or LakeUnavailable.
        """
        if self._proven:
            return
        name = f".sluicegate-probe-{uuid.uuid4().hex}"
        outcomes = [self._create(name, b"1"), self._create(name, b"2")]
        self.discard(".", [name])
        attempt = f"cannot put files into {self.uri}"
        if outcomes == [None, None]:
            raise CannotPut(
                f"{attempt}: the store overwrites a file although the request forbids it. "
                "Use a store with conditional writes",
                CauseCode.NO_CONDITIONAL_PUT,
            )
        for outcome in outcomes:
            if outcome is not None and outcome.kind is Kind.UNSUPPORTED:
                raise CannotPut(explain_failure(attempt, outcome), CauseCode.NO_CONDITIONAL_PUT)
            if outcome is not None and outcome.kind is not Kind.TAKEN:
                raise LakeUnavailable(explain_failure(attempt, outcome))
        self._proven = True

    def settle(self, folder: str) -> None:
        """Do nothing: what is visible is durable."""

    def settle_files(self, names: Sequence[str]) -> None:
        """Do nothing: what is visible is durable."""

    def hint(self, name: str, content: bytes) -> None:
        key = self._key(name)
        with contextlib.suppress(OSError):
            hit(Failpoint.LAKE_HINT_BEFORE)
            if key is not None:
                self._clients.call(lambda stores: obstore.put(stores.single, key, content))
            hit(Failpoint.LAKE_HINT_AFTER)

    def replace(self, name: str, content: bytes) -> None:
        failure = self._overwrite(name, content)
        if failure is not None:
            raise self._unavailable(f"cannot put {name}", failure)

    def discard(self, folder: str, names: Sequence[str]) -> None:
        keys = [key for name in names if (key := self._key(f"{folder}/{name}")) is not None]
        if keys:
            self._clients.call(lambda stores: obstore.delete(stores.patient, keys))

    def remove(self, name: str) -> bool:
        if self.leads_out(name):
            raise LakeUnavailable(f"{name} of {self.uri} leads out of the table: not removed")
        key = self._key(name)
        if key is None or self.size(name) is None:
            return False
        failure = self._clients.call(lambda stores: obstore.delete(stores.patient, [key]))
        if isinstance(failure, Failure):
            if failure.kind is Kind.ABSENT:
                return False
            raise self._unavailable(f"cannot remove {name}", failure)
        return True

    def copy(self, source: Storage, name: str) -> None:
        key = self._key(name)
        if isinstance(source, ObjectStorage) and self._is_beside(source) and key is not None:
            theirs = source._key(name)
            if theirs is not None:
                found = self._clients.call(lambda stores: obstore.copy(stores.patient, theirs, key))
                if isinstance(found, Failure):
                    raise self._unavailable(f"cannot copy {name} of {source.uri}", found)
                return
        content = source.read(name)
        if content is None:
            raise LakeUnavailable(f"{name} of {source.uri} was deleted while it was copied")
        failure = self._overwrite(name, content)
        if failure is not None:
            raise self._unavailable(f"cannot copy {name}", failure)

    def _is_beside(self, other: "ObjectStorage") -> bool:
        """Return True if the other folder is in the same bucket, and the environment has the keys of both."""
        if self.source is not None or other.source is not None:
            return False
        return (self.uri.partition("://")[0], self._bucket) == (other.uri.partition("://")[0], other._bucket)

    def _overwrite(self, name: str, content: bytes) -> Failure | None:
        key = self._key(name)
        if key is None:
            return Failure(Kind.NO_NAME)
        in_parts = len(content) > _PART
        found = self._clients.call(
            lambda stores: obstore.put(stores.patient, key, content, use_multipart=in_parts, chunk_size=_PART)
        )
        return found if isinstance(found, Failure) else None

    def _read(self, name: str) -> Stamped | Failure | None:
        key = self._key(name)
        if key is None:
            return None
        found = self._clients.call(lambda stores: _content(stores.patient, key))
        if isinstance(found, Failure) and found.kind in (Kind.ABSENT, Kind.NO_NAME):
            return None
        return found

    def _key(self, name: str) -> str | None:
        """Return the key of a name, None if no object can have that."""
        parts = [part for part in f"{self._prefix}/{name}".split("/") if part not in ("", ".")]
        key = "/".join(parts)
        if ".." in parts or _CONTROL.search(key) or len(key.encode(errors="replace")) > _LONGEST_NAME:
            return None
        return key

    def _pass(self, point: Failpoint, attempt: str) -> None:
        try:
            hit(point)
        except OSError as error:
            raise LakeUnavailable(f"{attempt} of {self.uri}: {error}") from error

    def _unavailable(self, attempt: str, failure: Failure) -> LakeUnavailable:
        return LakeUnavailable(explain_failure(f"{attempt} of {self.uri}", failure))


def _content(store: ObjectStore, key: str) -> Stamped:
    found = obstore.get(store, key)
    return Stamped(bytes(found.bytes()), _strong(found.meta["e_tag"]))


def _strong(tag: str | None) -> str | None:
    """Return an entity tag if it changes with each byte of the content."""
    return None if not tag or tag.startswith("W/") else tag


def _list(store: ObjectStore, key: str, after: str) -> list[str]:
    """Return keys in a folder, at least up to their next part, in which each is a name of the folder."""
    if after:
        start = f"{key}/{after}" if key else after
        return [each["path"] for page in obstore.list(store, key or None, offset=start) for each in page]
    found = obstore.list_with_delimiter(store, key or None)
    return [*(each["path"] for each in found["objects"]), *found["common_prefixes"]]


def _side_by_side(call: Callable[[_U], _T], arguments: Sequence[_U]) -> list[_T]:
    if len(arguments) < 2:
        return [call(each) for each in arguments]
    with ThreadPoolExecutor(min(len(arguments), _AT_ONCE)) as threads:
        return list(threads.map(call, arguments))
