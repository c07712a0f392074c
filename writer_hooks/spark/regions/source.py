"""Source of the rows that the regions divide."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sluicegate.writer_hooks.errors import BadOption
from sluicegate.writer_hooks.spark.regions.division import Division

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
