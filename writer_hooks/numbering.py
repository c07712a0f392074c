"""Sequence numbers of a region's rows, for tables with keys (`lakes/sequence.py` says why they are needed).

The driver reads the floor of its incarnation from the table, after the registration is accepted. From then on
the numbers of a checkpoint depend on its own number alone, also after a restart of a query, whose floor is in
its checkpoint location. A restart that computed them from the table again would give numbers below those of
checkpoints that are planned and not committed.
"""

from collections.abc import Sequence
from itertools import pairwise

from sluicegate.lakes.sequence import Keys, Numbers, checkpoint_numbers, writes_keys
from sluicegate.writer_hooks.errors import BadOption, NotOurs
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.writer import WriterResult


def keys_of(options: SinkOptions) -> Keys | None:
    """Return the properties of the stream's table if it has keys, else None.

    Raises BadOption if the stream has several regions, TableRefused or LakeUnavailable.
    """
    adapter, region = options.target(options.only).adapter, options.region
    if options.only or not writes_keys(adapter):
        return None
    keys = adapter.keys(options.table_ref())
    if keys is not None and len(region.assignment.regions) > 1:
        raise BadOption(
            f"the option regions lists {len(region.assignment.regions)} regions, but the table of the stream "
            f"{region.stream} has a primary key: rows of two regions have no order. Leave the option out, "
            "and write the stream with one region"
        )
    return keys


def read_floor(options: SinkOptions, keys: Keys | None) -> int | None:
    """Return the highest number in a table with keys, the floor of an incarnation that begins; else None.

    Raises as `keys_of`. It may read for long, and has to follow the registration.
    """
    adapter = options.target(options.only).adapter
    if keys is None or not writes_keys(adapter):
        return None
    return adapter.highest_number(options.table_ref())


def numbers_of(floor: int | None, place: int) -> Numbers | None:
    """Return the numbers of a checkpoint by its place after the base. Raises TableRefused."""
    return None if floor is None else checkpoint_numbers(floor, place)


def require_field_order(options: SinkOptions) -> None:
    """Raise BadOption if two tasks of a batch could write rows of one key in an order that nobody decides."""
    keys = keys_of(options)
    if keys is not None and not keys.is_ordered:
        raise BadOption(
            f"the table {options.table} has a primary key and no sequence.field, so the order of its rows "
            "decides, and two tasks may have rows of one key. Set the option sequence.field of the table, "
            "or write with ForeachBatch, which gives all rows of a bucket to one task"
        )


def require_one_writer(results: Sequence[WriterResult]) -> None:
    """Check that no two writers of a checkpoint have a number, or a bucket, in common. Raises NotOurs.

    Only tables with keys have such numbers. Their rows with one key are in one bucket, and their numbers are
    all that orders them, unless a column does. Then no writer states its buckets.
    """
    ranges = sorted((each.written.numbers, each.attempt.writer) for each in results if each.written.numbers)
    for (one, before), (other, after) in pairwise(ranges):
        if one[1] > other[0]:
            raise NotOurs(
                f"the writers {before} and {after} have sequence numbers in common, so rows with one key "
                "would have no order. Give each writer of the checkpoint another part: part=(number, writers)"
            )
    owners: dict[int, str] = {}
    for each in results:
        for bucket in each.written.buckets:
            owner = owners.setdefault(bucket, each.attempt.writer)
            if owner != each.attempt.writer:
                raise NotOurs(
                    f"the writers {owner} and {each.attempt.writer} both have rows of bucket {bucket}, and "
                    "the table has no sequence.field to order them. Give all rows of a bucket to one writer: "
                    "OpenCheckpoint.split(rows, writers) divides them"
                )
