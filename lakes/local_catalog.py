"""Options for a try on one machine: a format may need a catalog, and have one in a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable


@runtime_checkable
class HasLocalCatalog(Protocol):
    """Capability of an adapter: its tables need a catalog, which may be a file. `sluicegate up` uses it."""

    def with_local_catalog(self, options: Mapping[str, str], folder: Path) -> dict[str, str]:
        """Return the options, with a catalog in the folder if they name none."""
        ...
