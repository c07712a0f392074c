"""Facts of a table's partitions that marks need, and the settings that make no sense for them."""

from collections.abc import Iterable, Mapping
from typing import Final
from zoneinfo import ZoneInfo

from sluicegate.lakes.partition_layout import DescribesPartitions, PartitionField, PartitionLayout
from sluicegate.lakes.registry import capable
from sluicegate.listeners.mark_done.options import MarkDoneOptions
from sluicegate.listeners.mark_done.policy import Resolve
from sluicegate.listeners.mark_done.progress import Period
from sluicegate.listeners.mark_done.times import Rule, period_of, tokens
from sluicegate.listeners.port import ListenerRefused, Stream

_TRANSFORMS: Final = ("year", "month", "day", "hour")
_OTHER_ACTIONS: Final = "Use the actions mark-event, http-report or custom"


def read_layout(stream: Stream) -> PartitionLayout:
    """Return the partitions of a table. It blocks. Raises LakeError."""
    maintenance = stream.adapter.open_maintenance(stream.table)
    return capable(maintenance, DescribesPartitions, "marking partitions").partition_layout()


def in_order(values: Mapping[str, str | None], names: Iterable[str]) -> dict[str, str | None]:
    """Return the values of a partition in the order of the table's fields; an outcome has another one."""
    return {name: values[name] for name in (*names, *values) if name in values}


def check_actions(options: MarkDoneOptions, stream: Stream) -> None:
    """Raise ListenerRefused for an action that a format cannot have."""
    if "done-partition" in options.actions:
        raise ListenerRefused(
            f"the action done-partition needs partitions in a catalog, and {_partitions_of(stream.format)}. "
            "Use success-file for readers of folders, mark-event or http-report for schedulers, or custom "
            "with a function that calls your metastore"
        )


def _partitions_of(format: str) -> str:
    reasons = {
        "paimon": "a Paimon table that is written by path has none: tables of a metastore are refused "
        "(metastore.partitioned-table)",
        "iceberg": "catalogs of Iceberg have no partitions: they are in the metadata of the table",
        "delta": "a Delta table has its partitions in its log alone",
    }
    return reasons.get(format, f"the format {format} has none")


def check_layout(options: MarkDoneOptions, layout: PartitionLayout) -> None:
    """Raise ListenerRefused if the settings make no sense for the partitions of the table."""
    if not layout.fields:
        raise ListenerRefused("the table has no partitions, so none can be marked. Remove the listener")
    if "success-file" in options.actions and layout.no_folder is not None:
        raise ListenerRefused(
            f"the action success-file needs a folder for each partition, and the table has none: "
            f"{layout.no_folder}. {_OTHER_ACTIONS}"
        )
    if options.timestamp_pattern is not None:
        _check_pattern(options, layout)
    else:
        _check_field(options, layout)


def _check_pattern(options: MarkDoneOptions, layout: PartitionLayout) -> None:
    names = {field.name: field for field in layout.fields}
    try:
        used = [name for _, name in tokens(options.timestamp_pattern or "", names) if name is not None]
    except ValueError as error:
        raise ListenerRefused(f"{error}. Correct timestamp_pattern") from None
    if not used:
        raise ListenerRefused(
            f"timestamp_pattern has no column, so all partitions have one time. Use one of "
            f"{', '.join('$' + name for name in names)}"
        )
    if options.time_field is not None:
        raise ListenerRefused("time_field and timestamp_pattern exclude each other. Remove one")
    _need_interval(options)


def _need_interval(options: MarkDoneOptions) -> None:
    if options.interval is None:
        raise ListenerRefused(
            "the length of a partition is not known: its time comes from column values. Set interval, "
            'such as interval = "1 d" or interval = "1 month"'
        )


def _check_field(options: MarkDoneOptions, layout: PartitionLayout) -> None:
    field = _chosen(options, layout)
    if field is None:
        _check_timeless(options, layout)
    elif field.kind in _TRANSFORMS:
        if options.interval is not None or options.timestamp_formatter is not None:
            raise ListenerRefused(
                f"the partition field {field.name} is a transform, which has its own length and format. "
                "Remove interval and timestamp_formatter"
            )
        if field.zoned and options.time_zone != "UTC":
            raise ListenerRefused(
                f"the partition field {field.name} is made from times with a zone, so its parts are those of "
                "UTC. Remove time_zone"
            )
    elif field.kind == "identity":
        _need_interval(options)


def _chosen(options: MarkDoneOptions, layout: PartitionLayout) -> PartitionField | None:
    """Return the field that has the time; None if the clock alone decides. Raises ListenerRefused."""
    names = ", ".join(field.name for field in layout.fields)
    if options.time_field is not None:
        found = [field for field in layout.fields if field.name == options.time_field]
        if not found:
            raise ListenerRefused(
                f"the table has no partition field {options.time_field}; it has {names}. Correct time_field"
            )
        if found[0].kind == "opaque":
            raise ListenerRefused(
                f"the values of the partition field {options.time_field} have no time, such as the number of "
                "a bucket. Name another one in time_field"
            )
        return found[0]
    if options.trigger == "processing-time" and options.interval is None and not _timed(layout):
        return None
    candidates = _timed(layout) or [field for field in layout.fields if field.kind == "identity"]
    if not candidates:
        raise ListenerRefused(
            f"the values of the partition fields {names} have no time. Partition the table by a time, or use "
            'trigger = "processing-time" without interval'
        )
    if len(candidates) > 1:
        raise ListenerRefused(
            f"the partition fields {', '.join(each.name for each in candidates)} could have the time. Set "
            "timestamp_pattern, or time_field if one of them has it"
        )
    return candidates[0]


def _check_timeless(options: MarkDoneOptions, layout: PartitionLayout) -> None:
    if options.timestamp_formatter is not None:
        raise ListenerRefused(
            "timestamp_formatter needs interval: the length of a partition. Set both, or none"
        )


def _timed(layout: PartitionLayout) -> list[PartitionField]:
    return [field for field in layout.fields if field.kind not in ("identity", "opaque")]


def resolver(options: MarkDoneOptions, fields: Mapping[str, PartitionField]) -> Resolve:
    """Return the way from the values of a partition to its period."""
    rule = Rule(
        options.timestamp_pattern,
        options.parse,
        options.length,
        ZoneInfo(options.time_zone),
        options.time_field,
    )
    plain = options.timestamp_pattern is None and options.time_field is None and options.interval is None
    timed = any(field.kind not in ("identity", "opaque") for field in fields.values())
    if options.trigger == "processing-time" and plain and not timed:
        return lambda _: None

    def resolve(values: Mapping[str, str | None]) -> Period:
        return period_of(values, fields, rule)

    return resolve
