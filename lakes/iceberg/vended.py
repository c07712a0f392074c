"""Keys of a table's storage that a REST catalog hands out (vended credentials).

The protocol gives them with the state of a table, if a header asks for them. They end after minutes or hours.
Before that, others are asked for. The store may refuse them earlier, and then others are asked for at once.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sluicegate.lakes.port import LakeError, LakeUnavailable, TableRefused
from sluicegate.lakes.storage import Keys

_log = logging.getLogger(__name__)

DELEGATION: Final = "X-Iceberg-Access-Delegation"
"""Header that asks for keys."""
OPTION: Final = f"header.{DELEGATION}"
VENDED: Final = "vended-credentials"
"""Value of the header, and of the option."""

RENEWED_AT: Final = 0.8
"""Part of their life after which keys are renewed."""
UNSTATED: Final = 300.0
"""Seconds for which keys are used if the answer names no end. The store refuses those that end earlier."""
PAUSE: Final = 2.0
"""Seconds between two questions, if the first one gave nothing better."""

_REGIONS: Final = ("s3.region", "client.region")


class _Given(NamedTuple):
    """An answer of the catalog. Its times are of the monotonic clock, in seconds."""

    keys: Sequence[tuple[str, Keys]]
    """By the prefix of the files that they open. Those for all files have an empty one."""
    asked: float
    renewal: float
    end: float
    is_stated: bool
    """True if the answer names the end."""


class VendedKeys:
    """Keys of the storage of one table."""

    def __init__(self, ask: Callable[[], Mapping[str, Any]], table: str, options: Mapping[str, str]) -> None:
        """Prepare a source. `options`: those with which another process opens the table.

        `ask` returns the state of the table, as the protocol has it, with keys. It raises LakeUnavailable.
        """
        self.options = options
        self._ask = ask
        self._table = table
        self._given: _Given | None = None
        self._lock = threading.Lock()

    def keys(self, uri: str) -> Keys:
        """Return keys of a folder. Raises LakeUnavailable or TableRefused."""
        given, now = self._given, time.monotonic()
        if given is None or now >= given.renewal:
            # While one thread asks, the others use keys that are still valid.
            is_needed = given is None or now >= given.end
            if self._lock.acquire(blocking=is_needed):
                try:
                    given = self._renewed()
                finally:
                    self._lock.release()
        fitting = [each for each in given.keys if _covers(each[0], uri)] if given is not None else []
        if fitting:
            return max(fitting, key=lambda each: len(each[0]))[1]
        raise TableRefused(
            f"the catalog hands out no keys for {uri}, where files of {self._table} are. Correct the rights "
            f"of its role, or remove the option {OPTION}, and set keys in the environment of each process"
        )

    def drop(self, keys: Keys) -> bool:
        """Forget keys that the store refused. Return False if they are new, so that others would not help."""
        with self._lock:
            given = self._given
            if given is not None and any(each == keys for _, each in given.keys):
                if time.monotonic() < given.asked + PAUSE:
                    return False
                self._given = None
        return True

    def lifetime(self) -> float | None:
        """Return the seconds for which the newest keys are valid; None if the catalog states no end."""
        given = self._given
        return given.end - time.monotonic() if given is not None and given.is_stated else None

    def _renewed(self) -> _Given:
        """Ask for keys, unless another thread has just done so. Raises LakeUnavailable or TableRefused."""
        given, now = self._given, time.monotonic()
        if given is not None and now < given.renewal:
            return given
        try:
            keys, end = _read_keys(self._ask(), self._table)
        except LakeError as error:
            if given is None or now >= given.end:
                raise
            _log.warning(
                "the keys of the storage of %s are not renewed: %s. The present ones are valid for %d s",
                *(self._table, error, given.end - now),
            )
            self._given = given = given._replace(renewal=now + PAUSE)
            return given
        life = UNSTATED if end is None else end - time.time()
        self._given = given = _Given(
            keys, now, now + RENEWED_AT * life, now + life, is_stated=end is not None
        )
        return given


def asking(options: Mapping[str, str]) -> list[str]:
    """Return the names of the options that ask for keys. A header has any case; sinks have lower case."""
    return sorted(name for name in options if name.lower() == OPTION.lower())


def _covers(prefix: str, uri: str) -> bool:
    """Return True if keys for a prefix open files of a folder, which may be a whole bucket."""
    return not prefix or uri.startswith(prefix) or prefix.startswith(f"{uri.rstrip('/')}/")


def _read_keys(answer: Mapping[str, Any], table: str) -> tuple[list[tuple[str, Keys]], float | None]:
    """Return keys by their prefixes, and when the first of them end, in seconds since the Unix epoch.

    The end is None if the answer names none. Raises LakeUnavailable if the answer cannot be read, and
    TableRefused if it has no keys.
    """
    try:
        general = dict(answer.get("config") or {})
        # Those of a prefix count first, as the protocol demands.
        listed = [(str(each["prefix"]), each["config"]) for each in answer.get("storage-credentials") or ()]
        found = [
            (_plain(prefix), keys, end)
            for prefix, config in [*listed, ("", {})]
            for keys, end in _keys_of({**general, **config})
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        # The text of the error may contain a secret, so it is not chained.
        found = None
    if found is None:
        raise LakeUnavailable(
            f"the answer of the catalog, with keys of the storage of {table}, cannot be read. See its version"
        )
    if found:
        return [(prefix, keys) for prefix, keys, _ in found], min(
            (end for *_, end in found if end is not None), default=None
        )
    way = f"or remove the option {OPTION}, and set keys in the environment of each process"
    if str(general.get("s3.remote-signing-enabled", "")).lower() == "true":
        raise TableRefused(
            f"the catalog signs each request to the storage of {table} itself (remote signing), which is not "
            f"supported. Have it hand out keys, {way}"
        )
    raise TableRefused(
        f"the catalog hands out no keys for the storage of {table}. Turn vended credentials on there, {way}"
    )


def _plain(prefix: str) -> str:
    scheme, _, rest = prefix.partition("://")
    return f"s3://{rest}" if scheme in ("s3a", "s3n") else prefix


def _keys_of(config: Mapping[str, Any]) -> list[tuple[Keys, float | None]]:
    """Return the keys in a part of the answer, with their end; an empty list if there are none."""
    access, secret = config.get("s3.access-key-id"), config.get("s3.secret-access-key")
    if not (access and secret):
        return []
    end = config.get("s3.session-token-expires-at-ms")
    keys = Keys(
        access=str(access),
        secret=str(secret),
        session=config.get("s3.session-token"),
        region=next((str(config[name]) for name in _REGIONS if config.get(name)), None),
        endpoint=config.get("s3.endpoint"),
    )
    return [(keys, float(end) / 1000 if end else None)]
