"""Catalog in AWS Glue. The library makes the client; the requests and their outcomes are handled here.

A commit updates the entry under the condition that it still has the version that was read. So a change of
anything in the entry is a conflict. A request is never repeated: its first copy may have had its effect.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
)
from pyiceberg.catalog.glue import GlueCatalog as GlueLibrary

from sluicegate.lakes.capabilities import CatalogAccess
from sluicegate.lakes.iceberg.catalog import Identifier, NoTable, PointerCatalog, after_change, before_change
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import parse
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.storage import Uncertain

_LOCATION: Final = "metadata_location"
_PREVIOUS: Final = "previous_metadata_location"
_KIND: Final = "table_type"
_ICEBERG: Final = "ICEBERG"
_CONFLICT: Final = "ConcurrentModificationException"
_NOT_FOUND: Final = "EntityNotFoundException"
_EXISTS: Final = "AlreadyExistsException"
_UNCLEAR: Final = ("InternalServiceException", "OperationTimeoutException")
"""Errors after which a change may still appear, whatever the status of the answer is."""
_REFUSED: Final = range(400, 500)
"""Statuses of an answer to a request that had no effect."""
_NOT_SENT: Final = (
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
)
"""Errors before a request could be sent. All others may come after it."""
_FAILURES: Final = (BotoCoreError, ClientError, OSError, ValueError)


class _Entry(NamedTuple):
    """A table in the catalog, as it was read."""

    fields: Mapping[str, Any]
    location: str
    """Location of the metadata file that it names."""
    version: str
    """Version of the entry; each change of anything in it makes another one."""


class GlueCatalog(PointerCatalog):
    """One table in AWS Glue."""

    def __init__(
        self, options: Mapping[str, str], catalog: str, identifier: Identifier, files: Files
    ) -> None:
        """Prepare the access; nothing is connected yet. Raises TableRefused for nested namespaces."""
        super().__init__(identifier, files)
        if len(identifier.namespace) != 1:
            raise TableRefused(
                f"the name {identifier} has {len(identifier.namespace)} namespaces, but a table in Glue is "
                "in one database. Set the option identifier to DATABASE.TABLE"
            )
        self._options = dict(options)
        self._name = catalog
        self._database = identifier.namespace[0]
        self._made: Any = None
        self._entry: _Entry | None = None

    def access(self) -> CatalogAccess:
        meta = self._client.meta
        return CatalogAccess(f"AWS Glue in {meta.region_name}", meta.endpoint_url, "signatures of AWS")

    def create(self, fields: Mapping[str, Any], location: str) -> None:
        self._files.create(location, json.dumps(fields).encode())
        made = {
            "Name": self.identifier.name,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {_KIND: _ICEBERG, _LOCATION: location},
            "StorageDescriptor": {"Location": fields["location"]},
        }
        try:
            self._client.create_table(DatabaseName=self._database, TableInput=made)
        except _FAILURES as error:
            if _code(error) != _EXISTS:
                raise self._unavailable("made", error) from error
            # A proxy may have repeated a request that had succeeded. Then the entry names this very file.
            if self._read().location != location:
                self._files.discard([location])

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
            self._made = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            # One attempt: the number is that of repetitions.
            library = GlueLibrary(self._name, **{**self._options, "glue.max-retries": 0})
            self._made = library.glue
        return self._made

    def _location(self) -> str:
        self._entry = self._read()
        return self._entry.location

    def _read(self) -> _Entry:
        """Return the entry. Raises NoTable, LakeUnavailable, or TableRefused if it is no table of Iceberg."""
        try:
            answer = self._client.get_table(DatabaseName=self._database, Name=self.identifier.name)
        except _FAILURES as error:
            if _code(error) == _NOT_FOUND:
                raise NoTable from None
            raise self._unavailable("read", error) from error
        fields = answer["Table"]
        parameters = fields.get("Parameters") or {}
        location, version = parameters.get(_LOCATION), fields.get("VersionId")
        if parameters.get(_KIND, "").upper() != _ICEBERG or not location:
            raise TableRefused(
                f"{self.identifier} in Glue is no table of Iceberg: its parameter {_KIND} is "
                f"{parameters.get(_KIND)!r}, and {_LOCATION} is {location!r}. Correct the option identifier"
            )
        if not version:
            raise TableRefused(
                f"the catalog gives no version of {self.identifier}, so a change of it has no condition. "
                "Use AWS Glue, or a service that gives versions as it does"
            )
        return _Entry(fields, str(location), str(version))

    def _swap(self, old: str, new: str) -> bool:
        entry = self._entry
        if entry is None or entry.location != old:
            return False
        self._entry = None
        before_change()
        try:
            # All that can fail before the request is done.
            client = self._client
            changed = _changed(client, entry, new)
        except _FAILURES as error:
            raise self._unavailable("changed", error) from error
        try:
            client.update_table(
                DatabaseName=self._database, TableInput=changed, SkipArchive=True, VersionId=entry.version
            )
        except _FAILURES as error:
            if _code(error) == _CONFLICT:
                return self._overtaken(old, new, error)
            if _had_no_effect(error):
                raise self._unavailable("changed", error) from error
            raise Uncertain(str(self._unavailable("changed, perhaps", error))) from error
        after_change()
        return True

    def _overtaken(self, old: str, new: str, error: Exception) -> bool:
        """Return False if the refused change is certainly not in the table. Else raise Uncertain."""
        doubt = str(self._unavailable("changed, perhaps", error))
        try:
            # A proxy may have repeated a request that had succeeded.
            if self._is_absent(self._read(), old, new):
                return False
        except (LakeUnavailable, TableRefused, NoTable) as then:
            raise Uncertain(f"{doubt}; then: {then}") from then
        raise Uncertain(doubt) from error

    def _is_absent(self, found: _Entry, old: str, new: str) -> bool:
        """Return True if the new metadata file is certainly not in the history of an entry."""
        if found.location == new:
            return False
        previous = (found.fields.get("Parameters") or {}).get(_PREVIOUS)
        # The entry has another version, or another commit has followed the old file directly.
        if found.location == old or previous == old:
            return True
        # Several commits have followed. The newest file names the earlier ones, as far as they are kept.
        raw = self._files.read(found.location)
        if raw is None:
            return False
        log = parse(found.location, raw).fields.get("metadata-log") or ()
        names = {each.get("metadata-file") for each in log}
        return old in names and new not in names

    def _unavailable(self, what: str, error: Exception) -> LakeUnavailable:
        return LakeUnavailable(
            f"the entry of {self.identifier} in Glue cannot be {what}: {_words(error)}. See whether the "
            "service can be reached, and whether the region, the credentials and their rights are right"
        )


def _changed(client: Any, entry: _Entry, new: str) -> dict[str, Any]:
    """Return an entry as the request of a change takes it, with another metadata file."""
    shape = client.meta.service_model.operation_model("UpdateTable").input_shape
    taken = shape.members["TableInput"].members
    fields = {name: value for name, value in entry.fields.items() if name in taken}
    parameters = {**entry.fields["Parameters"], _LOCATION: new, _PREVIOUS: entry.location}
    return {**fields, "Parameters": parameters}


def _code(error: Exception) -> str:
    """Return the code of an answer, empty if there was none."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _had_no_effect(error: Exception) -> bool:
    """Return True if a request was not sent, or was refused."""
    if not isinstance(error, ClientError):
        return isinstance(error, _NOT_SENT)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in _REFUSED and _code(error) not in _UNCLEAR


def _words(error: Exception) -> str:
    """Return the text of an error. An answer about a signature repeats headers, and one may be a token."""
    code = _code(error)
    return code if "signature" in code.lower() else str(error).rstrip(".")
