"""Division of a source into regions, as pure data."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from sluicegate.events.models import NAME_PATTERN
from sluicegate.writer_hooks.errors import BadOption

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
