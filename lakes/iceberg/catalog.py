"""The port to a catalog: the metadata that a table has, and the one conditional change of it."""

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes.capabilities import CatalogAccess
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import Change, Metadata, parse
from sluicegate.lakes.iceberg.vended import OPTION, VENDED, asking
from sluicegate.lakes.port import LakeUnavailable, TableRef, TableRefused
from sluicegate.lakes.storage import Uncertain

DEFAULT_CATALOG: Final = "default"
_OWN: Final = ("identifier", "catalog", "branch", "transactions")
_OF_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "sql": ("type", "uri"),
    "glue": (
        "type",
        "client.profile-name",
        "client.region",
        "glue.endpoint",
        "glue.id",
        "glue.profile-name",
        "glue.region",
    ),
}
"""Options by the kind of the catalog; those of REST catalogs are the library's."""
_NAMES: Final = {"sql": "an SQL catalog", "glue": "a catalog in Glue"}
_OF_STORAGE: Final = re.compile(r"(s3|s3a|gcs|adls|oss|hdfs|hf)\..*|(py-)?io-impl", re.IGNORECASE)
"""Options of REST catalogs with which other products reach the storage."""
_UPSERTS: Final = re.compile(r"upsert|equality|primary.?key|identifier.field", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Identifier:
    """Name of a table in its catalog."""

    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((*self.namespace, self.name))


class NoTable(Exception):
    """The catalog has no table of this name."""


class StateMissing(LakeUnavailable):
    """Nothing is where the state of the table should be: it is away, or lost."""


def missing_table(identifier: Identifier) -> TableRefused:
    """Return the error of a further table that the catalog does not have."""
    return TableRefused(
        f"the catalog has no table {identifier}. Make it if it is new. If it was dropped or renamed, "
        "register its newest metadata file under that name (register_table), correct the name in the "
        "settings, or leave it out of them"
    )


class Catalog(Protocol):
    """One table in a catalog. Methods block; Uncertain and LakeUnavailable are as in the port."""

    identifier: Identifier
    reads_files: bool
    """True if the metadata file that the entry names is the state, False if the catalog answers it."""

    def load(self) -> Metadata:
        """Return the current state. Raises NoTable, LakeUnavailable, or TableRefused for damaged metadata."""
        ...

    def commit(self, base: Metadata, change: Change, files: Mapping[str, bytes]) -> bool:
        """Change the table: a snapshot on exactly the head that it names, a schema after the current
        one, or a tag.

        `files`: new files that the snapshot refers to, by location. They are durable before it is visible.
        They are discarded as soon as the change is certainly not there, and can not get there any more.

        Return False if the table has changed since `base`: then nothing is visible. Raises LakeUnavailable
        if certainly nothing is visible, Uncertain if that is unknown, TableRefused if it never will be.
        """
        ...

    def create(self, fields: Mapping[str, Any], location: str) -> None:
        """Make the table with this metadata, unless it exists. Raises LakeUnavailable."""
        ...

    def access(self) -> CatalogAccess:
        """Describe the access, and try a change of nothing under a condition. Raises LakeUnavailable."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


@runtime_checkable
class HasSiblings(Protocol):
    """A catalog's access to one table, from which that to another one is made."""

    def sibling(self, identifier: Identifier, files: Files) -> Catalog:
        """Return another table of this catalog, over the same connections, which it does not close."""
        ...


def before_change() -> None:
    """Mark the point right before the one change that makes a commit visible. Raises LakeUnavailable."""
    try:
        hit(Failpoint.LAKE_PUT_BEFORE)
    except OSError as error:
        raise LakeUnavailable(f"the catalog was not changed: {error}") from error


def after_change() -> None:
    """Mark the points right after that change. Raises Uncertain."""
    try:
        hit(Failpoint.LAKE_PUT_AFTER)
        hit(Failpoint.LAKE_PUT_DURABLE)
    except OSError as error:
        raise Uncertain(f"the catalog was changed, perhaps: {error}") from error


def discard_overtaken(files: Files, locations: Iterable[str]) -> None:
    """Delete the files of a change that another one has overtaken; never fails."""
    hit(Failpoint.LAKE_DISCARD_BEFORE)
    files.discard(locations)
    hit(Failpoint.LAKE_DISCARD_AFTER)


def identifier_of(table: TableRef) -> Identifier:
    """Return the name of a table in its catalog: the option `identifier`, else the end of its location.

    Raises TableRefused if there is neither.
    """
    text = table.options.get("identifier", "")
    parts = text.split(".") if text else table.location.rstrip("/").split("/")[-2:]
    if not text and len(parts) == 2:
        # Hive-like warehouses give the folder of a namespace this ending.
        parts[0] = parts[0].removesuffix(".db")
    if len(parts) < 2 or not all(parts):
        raise TableRefused(
            f"the option identifier of the table {table.name} must be NAMESPACE.TABLE, as in the catalog"
        )
    return Identifier(tuple(parts[:-1]), parts[-1])


def check_options(table: TableRef) -> None:
    """Raise TableRefused for options that would be ignored: each must mean something here."""
    options = catalog_options(table)
    upserts = sorted(key for key in options if _UPSERTS.search(key))
    if upserts:
        raise TableRefused(
            f"the option {upserts[0]} of {table.name} is not supported: a commit here only appends, so rows "
            "with one key would be there twice. Remove the option, and merge the rows after the commit"
        )
    asked = asking(options)
    if asked and (options["type"] != "rest" or len(asked) > 1 or options[asked[0]].strip().lower() != VENDED):
        raise TableRefused(
            f"the option {asked[0]} of {table.name} asks a catalog for keys of the storage. It is for REST "
            f"catalogs, is written {OPTION}, and its value must be {VENDED}: requests that the catalog signs "
            "(remote-signing) are not supported. Correct or remove it"
        )
    of_storage = sorted(key for key in options if _OF_STORAGE.fullmatch(key))
    if of_storage:
        raise TableRefused(
            f"the option {of_storage[0]} of {table.name} has no meaning here: addresses and credentials of "
            "the storage come from the environment of each process, or from a REST catalog with the option "
            f"{OPTION} (docs/formats/object-stores.md). Remove the option, and set the variables"
        )
    kind = options.get("type", "sql")
    known = _OF_KIND.get(kind)
    unknown = sorted(options.keys() - set(known)) if known is not None else []
    if known is not None and unknown:
        raise TableRefused(
            f"the option {unknown[0]} of {table.name} has no meaning for {_NAMES[kind]}; the options are "
            f"{', '.join((*known, *_OWN))}. {_meant(unknown[0], (*known, *_OWN))}Correct or remove it"
        )


def _meant(name: str, known: Iterable[str]) -> str:
    """Return a question with the option that a name resembles, empty if it resembles none."""
    close = difflib.get_close_matches(name.lower(), [*known], n=1)
    return f"Did you mean {close[0]}? " if close else ""


def catalog_options(table: TableRef) -> dict[str, str]:
    """Return the options that are the catalog's own."""
    return {key: value for key, value in table.options.items() if key not in _OWN}


# Catalogs that keep no more of a table than the location of its metadata file.
#
# A commit writes a metadata file, and replaces its name in the catalog if that is still the former one.

_TRIES: Final = 3


class Written(NamedTuple):
    """A change whose files are durable, and which nothing refers to yet."""

    base: Metadata
    made: Metadata
    files: tuple[str, ...]
    """Locations of all new files."""


class PointerCatalog(ABC):
    """One table, whose catalog entry names its metadata file."""

    reads_files = True

    def __init__(self, identifier: Identifier, files: Files) -> None:
        self.identifier = identifier
        self._files = files
        self._known: Metadata | None = None

    def load(self) -> Metadata:
        return self.load_at(self._location())

    def load_at(self, location: str) -> Metadata:
        """Return the state whose metadata file the entry was seen to name. Raises as `load` does."""
        # Maintenance may delete an old metadata file between the two reads.
        for number in range(_TRIES):
            location = self._location() if number else location
            if self._known is not None and self._known.location == location:
                return self._known
            raw = self._files.read(location)
            if raw is not None:
                self._known = parse(location, raw)
                return self._known
        raise StateMissing(
            f"{location}, the metadata of {self.identifier}, is not there. Mount the storage of the "
            "table, or restore the file"
        )

    def commit(self, base: Metadata, change: Change, files: Mapping[str, bytes]) -> bool:
        written = self.write(base, change, files)
        try:
            swapped = self._swap(base.location, written.made.location)
        except LakeUnavailable:
            self.discard(written)
            raise
        if swapped:
            self.swapped(written)
        else:
            discard_overtaken(self._files, written.files)
        return swapped

    def write(self, base: Metadata, change: Change, files: Mapping[str, bytes]) -> "Written":
        """Write everything of a change but the entry. Raises LakeUnavailable, and leaves nothing then."""
        made = base.after(change, base.next_location(change))
        new = {**files, made.location: made.render()}
        try:
            # Written together, most of them are in one folder, which is synced once. A write that fails
            # may have had its effect, with all answers lost.
            self._files.write(new)
        except LakeUnavailable:
            self._files.discard(new)
            raise
        return Written(base, made, tuple(new))

    def swapped(self, written: "Written") -> None:
        """Note that the entry names the new metadata file."""
        self._known = written.made
        self._files.discard(written.made.superseded(written.base))

    def discard(self, written: "Written") -> None:
        """Delete the files of a change that certainly never becomes visible."""
        self._files.discard(written.files)

    @abstractmethod
    def _location(self) -> str:
        """Return the location that the entry names. Raises NoTable, LakeUnavailable or TableRefused."""

    @abstractmethod
    def _swap(self, old: str, new: str) -> bool:
        """Replace the name of the metadata file, the one step that decides a commit.

        Return False if the entry has changed since it named `old` and the new name is certainly not in it.
        Raises LakeUnavailable if certainly nothing is visible, Uncertain if that is unknown.
        """
