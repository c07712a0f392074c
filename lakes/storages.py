"""The storage of a location, by the scheme of its URI."""

from sluicegate.lakes.storage import Storage
from sluicegate.lakes.storage_local import LocalStorage, local_path


def location_uri(location: str) -> str:
    """Return the canonical URI of a table folder, as events contain it. Raises TableRefused."""
    return LocalStorage(local_path(location)).uri


def open_storage(location: str) -> Storage:
    """Open the storage of a table folder, a path or a URI, without access to it. Raises TableRefused."""
    return LocalStorage(location)
