"""Proofs of `sluicegate check`: what a table, its storage, its catalog and the brokers allow, by trying.

Nobody sees a proof. Files have hidden names with something random, and are deleted again. Messages have the
type `sluicegate.probe`, over which every reader passes.
"""

import contextlib
import os
import posixpath
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from aiokafka.errors import KafkaError
from pydantic import BaseModel, SecretStr

from sluicegate.cli.findings import Finding, fine, problem, warning
from sluicegate.cli.run import key, quoted
from sluicegate.coordinator.observe.messages import duration
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.encoding import probe_headers
from sluicegate.events.problems import CauseCode
from sluicegate.kafka.tokens import RENEWED_AT, NoToken, RenewedToken, TokenSource
from sluicegate.kafka.topics import NO_DELETION, TopicError, append_probes, try_deletion
from sluicegate.lakes.capabilities import (
    CopiesFiles,
    EvolvesSchema,
    FindsOrphans,
    HasCatalog,
    MakesTags,
    NamesFolders,
)
from sluicegate.lakes.port import Adapter, LakeError, LakeUnavailable, TableMaintenance, TableRef, TableState
from sluicegate.lakes.sequence import writes_keys
from sluicegate.lakes.storage import CannotPut, Keyed, KeySource, Storage, Uncertain
from sluicegate.lakes.storages import STORED_SCHEMES, open_storage
from sluicegate.texts import counted

# Storage: the steps of a commit.

RACES: Final = 5
"""Names that two clients put at once."""
_PREFIX: Final = ".sluicegate-check-"


def prove_storage(name: str, maintenance: TableMaintenance, races: int = 0) -> list[Finding]:
    """Try the steps of a commit in the folders of a table, and so many races of two puts of one name; blocks.

    `name`: that of the table's checks.
    """
    named = f"{name}, writing"
    if urlsplit(maintenance.location).scheme not in ("file", *STORED_SCHEMES):
        return []
    # Where no folder is named, a catalog decides a commit, and no put of a file.
    conditional = isinstance(maintenance, NamesFolders)
    folders = maintenance.written_folders if isinstance(maintenance, NamesFolders) else ("",)
    try:
        storage = storage_of(maintenance)
        for folder in folders:
            if _has_folder(storage, folder):
                _try_steps(storage, folder, conditional=conditional)
        for _ in range(races if conditional else 0):
            _try_race(storage)
    except (LakeError, CannotPut, Uncertain) as error:
        return [problem(named, str(error))]
    where = ", only where none is" if conditional else ""
    raced = f". Of two puts of one name at once, one won, {races} times of {races}" if races else ""
    return [fine(named, f"files can be put{where}, read back and deleted{raced if conditional else ''}")]


def _has_folder(storage: Storage, folder: str) -> bool:
    """Return True if a folder is there, or needs none. The first commit makes those that are missing."""
    if not folder or storage.object_store:
        return True
    return Path(storage.root, folder).is_dir() if storage.local else bool(storage.names(folder))


def storage_of(maintenance: TableMaintenance) -> Storage:
    """Return the storage of a table's data files, with the keys that its catalog hands out."""
    return open_storage(maintenance.location, maintenance.source if isinstance(maintenance, Keyed) else None)


@contextlib.contextmanager
def _probe(storage: Storage, folder: str) -> Iterator[str]:
    """Give the name of a file of this proof alone, which is deleted at the end."""
    name = f"{_PREFIX}{uuid.uuid4().hex}"
    try:
        yield name
        path = posixpath.join(folder, name)
        if not storage.remove(path) or storage.size(path) is not None:
            raise LakeUnavailable(
                f"{path} of {storage.uri} was put, and cannot be deleted. Grant this client the deletion of "
                "files in the table's folder, and delete that one"
            )
    finally:
        storage.discard(folder or ".", [name])


def _try_steps(storage: Storage, folder: str, *, conditional: bool) -> None:
    """Put a file, read it back and delete it. Raises LakeError, CannotPut or Uncertain."""
    with _probe(storage, folder) as name:
        path, content = posixpath.join(folder, name), name.encode()
        if conditional:
            storage.put_if_absent(path, content)
        else:
            storage.write(folder or ".", {name: content})
        if storage.read(path) != content:
            raise LakeUnavailable(
                f"{path} of {storage.uri} was put, and is not read back as it is. See whether another "
                "process changes the files there, and whether a cache is before the storage"
            )


def _try_race(storage: Storage) -> None:
    """Have two clients put one name at once: one of them has to win. Raises as `_try_steps` does."""
    other = open_storage(storage.uri, storage.source if isinstance(storage, Keyed) else None)
    begin = threading.Barrier(2)
    with _probe(storage, "") as name:
        contents = [f"{name} {number}".encode() for number in range(2)]

        def put(number: int) -> bool:
            begin.wait()
            return (storage, other)[number].put_if_absent(name, contents[number])

        with ThreadPoolExecutor(2) as pool:
            won = list(pool.map(put, range(2)))
        if won.count(True) != 1 or storage.read(name) != contents[won.index(True)]:
            raise CannotPut(
                f"{storage.uri}: of two puts of one name at once, {won.count(True)} won, and one has to. So "
                "a coordinator could overwrite a commit. Use a store whose conditional writes hold "
                "(docs/formats/object-stores.md)",
                CauseCode.NO_CONDITIONAL_PUT,
            )


# Table, catalog, and keys of the storage.

_MACHINE: Final = "the role of the machine, if it has one"
_VARIABLES: Final = {
    "s3": ("AWS_", _MACHINE),
    "gs": ("GOOGLE_", _MACHINE),
    "abfss": ("AZURE_", _MACHINE),
    "hdfs": ("HADOOP_", "the user of this process"),
}
"""By the scheme of a storage, how the names of its variables begin, and what counts without them."""


def describe_table(
    name: str, adapter: Adapter, table: TableRef, state: TableState, maintenance: TableMaintenance
) -> list[Finding]:
    """Describe what a table allows, its catalog, and the keys of its storage; blocks.

    `name`: that of the table's checks.
    """
    try:
        return [
            fine(f"{name}, allows", "; ".join(_allowed(adapter, table, state, maintenance))),
            *_describe_catalog(name, maintenance),
            *_describe_keys(name, maintenance),
        ]
    except LakeError as error:
        return [problem(f"{name}, allows", str(error))]


def _allowed(
    adapter: Adapter, table: TableRef, state: TableState, maintenance: TableMaintenance
) -> Iterator[str]:
    keys = adapter.keys(table) if writes_keys(adapter) else None
    if keys is None:
        yield "appended rows"
    else:
        order = (
            "any task writes any row"
            if keys.is_ordered
            else "one task writes the rows of a bucket, since the table has no sequence.field"
        )
        yield f"upserts and deletions by key, in {counted(keys.buckets, 'bucket')}: {order}"
    yield f"one region: {state.joined}" if state.joined else "several regions"
    if isinstance(adapter, EvolvesSchema):
        yield "new columns (evolve = add-columns)"
    if isinstance(maintenance, MakesTags):
        yield "tags"
    if isinstance(maintenance, FindsOrphans):
        yield "deletion of orphans"
    if isinstance(maintenance, CopiesFiles):
        yield "replay rebuild"


def _describe_catalog(name: str, maintenance: TableMaintenance) -> list[Finding]:
    if not isinstance(maintenance, HasCatalog):
        return []
    access = maintenance.catalog_access()
    named, text = f"{name}, catalog", f"{access.kind} at {access.address}, login: {access.login}"
    if access.lifetime is not None and access.lifetime <= 0:
        return [warning(named, f"{text}, whose token has ended by its claims. Renew it")]
    if access.lifetime is not None:
        text += f", whose token is valid for {duration(access.lifetime)}"
    if access.refuses is False:
        return [
            warning(
                named,
                f"{text}. It took a change of nothing whose condition does not hold. Either it "
                "leaves out empty changes, or it checks no conditions, and coordinators could overwrite "
                "commits of each other. Ask its makers before you use it",
            )
        ]
    tried = ". A change of nothing, whose condition does not hold, was refused" if access.refuses else ""
    return [fine(named, f"{text}{tried}")]


def _describe_keys(name: str, maintenance: TableMaintenance) -> list[Finding]:
    """Name the keys of the storage, with their end as far as it is known."""
    storage = storage_of(maintenance)
    source = storage.source if isinstance(storage, Keyed) else None
    named = f"{name}, access"
    if source is not None:
        return [fine(named, _of_source(source, storage.uri))]
    first, otherwise = _VARIABLES.get(urlsplit(storage.uri).scheme, ("", ""))
    if not first:
        return []
    found = sorted(each for each in os.environ if each.startswith(first))
    if first == "AWS_" and "AWS_SESSION_TOKEN" in found:
        return [
            warning(
                named,
                "the keys of the environment have a session token, so they end, and nobody renews them. Give "
                "the machine or the pod a role, or let a REST catalog hand out keys",
            )
        ]
    shown = f"by the variables {', '.join(found)}" if found else f"by {otherwise}: no variable is {first}*"
    return [fine(named, shown)]


def _of_source(source: KeySource, uri: str) -> str:
    source.keys(uri)
    life = source.lifetime()
    if life is None:
        return "the catalog hands out keys and states no end of them: others are asked for every 4 min"
    return f"the catalog hands out keys that are valid for {duration(life)}: others are asked for before that"


# Kafka: the login, an append to each topic, and the deletion of records.


async def prove_kafka(settings: Settings, stream: str) -> list[Finding]:
    """Describe the login, append a message to each topic that exists, and try a deletion of no record."""
    kafka, found = settings.kafka, [await _describe_login(settings)]
    names = kafka.topic_names()
    topics = (names.events, names.commits, names.state, names.dead_letters)
    # A compacted topic takes no message without a key. There, a message without a value is deleted in time.
    values = {topic: None if topic == names.state else b"{}" for topic in topics}
    headers = probe_headers(uuid.uuid4().hex, time.time_ns() // 1_000_000)
    try:
        appended = await append_probes(kafka.client_options(), values, stream, headers)
    except (KafkaError, TimeoutError) as error:
        return [*found, problem("append to the topics", _refused(error))]
    for topic in topics:
        if (result := appended.get(topic)) is None:
            continue
        named = f"topic {topic}, append"
        if isinstance(result, str):
            found.append(problem(named, result))
            continue
        where = f"partition {result.partition}, offset {result.offset}"
        found.append(
            fine(named, f"a message of the type sluicegate.probe is at {where}, with {result.timestamps}")
        )
    if names.events in appended:
        found.append(await _try_deletion(settings, stream))
    return found


def _refused(error: BaseException) -> str:
    return (
        f"a producer cannot begin: {str(error) or type(error).__name__}. Grant this client WRITE on the "
        "topics, and IDEMPOTENT_WRITE on the cluster if the brokers ask for it"
    )


async def _describe_login(settings: Settings) -> Finding:
    security, named = settings.kafka.security, "kafka, login"
    source = settings.kafka.client_options().get("sasl_oauth_token_provider")
    if not isinstance(source, TokenSource):
        kind = security.mechanism if security.protocol.startswith("SASL") else "none"
        return fine(named, f"{kind}, by {security.protocol}")
    try:
        life = await source.lifetime()
    except NoToken as error:
        return problem(named, f"{error}. See kafka.security")
    text = f"{security.protocol}, with a token of the source {security.token_source}"
    if life is None:
        return fine(named, f"{text}, which states no end")
    renewed = (
        f", and renewed after {100 * RENEWED_AT:.0f} % of that" if isinstance(source, RenewedToken) else ""
    )
    return fine(named, f"{text} that is valid for {duration(life)}{renewed}")


async def _try_deletion(settings: Settings, stream: str) -> Finding:
    topic = settings.kafka.topic_names().events
    named = f"topic {topic}, deletion"
    try:
        await try_deletion(settings.kafka.client_options(), topic, stream)
    except NO_DELETION:
        return warning(
            named,
            "these brokers delete no records, so the topic grows. Set its retention.ms to several times "
            "replay_window, and watch the condition `retention`",
        )
    except (KafkaError, TopicError, TimeoutError) as error:
        return problem(named, f"records cannot be deleted: {str(error) or type(error).__name__}")
    return fine(named, "records that nobody needs can be deleted")


# The settings with which all of that was found, without secrets.

_SHOWN_OPTIONS: Final = frozenset(
    {
        *("type", "uri", "catalog", "identifier", "branch", "transactions", "warehouse", "scope"),
        *("auth.type", "auth.file.path", "header.X-Iceberg-Access-Delegation"),
        *("rest.sigv4-enabled", "rest.signing-name", "rest.signing-region"),
        *("glue.region", "client.region", "glue.id", "glue.endpoint", "checkpoints"),
    }
)
"""Options of adapters that are no secret. Any other one may be."""


def settings_lines(settings: Settings, stream: str) -> list[str]:
    """Return the settings of Kafka and of a stream, as a settings file has them. Secrets are only named."""
    kafka, own = settings.kafka, settings.streams[stream]
    lines = ["[kafka]", *_lines_of(kafka), ""]
    if "security" in kafka.model_fields_set:
        lines += ["[kafka.security]", *_lines_of(kafka.security), ""]
    section = f"streams.{key(stream)}"
    lines += [f"[{section}]", *_lines_of(own)]
    if own.tables:
        lines += ["", f"[{section}.tables]"]
        lines += [f"{key(name)} = {quoted(each.identifier)}" for name, each in own.tables.items()]
    if options := own.adapter_options():
        lines += ["", f"[{section}.options]"]
        lines += [_line(name, options[name], name in _SHOWN_OPTIONS) for name in sorted(options)]
    return lines


def _lines_of(model: BaseModel) -> list[str]:
    """Return the lines of the fields that are set, but none of sections."""
    given = (
        (name, getattr(model, name)) for name in type(model).model_fields if name in model.model_fields_set
    )
    return [
        _line(name, value, not isinstance(value, SecretStr))
        for name, value in given
        if isinstance(value, str | int | float | Path | SecretStr)
    ]


def _line(name: str, value: object, is_shown: bool) -> str:
    if not is_shown or _may_be_secret(str(value)):
        return f"# {key(name)} is set, and may be a secret"
    if isinstance(value, str | Path):
        return f"{key(name)} = {quoted(str(value))}"
    return f"{key(name)} = {str(value).lower() if isinstance(value, bool) else f'{value:g}'}"


def _may_be_secret(text: str) -> bool:
    """Return True for an address with a password, or with a query, which may have a key."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return True
    return bool(parts.password or (parts.scheme and parts.query))
