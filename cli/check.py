"""`sluicegate check`: verify everything that the service needs."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

import click
from aiokafka.errors import KafkaError

from sluicegate.cli.checks import (
    PATIENCE,
    check_brokers,
    check_grants,
    check_kafka,
    check_keys,
    check_redis,
    check_stream,
    check_topics,
    newer_log,
)
from sluicegate.cli.coordinators import format_unserved, unserved_streams
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.findings import Finding, fine, problem, warning
from sluicegate.cli.kafka import partition_count, read_records
from sluicegate.cli.options import config_option, json_option, print_result, require_stream
from sluicegate.cli.proofs import prove_kafka, settings_lines
from sluicegate.cli.stream_log import known_record, open_log
from sluicegate.cli.terminal import coloured
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.coordinator.listeners.facts import refusals
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.settings.model import HttpSettings, Settings, read_tokens
from sluicegate.coordinator.stream.continuity import other_partition
from sluicegate.events.envelope import partition_of
from sluicegate.events.problems import Problem
from sluicegate.kafka.settings import UnusableFile

AGAIN: Final = 0.3
"""Seconds between two reads of the state records."""


@click.command()
@config_option
@click.option(
    "--table",
    "named",
    metavar="STREAM[/TABLE]",
    help="Check one stream, or one of its further tables, and prove by trying what its table, storage, "
    "catalog and brokers allow. Each topic gets a message that every reader passes over.",
)
@json_option
@click.pass_context
def check(context: click.Context, settings: Settings, named: str | None, as_json: bool) -> None:
    """Check brokers, topics, group, Redis and tables; one line each. Exit status 1 if there is a problem.

    A table is also compared with the state record of its stream, to find a replaced or rolled back table.
    Warnings name what stalls or delays a stream, as its coordinator last recorded it.

    With --table, the settings with which all of that was found follow, without secrets.
    """
    stream, separator, table = (named or "").partition("/")
    if named is not None:
        require_stream(settings, stream)
        _require_table(settings, stream, table if separator else None)
    findings = run_async(settings, _prove(settings, stream, table) if named else _check(settings))
    lines = [
        f"{coloured(f'{finding.verdict:7}', finding.severity)}  {finding.check}: {finding.detail}"
        for finding in findings
    ]
    values: dict[str, object] = {"checks": [asdict(finding) for finding in findings]}
    is_fine = all(finding.ok for finding in findings)
    if named is not None:
        used = settings_lines(settings, stream)
        values["settings"] = used
        lines += ["", f"# The settings {'that work' if is_fine else 'with these problems'}:", *used]
    print_result(values, lines, as_json=as_json)
    context.exit(0 if is_fine else 1)


def _require_table(settings: Settings, stream: str, table: str | None) -> None:
    """Refuse a further table that is not in the settings of a stream. Raises UserError."""
    known = settings.streams[stream].tables
    if table is not None and table not in known:
        raise UserError(
            f"the stream {stream} has no further table {table!r}. It has: "
            f"{', '.join(sorted(known)) or 'none'}. For its own table: --table {stream}"
        )


async def _prove(settings: Settings, stream: str, table: str) -> list[Finding]:
    """Check one stream, or one of its further tables, by trying, and Kafka as far as the stream needs it.

    The messages are appended before the topics are looked at: they prove settings that the brokers hide.
    """
    reached, *group = await check_brokers(settings)
    appended = await prove_kafka(settings, stream) if reached.ok else []
    topics = await check_topics(settings) if reached.ok else []
    grants = await check_grants(settings) if reached.ok else []
    read = await _records(settings) if reached.ok else {}
    found = await _check_stream(settings, stream, _readable(read).get(stream), thorough=True)
    own = f"table {table} of {stream}"
    return [
        *(each for each in found if not table or each.check.partition(",")[0] == own),
        *_check_progress(stream, read.get(stream)),
        reached,
        *topics,
        *appended,
        *group,
        *grants,
    ]


async def _check(settings: Settings) -> list[Finding]:
    kafka = await check_kafka(settings)
    read = await _records(settings) if kafka[0].ok else {}
    records = _readable(read)
    homes = await _check_homes(settings, records) if records else []
    unserved = await unserved_streams(settings) if kafka[0].ok else []
    keys = await check_keys(settings) if kafka[0].ok else []
    streams = await asyncio.gather(
        *(_check_stream(settings, name, records.get(name)) for name in settings.streams)
    )
    redis = await check_redis(settings.redis)
    listeners = await asyncio.to_thread(_check_listeners, settings)
    tokens = await asyncio.to_thread(_check_tokens, settings.http)
    return [
        # Before the advice on topics: more partitions in the other topics as well do not help these streams.
        *homes,
        *kafka,
        *keys,
        *(warning(f"stream {name}", format_unserved(name, settings.kafka.group_id)) for name in unserved),
        *tokens,
        redis,
        *(each for found in streams for each in found),
        *(each for name in settings.streams for each in _check_progress(name, read.get(name))),
        *listeners,
    ]


async def _check_homes(settings: Settings, records: Mapping[str, StateRecord]) -> list[Finding]:
    """Name the streams that belong to another partition than their events, after the topic has grown."""
    try:
        count = await partition_count(settings, settings.kafka.topic_names().events)
    except (KafkaError, UserError, TimeoutError, OSError):
        return []  # The checks of topics say why.
    found = {
        name: other_partition(record, partition_of(name, count))
        for name, record in records.items()
        if name in settings.streams
    }
    return [
        problem(f"partition of {name}", format_problem(moved, name)) for name, moved in found.items() if moved
    ]


def _check_tokens(http: HttpSettings) -> list[Finding]:
    """Check that each file of a token can be used; no finding if there is none."""
    if not http.token_files:
        return []
    try:
        read_tokens(http)
    except UnusableFile as error:
        return [problem("tokens", str(error))]
    return [fine("tokens", "each file of http.token_files has one token")]


def _check_listeners(settings: Settings) -> list[Finding]:
    """Check that each listener makes sense for its stream and its table."""
    wrong = {(stream, name): why for stream, name, why in refusals(settings, tables=True)}
    return [
        Finding(
            f"listener {name} of {stream}", (stream, name) not in wrong, wrong.get((stream, name), own.type)
        )
        for stream, each in settings.streams.items()
        for name, own in each.listeners.items()
    ]


def _check_progress(name: str, record: StateRecord | Problem | None) -> list[Finding]:
    """Name what stalls or delays a stream, as its coordinator last recorded it."""
    if isinstance(record, Problem):
        return [problem(f"state of {name}", format_problem(record, name))]
    conditions = record.conditions if record is not None else ()
    return [
        warning(f"state of {name}", format_problem(each.problem, name))
        for each in conditions
        if each.kind in ("stall", "retry")
    ]


async def _check_stream(
    settings: Settings, name: str, record: StateRecord | None, *, thorough: bool = False
) -> list[Finding]:
    """Check the table of a stream. Check again while the table is ahead of its state record.

    The coordinator writes the state record after the commit, so a short lead is normal. A table that still
    differs is compared with the log, which may have an order that no coordinator has applied yet.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        found, compared = await asyncio.to_thread(
            check_stream, name, settings.streams[name], record, thorough=thorough
        )
        if not any(each.ahead for each in compared) or time.monotonic() > deadline:
            break
        await asyncio.sleep(AGAIN)
        record = _readable(await _records(settings)).get(name, record)
    wrong = [each.finding for each in compared if not each.finding.ok]
    if not wrong or (newer := await _as_logged(settings, name)) is None:
        return found
    _, logged = await asyncio.to_thread(check_stream, name, settings.streams[name], newer)
    good = {each.finding.check: newer_log(each.finding, newer.state) for each in logged if each.finding.ok}
    return [good.get(each.check, each) if each in wrong else each for each in found]


async def _as_logged(settings: Settings, name: str) -> StateRecord | None:
    """Return the state as of the end of the log, None if the log cannot be read."""
    try:
        record = await known_record(settings, name)
        async with open_log(settings, name) as log:
            # The answers of the table in the record may be older than the orders in the log.
            update = {"state": log.replica.state, "applied": log.replica.applied, "table": TableProgress()}
            return record.model_copy(update=update)
    except (KafkaError, UserError, TimeoutError, OSError):
        return None


async def _records(settings: Settings) -> dict[str, StateRecord | Problem | None]:
    """Return the state records, or why one cannot be read; an empty mapping if Kafka cannot be read.

    Other checks report problems of Kafka and of the topics.
    """
    try:
        return {stream: each.record for stream, each in (await read_records(settings)).items()}
    except (KafkaError, UserError, TimeoutError, OSError):
        return {}


def _readable(records: Mapping[str, StateRecord | Problem | None]) -> dict[str, StateRecord]:
    return {name: record for name, record in records.items() if isinstance(record, StateRecord)}
