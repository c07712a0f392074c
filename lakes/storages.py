"""The storage of a location, by the scheme of its URI."""

import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from sluicegate.installation import install_command
from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.storage import KeySource, Storage, Variables
from sluicegate.lakes.storage_local import LocalStorage, local_path

_OBJECTS: Final = re.compile(r"(?P<scheme>s3|gs|abfss)://(?P<bucket>[^/]*)(?P<path>.*)", re.DOTALL)
STORED_SCHEMES: Final = ("s3", "gs", "abfss", "hdfs")
"""Schemes whose files are reached through a storage alone."""
_HDFS: Final = "hdfs"
_OTHER_WAYS: Final = {
    "viewfs": "a mount table of each client decides which cluster has the table",
    "webhdfs": "HTTP has no rename that is certain after a lost answer",
    "swebhdfs": "HTTP has no rename that is certain after a lost answer",
}
"""Other ways to HDFS, and why they cannot be a location."""
_OTHER_NAMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasbs": "abfss"}
"""Schemes of other products for the same stores. Each table has one URI, so they are refused."""
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,253}(:[0-9]{1,5})?")
_CONTAINER: Final = re.compile(r"[a-z0-9$][a-z0-9-]{1,62}@[a-z0-9]{3,24}\.dfs\.core\.windows\.net")
_NAMENODE_PORT: Final = 8020
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
    if separator and scheme in _OTHER_WAYS:
        raise TableRefused(
            f"a location cannot begin with {scheme}://: {_OTHER_WAYS[scheme]}. Write it with hdfs:// and the "
            "address of the NameNode or the nameservice, for the coordinator and for all jobs"
        )
    if separator and scheme == _HDFS:
        return _hdfs_uri(*rest.partition("/")[::2])
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
    return _joined(f"{scheme}://{bucket}", path)


def _joined(root: str, path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or _TWO_READINGS.search(path):
        raise TableRefused(
            f"the folder {path!r} of {root} can be read in two ways: it has '..', '%', '?', "
            "'#', a backslash or a control character. Use a folder without these"
        )
    return "/".join([root, *parts])


def _hdfs_uri(authority: str, path: str) -> str:
    """Return the canonical URI of a folder in HDFS. Raises TableRefused."""
    if "@" in authority:
        # The location is not shown: it may contain a password.
        raise TableRefused(
            "a location in HDFS must not name a user. Correct the location; HADOOP_USER_NAME or Kerberos "
            "names the user (docs/formats/hdfs.md)"
        )
    if not authority:
        default = _hadoop_settings().get("fs.defaultFS", "")
        authority = default.removeprefix("hdfs://").rstrip("/") if default.startswith("hdfs://") else ""
    if not _AUTHORITY.fullmatch(authority):
        raise TableRefused(
            "a location in HDFS must begin with hdfs:// and the address of the NameNode or the nameservice, "
            "such as hdfs://namenode:8020/lake/orders. Correct the location, or set HADOOP_CONF_DIR to a "
            "folder whose core-site.xml has it as fs.defaultFS"
        )
    if ":" in path:
        raise TableRefused(
            f"the folder {path!r} of hdfs://{authority} has ':', which HDFS forbids in names. Use another "
            "folder"
        )
    return _joined(f"hdfs://{authority}", path)


def _namenode(authority: str) -> str:
    """Return what a client connects to: a nameservice of the settings, or a NameNode with its port."""
    if ":" in authority or f"dfs.ha.namenodes.{authority}" in _hadoop_settings():
        return authority
    return f"{authority}:{_NAMENODE_PORT}"


def _hadoop_settings() -> dict[str, str]:
    """Return the settings in HADOOP_CONF_DIR, none without it. Raises TableRefused if they cannot be read."""
    folder = os.environ.get("HADOOP_CONF_DIR")
    found: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml") if folder else ():
        path = Path(str(folder), name)
        try:
            # The file is the user's own.
            root = ElementTree.fromstring(path.read_bytes()) if path.exists() else ()  # noqa: S314
        except (OSError, ElementTree.ParseError) as error:
            raise TableRefused(f"{path} cannot be read ({error}). Correct it, or HADOOP_CONF_DIR") from error
        for each in root:
            found[(each.findtext("name") or "").strip()] = (each.findtext("value") or "").strip()
    return found


def open_storage(
    location: str, source: KeySource | None = None, variables: Variables = nullcontext
) -> Storage:
    """Open the storage of a table folder, a path or a URI, without access to it. Raises TableRefused.

    `source`: gives the keys of an object store, in place of the environment. Other storages have none.
    They are asked for later, and clients are made then, while `variables` is entered.
    """
    uri = location_uri(location)
    if uri.startswith("file:"):
        return LocalStorage(location)
    if uri.startswith("hdfs:"):
        return _open_hdfs(uri)
    try:
        # The import takes a tenth of a second, and the package is an extra.
        from sluicegate.lakes.storage_objects import Clients, KeyedClients, ObjectStorage, connect
    except ImportError as error:
        raise TableRefused(
            f"{uri} is in an object store, which needs a package that is not installed ({error.name}); "
            f"install it with: {install_command('object-stores')}"
        ) from error
    return ObjectStorage(
        uri, Clients(connect(uri)) if source is None else KeyedClients(uri, source, variables)
    )


def _open_hdfs(uri: str) -> Storage:
    try:
        from sluicegate.lakes.storage_hdfs import HdfsStorage
    except ImportError as error:
        raise TableRefused(
            f"{uri} is in HDFS, which needs a package that is not installed ({error.name}); "
            f"install it with: {install_command('hdfs')}"
        ) from error
    return HdfsStorage(uri, _namenode(uri.partition("://")[2].partition("/")[0]))
