"""State store in Redis: one hash per stream, readable by people.

`HGETALL <prefix>:stream:<stream>` shows a view, `SMEMBERS <prefix>:streams` the streams. Text fields are
stored as text, all others as JSON; fields without a value are absent. Keys have no expiry.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

from pydantic import ValidationError
from redis.asyncio import Redis, SSLConnection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from sluicegate.state_store.port import Stamp, StateStoreUnavailable, StreamView, UnreadableView

_PIECE: Final = 50
"""Views that are read in one exchange."""
_READ_ONLY: Final = "read only replica"
_OF_CLUSTERS: Final = (AskError, ClusterCrossSlotError, ClusterDownError, MovedError)
NO_CLUSTER: Final = (
    "it runs in cluster mode, which is not supported: a view and the set of streams are written in one step. "
    "Use one server, or one with replicas and Sentinels"
)
_TEXTS: Final = frozenset(
    {"stream", "commit_user", "table", "table_identity", "owner", "partial", "single_region"}
)

# Atomic, so that an older view never replaces a newer one. KEYS: the view, the set of streams. ARGV: the
# revision, the stream, then fields and values.
_WRITE: Final = """\
local held = redis.pcall('HGET', KEYS[1], 'revision')
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
  return held
end
-- Another kind of value is no view, and is replaced.
local stored = type(held) == 'string' and tonumber(held)
if stored and stored > tonumber(ARGV[1]) then
  return 0
end
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
return 1
"""

# Atomic, so that only the view with this stamp is replaced. ARGV: its revision, its time, the stream, then
# fields and values.
_REPLACE: Final = """\
local stored = redis.call('HMGET', KEYS[1], 'revision', 'updated_at')
if stored[1] ~= ARGV[1] or (stored[2] or '') ~= ARGV[2] then
  return 0
end
redis.call('SADD', KEYS[2], ARGV[3])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 4))
return 1
"""


def tls_context(
    ca: str | None, certificate: str | None, key: str | None, password: str | None
) -> ssl.SSLContext:
    """Return what a client of Redis needs for TLS, read from PEM files now.

    Without `ca`, it trusts the authorities of the system. Raises OSError for files that cannot be used.
    """
    context = ssl.create_default_context(cafile=ca)
    if certificate is not None:
        context.load_cert_chain(certificate, key, password)
    return context


class _FreshTls(SSLConnection):
    """Connection that reads its certificates again, so that renewed files count without a restart.

    It trusts the given authorities alone. The client of the library trusts those of the system besides.
    """

    async def connect(self) -> None:
        """Connect, unless it is connected. Raises RedisError, and OSError for files that cannot be used."""
        if not self.is_connected:
            given = self.ssl_context
            given.context = tls_context(given.ca_certs, given.certfile, given.keyfile, given.password)
        await super().connect()  # type: ignore[no-untyped-call]


class _Primary(SentinelConnectionPool):
    """Connections to the primary that Sentinels name; those to the Sentinels end with them."""

    async def aclose(self) -> None:
        await super().aclose()
        for each in self.sentinel_manager.sentinels:
            await each.aclose()


def redis_client(url: str, timeout: float, options: Mapping[str, Any], **more: Any) -> Redis:
    """Return a client of Redis or Valkey. It does not retry: a commit must not wait for a view.

    `timeout` is in seconds; `options` and `more` are for `Redis.from_url`. With the option `sentinels`, pairs
    of host and port, the host of `url` is the name of the primary.
    """
    patience: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
    }
    own = dict(options)
    if sentinels := own.pop("sentinels", ()):
        # The library's parser would change the case of a name.
        name = named_primary(url)
        given = {key: value for key, value in parse_url(url).items() if key not in ("host", "port")}
        # They are asked in turn, within the timeout of a call: one that hangs leaves time for the others.
        share = timeout / (len(sentinels) + 1)
        impatience = {**patience, "socket_timeout": share, "socket_connect_timeout": share}
        manager = Sentinel(  # type: ignore[no-untyped-call]
            sentinels, sentinel_kwargs=impatience, **given, **patience, **own, **more
        )
        primary: Redis = manager.master_for(name, connection_pool_class=_Primary)
        return primary
    client: Redis = Redis.from_url(url, **patience, **own, **more)
    if client.connection_pool.connection_class is SSLConnection:
        client.connection_pool.connection_class = _FreshTls
    return client


def named_primary(url: str) -> str:
    """Return the host of an address as it is written: with Sentinels, the name of the primary."""
    return urlsplit(url).netloc.rpartition("@")[2].partition(":")[0]


def is_of_cluster(error: Exception) -> bool:
    """Return True for an answer that only a server in cluster mode gives."""
    return isinstance(error, _OF_CLUSTERS) or str(error).startswith(("CROSSSLOT", "MOVED ", "CLUSTERDOWN"))


class RedisStateStore:
    """State store in Redis or Valkey. `timeout` is in seconds and limits each call as a whole.

    `options` are passed to `Redis.from_url` with the address: user, password, TLS files.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "sluicegate",
        timeout: float = 1.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._redis = redis_client(url, timeout, options or {}, decode_responses=True)
        self._write = self._redis.register_script(_WRITE)
        self._replace = self._redis.register_script(_REPLACE)
        self._prefix = prefix
        self._timeout = timeout

    async def write(self, view: StreamView) -> bool:
        """See StateStore."""
        async with self._bounded():
            return bool(await self._write(self._keys(view), [str(view.revision), *_arguments(view)]))

    async def stamp(self, stream: str) -> Stamp | None:
        """See StateStore."""
        async with self._bounded():
            found = await _or_wrong_type(self._redis.hmget(self._key(stream), ["revision", "updated_at"]))
        if isinstance(found, ResponseError):
            return None
        revision, updated_at = cast("list[str | None]", found)
        if revision is None or not revision.isdecimal():
            return None
        return Stamp(int(revision), updated_at or "")

    async def replace(self, view: StreamView, stamp: Stamp) -> bool:
        """See StateStore."""
        given = [str(stamp.revision), stamp.updated_at, *_arguments(view)]
        async with self._bounded():
            return bool(await self._replace(self._keys(view), given))

    async def read(self, stream: str) -> StreamView | None:
        """See StateStore."""
        key = self._key(stream)
        async with self._bounded():
            found = _read(key, await _or_wrong_type(self._redis.hgetall(key)))
        if isinstance(found, UnreadableView):
            raise found
        return found

    async def streams(self) -> list[str]:
        """See StateStore."""
        async with self._bounded():
            names = await _or_wrong_type(self._redis.smembers(self._streams))
        if isinstance(names, ResponseError):
            raise StateStoreUnavailable(
                f"the key {self._streams} holds no set of streams: {names}. Delete it: the next commit of "
                "each stream writes its name again"
            )
        return sorted(names)

    async def read_all(self) -> dict[str, StreamView | UnreadableView]:
        """See StateStore."""
        found: dict[str, StreamView | UnreadableView] = {}
        names = await self.streams()
        for start in range(0, len(names), _PIECE):
            piece = names[start : start + _PIECE]
            async with self._bounded(), self._redis.pipeline(transaction=False) as several:
                for name in piece:
                    several.hgetall(self._key(name))
                answers = await several.execute(raise_on_error=False)
            for name, fields in zip(piece, answers, strict=True):
                if isinstance(fields, Exception) and not _is_wrong_type(fields):
                    await self._leave_replica(fields)
                    raise StateStoreUnavailable(f"Redis failed: {fields}") from fields
                view = _read(self._key(name), fields)
                if view is not None:
                    found[name] = view
            # Views are large, and reading one takes some tenths of a millisecond of the event loop.
            await asyncio.sleep(0)
        return found

    async def remove(self, stream: str) -> None:
        """See StateStore."""
        async with self._bounded(), self._redis.pipeline(transaction=True) as both:
            both.delete(self._key(stream))
            both.srem(self._streams, stream)
            await both.execute()

    async def ping(self) -> None:
        """See StateStore."""
        async with self._bounded():
            await self._redis.ping()

    async def close(self) -> None:
        """See StateStore."""
        # A server that does not respond must not delay a shutdown; the sockets are closed in any case.
        with contextlib.suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(self._timeout):
                await self._redis.aclose()

    def _key(self, stream: str) -> str:
        return f"{self._prefix}:stream:{stream}"

    def _keys(self, view: StreamView) -> list[str]:
        return [self._key(view.stream), self._streams]

    @property
    def _streams(self) -> str:
        return f"{self._prefix}:streams"

    @contextlib.asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except TimeoutError as error:
            raise StateStoreUnavailable(f"Redis did not answer within {self._timeout:g} s") from error
        except (RedisError, OSError) as error:
            await self._leave_replica(error)
            reason = NO_CLUSTER if is_of_cluster(error) else error
            raise StateStoreUnavailable(f"Redis failed: {reason}") from error

    async def _leave_replica(self, error: Exception) -> None:
        """Close the connections after an answer of a replica, so that the next call asks for the primary.

        A server that a failover makes a replica keeps its connections. Its address leads to the new primary,
        but a connection that stays open does not.
        """
        # Older servers give another prefix to the answer in a script, so its type is a general one.
        if isinstance(error, ReadOnlyError | MasterDownError) or _READ_ONLY in str(error):
            with contextlib.suppress(RedisError, OSError):
                await self._redis.connection_pool.disconnect(inuse_connections=False)


def _arguments(view: StreamView) -> list[str]:
    """Return the stream of a view, then its fields and values."""
    return [view.stream, *(text for each in _fields(view).items() for text in each)]


def _fields(view: StreamView) -> dict[str, str]:
    values = view.model_dump(mode="json")
    return {
        name: value if name in _TEXTS else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        for name, value in values.items()
        if value is not None
    }


async def _or_wrong_type(answer: Awaitable[Any]) -> Any:
    """Return an answer, or the error of a key that holds another kind of value."""
    try:
        return await answer
    except ResponseError as error:
        if not _is_wrong_type(error):
            raise
        return error


def _is_wrong_type(error: Exception) -> bool:
    return isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE")


def _read(key: str, fields: Mapping[str, str] | ResponseError) -> StreamView | UnreadableView | None:
    """Return the view in a hash, None if there is none, or the error that `read` raises."""
    if isinstance(fields, ResponseError):
        return _unreadable(key, "the key holds another kind of value", fields)
    if not fields:
        return None
    try:
        return _view(fields)
    except ValueError as error:
        return _unreadable(key, _reason(error), error)


def _unreadable(key: str, reason: str, cause: Exception) -> UnreadableView:
    found = UnreadableView(
        f"the hash {key} cannot be read as a view of a stream: {reason}. Its coordinator writes "
        "it again with the next commit of the stream"
    )
    found.__cause__ = cause
    return found


def _view(fields: Mapping[str, str]) -> StreamView:
    return StreamView.model_validate(
        {
            name: text if name in _TEXTS else json.loads(text)
            for name, text in fields.items()
            if name in StreamView.model_fields
        }
    )


def _reason(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)
