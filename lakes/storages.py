"""The storage of a location, by the scheme of its URI."""

import re
from typing import Final

from sluicegate.installation import install_command
from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.storage import Storage
from sluicegate.lakes.storage_local import LocalStorage, local_path

_OBJECTS: Final = re.compile(r"(?P<scheme>s3|gs|abfss)://(?P<bucket>[^/]*)(?P<path>.*)", re.DOTALL)
OBJECT_SCHEMES: Final = ("s3", "gs", "abfss")
_OTHER_NAMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasbs": "abfss"}
"""Schemes of other products for the same stores. Each table has one URI, so they are refused."""
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_CONTAINER: Final = re.compile(r"[a-z0-9$][a-z0-9-]{1,62}@[a-z0-9]{3,24}\.dfs\.core\.windows\.net")
_TWO_READINGS: Final = re.compile(r"[\x00-\x1f\x7f%?#\\]")
"""Characters that some readers decode or cut off, and that others take as they are."""


def location_uri(location: str) -> str:
    """Return the canonical URI of a table folder, as events contain it. Raises TableRefused."""
    scheme, separator, rest = location.partition("://")
    scheme = scheme.lower()
    if separator and scheme in _OTHER_NAMES:
        raise TableRefused(
            f"{scheme} is another name of {_OTHER_NAMES[scheme]}, and each table has one location. Write the "
            f"location with {_OTHER_NAMES[scheme]}://, for the coordinator and for all jobs"
        )
    found = _OBJECTS.fullmatch(f"{scheme}://{rest}") if separator else None
    return _object_uri(**found.groupdict()) if found else LocalStorage(local_path(location)).uri


def _object_uri(scheme: str, bucket: str, path: str) -> str:
    """Return the URI without empty parts and dots. Raises TableRefused if it can be read in two ways."""
    if not (_CONTAINER if scheme == "abfss" else _BUCKET).fullmatch(bucket):
        # The location is not shown: what stands in place of a bucket may be a password.
        form = "container@account.dfs.core.windows.net" if scheme == "abfss" else "bucket"
        raise TableRefused(
            f"a location in this object store must begin with {scheme}://{form}, without credentials or a "
            "port. Correct the location; the environment names those (docs/formats/object-stores.md)"
        )
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or _TWO_READINGS.search(path):
        raise TableRefused(
            f"the folder {path!r} of {scheme}://{bucket} can be read in two ways: it has '..', '%', '?', "
            "'#', a backslash or a control character. Use a folder without these"
        )
    return "/".join([f"{scheme}://{bucket}", *parts])


def open_storage(location: str) -> Storage:
    """Open the storage of a table folder, a path or a URI, without access to it. Raises TableRefused."""
    uri = location_uri(location)
    if uri.startswith("file:"):
        return LocalStorage(location)
    try:
        # The import takes a tenth of a second, and the package is an extra.
        from sluicegate.lakes.storage_objects import ObjectStorage, connect
    except ImportError as error:
        raise TableRefused(
            f"{uri} is in an object store, which needs a package that is not installed ({error.name}); "
            f"install it with: {install_command('object-stores')}"
        ) from error
    return ObjectStorage(uri, connect(uri))
