"""Checks of `sluicegate check` that use Redis and the tables."""

import contextlib
import os
import uuid
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

from sluicegate.cli.checks_cleaning import check_cleaning
from sluicegate.cli.checks_table import Comparison, compare
from sluicegate.cli.finding import Finding, fine, problem, warning
from sluicegate.cli.redis_failures import explain, format_failure
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.settings.model import RedisSettings, StreamSettings
from sluicegate.coordinator.stream.log import other_user
from sluicegate.lakes.capabilities import NamesFolders, OpensNewest
from sluicegate.lakes.maintenance import format_problems
from sluicegate.lakes.port import LakeUnavailable, TableMaintenance, TableRefused, TableState
from sluicegate.lakes.registry import adapter
from sluicegate.lakes.storage import CannotPut, Uncertain
from sluicegate.lakes.storages import OBJECT_SCHEMES, open_storage
from sluicegate.state_store.redis_store import redis_client

_REDIS_PROBE: Final = """\
redis.call('HSET', KEYS[1], 'revision', '0')
redis.call('SADD', KEYS[2], 'check')
return redis.call('DEL', KEYS[1], KEYS[2])
"""
"""The commands of a view's write, on keys that no client reads."""


async def check_redis(redis: RedisSettings | None) -> Finding:
    """Check that Redis answers and allows writes; fine if no Redis is configured."""
    if redis is None:
        return fine("redis", "not configured, not needed: only other services would read it")
    tls = redis.shown.startswith("rediss:")
    client = redis_client(redis.url.get_secret_value(), redis.timeout, redis.client_options())
    try:
        await client.ping()
        # The keys have the coordinator's prefix: an ACL may allow the user only those.
        await client.eval(_REDIS_PROBE, 2, *(f"{redis.key_prefix}:check-{uuid.uuid4().hex}" for _ in "ab"))
        wrong = await _check_names_of_views(client, f"{redis.key_prefix}:streams")
    except AuthenticationError:
        return problem(
            "redis",
            f"{redis.shown} refuses user or password; check redis.username, redis.password and redis.url",
        )
    except NoPermissionError as error:
        return problem(
            "redis",
            f"{redis.shown} refuses: {error}; allow the user the keys {redis.key_prefix}:* and the commands "
            "ping, hget, hgetall, hset, sadd, srem, smembers, del, eval, evalsha, script, multi and exec",
        )
    except (RedisError, OSError) as error:
        return problem("redis", f"{redis.shown} {format_failure(await explain(error, redis), tls=tls)}")
    finally:
        await client.aclose()
    if wrong is not None:
        return problem("redis", f"{redis.shown} {wrong}")
    return fine("redis", f"{redis.shown} answers")


async def _check_names_of_views(client: Redis, key: str) -> str | None:
    """Return why the set of the names of streams cannot be used, None if it can. Raises RedisError."""
    try:
        # Not TYPE: an ACL that is enough for the service does not allow it.
        await cast("Awaitable[Any]", client.smembers(key))
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        return (
            f"has a value of another type at the key {key}, so no view can be written. Delete it: "
            f"redis-cli DEL {key}. The next commit of each stream writes its name again"
        )
    return None


def check_stream(
    stream: str, settings: StreamSettings, record: StateRecord | None = None
) -> tuple[list[Finding], Comparison | None]:
    """Check that the table opens, is in scope, fits its state record and can be written; blocks.

    Return the findings, and the one among them that compares the table with the record.
    """
    name = f"table of {stream}"
    try:
        opened = adapter(settings.format)
        table = opened.parse_table(settings.table, settings.adapter_options())
        committer = opened.open_committer(table, settings.commit_user)
        maintenance = opened.open_maintenance(table)
        try:
            state = committer.inspect()
            wrong = other_user(record, settings.commit_user) if record is not None else None
            if wrong is not None:
                return [problem(name, format_problem(wrong, stream))], None
            compared = compare(name, committer, state, record) if record is not None else None
            cleaning = check_cleaning(stream, settings, maintenance, record)
        finally:
            committer.close()
    except TableRefused as error:
        return [problem(name, f"{settings.table}: {error}")], None
    except LakeUnavailable as error:
        away = f"{settings.table} cannot be read now: {error}; check the storage, try again"
        return [problem(name, away)], None
    found = [
        fine(name, f"{settings.table} is in scope; {_describe(state, settings)}"),
        *([compared.finding] if compared else []),
        *_check_files(name, maintenance),
        *_check_write(name, maintenance),
        *_check_names(stream, settings),
        *cleaning,
    ]
    return found, compared


def _check_files(name: str, maintenance: TableMaintenance) -> list[Finding]:
    """Open what a reader of the newest snapshot opens. No commit looks at the data files of former ones."""
    if not isinstance(maintenance, OpensNewest):
        return []
    named = f"{name}, files"
    try:
        opened = maintenance.open_newest()
    except LakeUnavailable as error:
        return [problem(named, str(error))]
    if opened.problems:
        return [problem(named, format_problems(opened))]
    return [fine(named, f"the newest snapshot can be read: its metadata, and {opened.files} of its files")]


def _check_names(stream: str, settings: StreamSettings) -> list[Finding]:
    # "unchecked" is a deliberate setting, so it is a warning and not a problem.
    if settings.file_names == "checked":
        return []
    text = (
        "the names of data files are not compared with the attempts that wrote them (file_names = "
        '"unchecked"): a file that two checkpoints name is committed twice. If the writers are the hooks of '
        f'this release, set streams.{stream}.file_names = "checked" for all coordinators'
    )
    return [warning(f"table of {stream}, file names", text)]


def _describe(state: TableState, settings: StreamSettings) -> str:
    # With its identity, as `sluicegate stream resume --head` takes it.
    head = f"snapshot {state.head.id}:{state.head.identity}" if state.head else "no snapshot yet"
    if state.newest_decision is None:
        return f"{head}, none by {settings.commit_user}"
    return f"{head}, last commit by {settings.commit_user}: {state.newest_decision}"


def _check_write(name: str, maintenance: TableMaintenance) -> list[Finding]:
    parts = urlsplit(maintenance.location)
    if parts.scheme in OBJECT_SCHEMES:
        # Where no folder is named, a catalog decides a commit, and no put of a file.
        return _check_write_of_objects(name, maintenance.location, isinstance(maintenance, NamesFolders))
    if parts.scheme != "file" or not isinstance(maintenance, NamesFolders):
        return []
    for folder in maintenance.written_folders:
        path = Path(unquote(parts.path)) / folder
        if path.is_dir() and (reason := _refused_write(path)) is not None:
            return [
                problem(
                    f"{name}, writing",
                    f"{path}: {reason}; let this user write there, on a file system that has hard links",
                )
            ]
    return [fine(f"{name}, writing", "files can be made, linked and removed")]


def _check_write_of_objects(name: str, location: str, conditional: bool) -> list[Finding]:
    """Try the requests of a commit in an object store: a put, conditional if one decides, and a deletion."""
    probe = f".sluicegate-check-{uuid.uuid4().hex}"
    try:
        storage = open_storage(location)
        if conditional:
            storage.put_if_absent(probe, probe.encode())
        else:
            storage.write(".", {probe: probe.encode()})
        storage.remove(probe)
    except (TableRefused, LakeUnavailable, CannotPut, Uncertain) as error:
        return [problem(f"{name}, writing", str(error))]
    how = ", only where none is," if conditional else ""
    return [fine(f"{name}, writing", f"files can be put{how} and removed")]


def _refused_write(folder: Path) -> str | None:
    """Try the file operations of a commit in a folder; return the reason if one fails.

    A commit creates a file, and hard-links it to a name that must not exist.
    """
    # Readers ignore hidden names, and the random part makes the name unique.
    made = folder / f".sluicegate-check-{uuid.uuid4().hex}"
    linked = made.with_suffix(".link")
    try:
        made.touch(exist_ok=False)
        os.link(made, linked)
    except OSError as error:
        return error.strerror or str(error)
    finally:
        for path in (made, linked):
            # If the files could not be created, the removal fails too. That error is no news.
            with contextlib.suppress(OSError):
                path.unlink()
    return None
