"""Division of a source into regions, as pure data."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from sluicegate.events.models import NAME_PATTERN
from sluicegate.writer_hooks.errors import BadOption, HookError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# --- errors of the runner -----------------------------------------------------------------------------


class RegionsFailed(HookError):
    """At least one region failed for good; the text has the error of each."""


class BaseInUse(HookError):
    """Another runner has the base location."""


class DivisionRefused(HookError):
    """The runner cannot change to this division. No region was closed, and no plan was written."""


class RunnerStopped(HookError):
    """The runner was stopped before it had finished a change of the division. The next run continues it."""


_NAME: Final = re.compile(NAME_PATTERN)
_GLOB: Final = re.compile(r"[*?\[\]{}]")

Values = Mapping[str, Sequence[str | int]]


class Division(BaseModel):
    """Which rows each region has. Every row of the source belongs to exactly one region.

    Make one with `by_column`, `by_path` or `by_partition`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["column", "path", "partition"]
    regions: tuple[str, ...]
    column: str | None = None
    values: dict[str, tuple[str, ...]] = {}
    """By column: the values of each region, as texts; the rest region has none."""
    rest: str | None = None
    """By column: region of all other values, null among them."""
    paths: dict[str, str] = {}
    """By path: the folder of each region."""

    def is_same_as(self, other: "Division") -> bool:
        """Return True if each region has the same rows in both. Only partitions depend on the order."""
        return self._canonical() == other._canonical()

    def _canonical(self) -> tuple[object, ...]:
        names = self.regions if self.kind == "partition" else tuple(sorted(self.regions))
        values = {name: frozenset(own) for name, own in self.values.items()}
        return self.kind, names, self.column, values, self.rest, self.paths


def by_column(column: str, values: Values, *, rest: str) -> Division:
    """Divide rows by the text of a column's value: `{"EWR": ["EWR"], "NYC": ["JFK", "LGA"]}`.

    `rest` is the region of the rows with any other value, null among them. Raises BadOption.
    """
    texts = {name: tuple(str(value) for value in own) for name, own in values.items()}
    listed = [value for own in texts.values() for value in own]
    doubled = sorted({value for value in listed if listed.count(value) > 1})
    if doubled:
        raise BadOption(
            f"several regions have the value {doubled[0]!r} of the column {column}, so its rows would be "
            "written several times; keep it in one region"
        )
    if empty := [name for name, own in texts.items() if not own]:
        raise BadOption(
            f"the region {empty[0]} has no value of the column {column}; remove it, or give it one"
        )
    if rest in texts:
        raise BadOption(f"the rest region {rest} has values of its own; choose another name for the rest")
    return Division(kind="column", regions=_names([*texts, rest]), column=column, values=texts, rest=rest)


def by_path(paths: Mapping[str, str]) -> Division:
    """Divide a source of files by folders: `{"EWR": "/in/EWR", "JFK": "/in/JFK"}`. Raises BadOption."""
    found = {name: _normalised(name, path) for name, path in paths.items()}
    for name, path in found.items():
        if _GLOB.search(path):
            raise BadOption(
                f"the path of the region {name} is a pattern, so a file could belong to two regions: {path}; "
                "name a folder"
            )
        for other, held in found.items():
            if other != name and f"{_alias(path)}/".startswith(f"{_alias(held).rstrip('/')}/"):
                raise BadOption(
                    f"the path of the region {name} is inside of the one of {other}, so its files would be "
                    f"written twice: {path}; give folders that do not contain each other"
                )
    return Division(kind="path", regions=_names(found), paths=found)


def by_partition(count: int, *, prefix: str = "p") -> Division:
    """Divide a Kafka source by partition number modulo `count`, into regions p0, p1, ... Raises BadOption."""
    if count < 1:
        raise BadOption(f"by_partition needs a number of regions above 0: {count}")
    return Division(kind="partition", regions=_names([f"{prefix}{each}" for each in range(count)]))


def assigned(division: Division, region: str, topics: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the partitions of a region, by topic; `topics` has the number of partitions of each."""
    count, own = len(division.regions), division.regions.index(region)
    found = {
        topic: [each for each in range(number) if each % count == own] for topic, number in topics.items()
    }
    return {topic: partitions for topic, partitions in found.items() if partitions}


def _normalised(name: str, path: str) -> str:
    """Return the one spelling of a folder: names of its files are compared with it. Raises BadOption."""
    if any(each in path for each in "#%?") or ".." in path.split("/"):
        raise BadOption(
            f"the path of the region {name} has `#`, `%`, `?` or `..`, so the names of its files may be "
            f"spelled otherwise: {path}; give a folder without them"
        )
    if not path.startswith("/") and "://" not in path:
        raise BadOption(
            f"the path of the region {name} is not absolute: {path}; give a path from the root, or a URI "
            "with `://`"
        )
    scheme, separator, rest = path.rpartition("://")
    host, slash, below = rest.partition("/") if separator else ("", "/", path.lstrip("/"))
    kept = "/".join(part for part in below.split("/") if part not in ("", "."))
    return f"{scheme}{separator}{host}{slash}{kept}" if kept else f"{scheme}{separator}{host}/"


def _alias(path: str) -> str:
    """Return a path with one name for a scheme that has several."""
    return re.sub(r"^file:/*", "/", re.sub(r"^s3[an]?://", "s3://", path))


def _names(names: Sequence[str] | Mapping[str, str]) -> tuple[str, ...]:
    found = tuple(names)
    if not found:
        raise BadOption("a division needs at least one region")
    for name in found:
        if not _NAME.match(name):
            raise BadOption(
                f"the name of a region is invalid: {name!r}; it has letters, digits, dots, underscores and "
                "hyphens"
            )
    return found


# --- the source that is divided -----------------------------------------------------------------------

Transform = Callable[["DataFrame"], "DataFrame"]

FILES: Final = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
KAFKA: Final = "kafka"
_TOPICS: Final = ("assign", "subscribe", "subscribepattern")

_TIMED: Final = ("startingTimestamp", "startingOffsetsByTimestamp")


@dataclass(frozen=True)
class Source:
    """Format and options of `spark.readStream`, as the runner needs them to divide the source itself."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: Any = None
    """Schema of a source of files: DDL text or a StructType."""
    transform: Transform | None = None
    """Function from the rows of the source to the rows of the table; it must be deterministic."""
    connection: Mapping[str, str] | None = None
    """Kafka options, named as those of the sink, to list the partitions of a Kafka source.

    None: those of the sink, with the source's own `kafka.bootstrap.servers`.
    """

    def option(self, name: str) -> str | None:
        """Return an option, whose name may be in any case."""
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), None)

    def read(self, spark: "SparkSession", more: Mapping[str, str], path: str | None = None) -> "DataFrame":
        """Return the streaming rows; `more` are further options, which replace those of the same name."""
        names = {name.lower() for name in more}
        if "assign" in names:
            names.update(_TOPICS)
        kept = {name: value for name, value in self.options.items() if name.lower() not in names}
        reader = spark.readStream.format(self.format).options(**{**kept, **more})
        if self.schema is not None:
            reader = reader.schema(self.schema)
        rows = reader.load() if path is None else reader.load(path)
        return rows if self.transform is None else self.transform(rows)

    @property
    def identity(self) -> str:
        """Return a text that is another one for another source."""
        listed = ",".join(sorted(self.topics())) if self.option("subscribe") else ""
        return f"{self.format.lower()} {listed}".strip()

    def topics(self) -> list[str]:
        """Return the topics of a Kafka source. Raises BadOption."""
        listed = self.option("subscribe")
        topics = [each.strip() for each in (listed or "").split(",") if each.strip()]
        if not topics:
            raise BadOption(
                "a Kafka source that is divided by partitions needs the option subscribe with the names of "
                "its topics; the runner replaces it by the option assign of each region"
            )
        return topics


Rows = Callable[["SparkSession"], "DataFrame"]
"""Function of the session that returns the streaming rows."""


def identity_of(source: Source | Rows) -> str | None:
    """Return the identity of a source, None for a function."""
    return source.identity if isinstance(source, Source) else None


def require_divisible(source: Source | Rows, division: Division) -> None:
    """Raise BadOption if the source cannot be divided in this way."""
    if not isinstance(source, Source):
        if division.kind != "column":
            raise BadOption(
                f"a division by {division.kind} needs a Source(format, options), so that the runner can set "
                "its options; a function that returns rows can be divided by a column alone"
            )
        return
    if division.kind == "path" and (source.option("fileNameOnly") or "").lower() == "true":
        raise BadOption(
            "with the option fileNameOnly, Spark takes files of one name in two folders for one file, so "
            "rows would be lost; leave it out"
        )
    timed = next((name for name in _TIMED if source.option(name) is not None), None)
    if timed is not None and source.format.lower() == KAFKA and source.option("subscribe") is not None:
        raise BadOption(
            f"Spark prefers the option {timed} of a Kafka source to the offsets that the runner states, so "
            "rows would be read twice after a change of the division; use startingOffsets"
        )
    if division.kind == "path" and source.format.lower() not in FILES:
        raise BadOption(
            f"the source {source.format} has no paths; by_path needs one of {', '.join(FILES)}. Divide it "
            "with by_column"
        )
    if division.kind == "partition":
        if source.format.lower() != KAFKA:
            raise BadOption(
                f"the source {source.format} has no partitions of Kafka; by_partition needs {KAFKA}. Divide "
                "it with by_column"
            )
        source.topics()


def divided(rows: "DataFrame", division: Division, region: str) -> "DataFrame":
    """Return the rows of a region, by the text of its column. Each row is in exactly one region."""
    from pyspark.sql.functions import coalesce, col, lit

    text = col(division.column or "").cast("string")
    if region == division.rest:
        listed = [value for own in division.values.values() for value in own]
        return rows.where(~coalesce(text.isin(listed), lit(False)))
    return rows.where(coalesce(text.isin(list(division.values[region])), lit(False)))
