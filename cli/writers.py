"""Writers: uploads that wait on this machine, and the contract for writers of other programs."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import click
from aiokafka import ConsumerRecord

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import partition_count, read_topic
from sluicegate.cli.main import Commands
from sluicegate.cli.options import (
    any_stream_option,
    config_option,
    json_option,
    parse_timeout,
    print_result,
    region_option,
)
from sluicegate.coordinator.replay.conformance import Raw, Trial, counts
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.dead_letters import Letter, read_letter
from sluicegate.texts import counted
from sluicegate.writer_hooks.errors import HookError, SpoolUnusable
from sluicegate.writer_hooks.options import default_spool
from sluicegate.writer_hooks.upload.process import ensure_uploader
from sluicegate.writer_hooks.upload.spool import (
    BadEntry,
    Entry,
    EntryName,
    Spool,
    existing_spool,
    format_way_back,
    read_entry,
    unusable,
)
from sluicegate.writer_hooks.upload.uploader import Credentials, Uploader, report_lost

_LOOK: Final = 0.1
_INCOMPLETE: Final = 1
"""Exit status of a drain after which something is not uploaded."""

spool_option = click.option(
    "--spool",
    default=None,
    metavar="DIR",
    help="The folder of the option upload.spool; default: that of the user.",
)


@click.group(cls=Commands)
def uploads() -> None:
    """List the files that wait on this machine, or upload them now."""


@uploads.command("list")
@spool_option
@json_option
def list_uploads(spool: str | None, as_json: bool) -> None:
    """List the attempts that wait for their upload, oldest first, each with the reason."""
    opened = _open(spool)
    found = [each for name in opened.names() if (each := _described(opened, name)) is not None]
    uploader = opened.has_uploader()
    lines = [
        f"{each['stream']} {each['region']} checkpoint {each['checkpoint']}: "
        f"{counted(each['files'], 'file')}, {counted(each['bytes'], 'byte')} for {each['storage']}, "
        f"for {each['seconds']:.0f} s: {each['reason']}"
        for each in found
    ]
    state = "an uploader runs" if uploader else "no uploader runs; the next task starts one"
    lines.append(f"waiting in {opened.folder}: {counted(len(found), 'attempt')}; {state}")
    print_result({"spool": opened.folder, "uploader": uploader, "waiting": found}, lines, as_json=as_json)


@uploads.command()
@spool_option
@click.option(
    "--timeout",
    default="600s",
    callback=parse_timeout,
    help="How long to try, such as 10m; the files that are left keep waiting.",
)
def drain(spool: str | None, timeout: float) -> None:
    """Upload everything that waits, before this machine goes away.

    An uploader that runs continues, and this command waits for it. It ends when nothing waits any more, else
    with status 1 and the files that could not be uploaded.
    """
    opened, began = _open(spool), time.time()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    until = time.monotonic() + timeout
    try:
        _drain(opened, lambda empty: empty or time.monotonic() >= until)
        left = [each for name in opened.names() if (each := _described(opened, name)) is not None]
        lost = opened.given_up(began)
    except OSError as error:
        raise UserError(str(unusable(opened.folder, error))) from error
    if left:
        # Tasks that saw this process upload have started no other one.
        ensure_uploader(opened)
    for each in left:
        place = f"{each['stream']} {each['region']} checkpoint {each['checkpoint']}"
        click.echo(f"not uploaded: {place}: {each['reason']}", err=True)
    for record in lost:
        click.echo(
            f"lost: {record.stream} {record.region} checkpoint {record.checkpoint}: {record.reason}", err=True
        )
    if left or lost:
        sys.exit(_INCOMPLETE)
    click.echo(f"nothing waits in {opened.folder}")


@uploads.command()
@spool_option
@click.option("--stream", required=True, help="The stream of the files.")
@click.option("--region", required=True, help="The region of the files.")
@click.option("--storage", metavar="URI", help="Only files for this folder, as `uploads list` shows it.")
@click.option("--unreported", is_flag=True, help="Also where Kafka does not take the report of the loss.")
def discard(spool: str | None, stream: str, region: str, storage: str | None, unreported: bool) -> None:
    """Give up files of one region that wait, to make room for others.

    Their loss is reported, so that the region stalls if a completed checkpoint needs them. A reset of the
    region then reads their rows again.
    """
    opened, credentials, done = _open(spool), Credentials(), 0
    found = dict(_waiting(opened, stream, region, storage))
    if len(folders := sorted({entry.storage for entry in found.values()})) > 1:
        raise UserError(
            f"files of region {region} of stream {stream} wait for several folders, perhaps of several "
            f"deployments: {', '.join(folders)}. Name one of them with --storage"
        )
    for name, entry in found.items():
        credentials.note(entry.connections(name.created))
        try:
            report_lost(opened, name, entry, "discarded by an operator", credentials)
        except HookError as error:
            if not unreported:
                raise UserError(
                    f"Kafka does not take the report of the loss ({error}). {counted(done, 'attempt')} "
                    "discarded. Make Kafka reachable, or discard the files with --unreported and reset the "
                    "region"
                ) from error
            opened.remove(name)
        done += 1
    click.echo(
        f"{counted(done, 'attempt')} discarded. If the region stalls, {format_way_back(stream, region)}"
    )


def _waiting(
    spool: Spool, stream: str, region: str, storage: str | None
) -> Iterator[tuple[EntryName, Entry]]:
    """Yield the entries of a region that can be read; `storage`: only those for this folder."""
    for name in spool.names():
        try:
            entry = read_entry(spool, name)
        except (BadEntry, OSError):
            continue
        if entry is None or (entry.about.stream, entry.about.region) != (stream, region):
            continue
        if storage in (None, entry.storage):
            yield name, entry


def _drain(spool: Spool, ends: Callable[[bool], bool]) -> None:
    """Upload, or wait for the process that does, until `ends` returns True; it learns if nothing waits."""
    while True:
        with spool.uploading() as mine:
            if mine:
                Uploader(spool).run(ends)
        if ends(not spool.names()):
            return
        time.sleep(_LOOK)


def _open(folder: str | None) -> Spool:
    try:
        return existing_spool(folder or default_spool())
    except SpoolUnusable as error:
        raise UserError(str(error)) from error


def _described(spool: Spool, name: EntryName) -> dict[str, Any] | None:
    """Return an entry for people; None if it was uploaded meanwhile."""
    try:
        entry = read_entry(spool, name)
    except (BadEntry, OSError) as error:
        return {
            **_of_name(name),
            "stream": "?",
            "region": "?",
            "storage": "?",
            "files": 0,
            "reason": str(error),
        }
    if entry is None:
        return None
    return {
        **_of_name(name),
        "stream": entry.about.stream,
        "region": entry.about.region,
        "storage": entry.storage,
        "files": len(entry.files),
        "reason": spool.reason(name) or "its turn has not come",
    }


def _of_name(name: EntryName) -> dict[str, Any]:
    return {
        "checkpoint": name.checkpoint,
        "bytes": name.size,
        "seconds": round(max(0.0, time.time() - name.created / 1e9), 1),
    }


# `sluicegate conformance`: hold the events of a foreign writer against the contract for writers.


@click.command()
@config_option
@any_stream_option
@region_option("Region of the writer.")
@click.option("--all", "whole", is_flag=True, help="Judge the whole log, not only the newest incarnation.")
@json_option
@click.pass_context
def conformance(
    context: click.Context, settings: Settings, stream: str, region: str, whole: bool, as_json: bool
) -> None:
    """Say what a writer of another program does wrong, by the events of its region in the log.

    Run a coordinator, let the writer do some checkpoints, and wait for the commits. The command reads the
    topics and changes nothing. It judges the events since the newest accepted incarnation of the region
    began, and counts the older violations. Its status is 0 if it saw a whole trial there and nothing is
    wrong, else 1.
    """
    trial = run_async(settings, read_trial(settings, stream, region))
    since = 0 if whole else trial.newest()
    violations, older = trial.finish(since), trial.older(since)
    seen = dict(sorted(counts(trial).items()))
    listed = [{"rule": each.rule, "detail": each.detail} for each in violations]
    values = {"stream": stream, "region": region, "seen": seen, "violations": listed, "older": older}
    lines = [
        "seen: " + (", ".join(f"{count} {kind}" for kind, count in seen.items()) or "nothing"),
        *(f"{each.rule}: {each.detail}" for each in violations),
        *([f"older: {counted(older, 'violation')} of earlier incarnations; see --all"] if older else []),
        counted(len(violations), "violation") if violations else "the writer keeps the contract",
    ]
    print_result(values, lines, as_json=as_json)
    context.exit(1 if violations else 0)


async def read_trial(settings: Settings, stream: str, region: str) -> Trial:
    """Read all topics to their ends. Raises KafkaError, UserError."""
    names = settings.kafka.topic_names()
    trial = Trial(stream, region, await partition_count(settings, names.events))
    async for record, readable in read_topic(settings, names.events):
        trial.read(_raw(record), readable=readable)
    async for record, _ in read_topic(settings, names.commits):
        trial.read_feed(_raw(record))
    async for record, _ in read_topic(settings, names.dead_letters):
        found = read_letter(record)
        if isinstance(found, tuple) and isinstance(found[1], Letter):
            trial.read_letter(found[1])
    if not trial.events and not trial.violations:
        raise UserError(
            f"{names.events} has no event of the region {region} of the stream {stream}. Let the writer "
            "publish first, or correct --stream and --region"
        )
    return trial


def _raw(record: ConsumerRecord) -> Raw:
    place = (record.partition, record.offset, record.timestamp)
    return Raw(*place, record.key, record.headers, record.value)
