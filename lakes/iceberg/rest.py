"""Catalog behind Iceberg's REST protocol. The library does the connection and its authentication.

A commit is one request, with the conditions that the table is the same and that the branch ends in the
snapshot that was asked. It is never repeated: a server may have carried it out although its answer was lost.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.catalog.rest import Endpoints, RestCatalog
from pyiceberg.exceptions import RESTError
from requests import RequestException, Response
from requests.exceptions import ConnectionError as NoConnection
from requests.exceptions import ConnectTimeout
from urllib3.exceptions import NewConnectionError

from sluicegate.lakes.iceberg.catalog import Identifier, NoTable, after_change, before_change
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import Append, Metadata, from_fields
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Uncertain

TIMEOUT: Final = (10.0, 60.0)
"""Seconds for a connection, and for an answer."""

_OK: Final = 200
_UNCHANGED: Final = 304
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_EXPIRED: Final = (401, 419)
_SERVER: Final = 500


class _NotSent(LakeUnavailable):
    """The connection failed before the request could be sent, so it certainly had no effect."""


class RestTable:
    """One table behind a REST catalog."""

    def __init__(
        self, options: Mapping[str, str], catalog: str, identifier: Identifier, files: Files
    ) -> None:
        """Prepare the access; nothing is connected yet."""
        self._options = dict(options)
        self._name = catalog
        self._identifier = identifier
        self._files = files
        self._library: RestCatalog | None = None
        self._known: Metadata | None = None
        self._tag = ""
        """Version of the known state, as the server names it."""

    def load(self) -> Metadata:
        headers = {"If-None-Match": self._tag} if self._tag and self._known is not None else {}
        answer = self._send("GET", Endpoints.load_table, headers=headers)
        if answer.status_code in _EXPIRED:
            self._renew()
            answer = self._send("GET", Endpoints.load_table)
        if answer.status_code == _UNCHANGED and self._known is not None:
            return self._known
        if answer.status_code == _NOT_FOUND:
            raise NoTable
        if answer.status_code != _OK:
            raise self._refusal("read", answer)
        return self._learned(answer)

    def commit(self, base: Metadata, change: Append, files: Mapping[str, bytes]) -> bool:
        self._files.write(files)
        before_change()
        try:
            answer = self._send("POST", Endpoints.update_table, _request(base, change))
        except _NotSent:
            raise
        except LakeUnavailable as error:
            raise Uncertain(str(error)) from error
        code = answer.status_code
        if code == _OK:
            after_change()
            try:
                self._learned(answer)
            except LakeUnavailable:
                # The commit is there, and the next load reads it.
                self._known, self._tag = None, ""
            return True
        if code >= _SERVER:
            raise Uncertain(str(self._refusal("changed, perhaps", answer)))
        # A proxy may have repeated a request that had succeeded: then the repetition is refused.
        self._check_absent(change, answer)
        if code == _CONFLICT:
            return False
        raise self._refusal("changed", answer)

    def create(self, fields: Mapping[str, Any], location: str) -> None:
        self._files.write({location: json.dumps(fields).encode()})
        body = {"name": self._identifier.name, "metadata-location": location}
        answer = self._send("POST", Endpoints.register_table, body)
        if answer.status_code not in (_OK, _CONFLICT):
            raise self._refusal("made", answer)

    def close(self) -> None:
        if self._library is not None:
            self._library.close()

    def _check_absent(self, change: Append, answer: Response) -> None:
        """Raise Uncertain if the snapshot of a refused commit is there, or if that cannot be found out."""
        self._known, self._tag = None, ""
        try:
            there = change.snapshot["snapshot-id"] in self.load().by_id
        except (LakeUnavailable, NoTable) as error:
            raise Uncertain(f"{self._refusal('changed, perhaps', answer)}; then: {error}") from error
        if there:
            raise Uncertain(str(self._refusal("changed twice", answer)))

    def _learned(self, answer: Response) -> Metadata:
        """Return the state that an answer contains. Raises LakeUnavailable if it contains none."""
        try:
            body = answer.json()
            location = str(body.get("metadata-location") or f"{self._identifier}#{uuid.uuid4()}")
            self._known = from_fields(location, body["metadata"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LakeUnavailable(
                f"the catalog's answer for {self._identifier} has no metadata of a table: {error!r}. See "
                f"whether {self._options.get('uri')} is a REST catalog"
            ) from error
        self._tag = answer.headers.get("ETag", "")
        return self._known

    def _send(
        self,
        method: str,
        endpoint: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send one request. Raises LakeUnavailable if there is no answer."""
        library = self._connected()
        identifier = (*self._identifier.namespace, self._identifier.name)
        url = library.url(endpoint, prefixed=True, **library._split_identifier_for_path(identifier))
        try:
            return library._session.request(
                method,
                url,
                data=None if body is None else json.dumps(body).encode(),
                headers=dict(headers or {}),
                timeout=TIMEOUT,
            )
        except (RequestException, OSError) as error:
            kind = _NotSent if _was_not_sent(error) else LakeUnavailable
            raise kind(self._unreachable(error)) from error

    def _connected(self) -> RestCatalog:
        """Return the library's connection. Raises LakeUnavailable."""
        if self._library is None:
            try:
                self._library = RestCatalog(self._name, **self._options)
            except (RESTError, RequestException, OSError, ValueError) as error:
                raise _NotSent(self._unreachable(error)) from error
        return self._library

    def _renew(self) -> None:
        """Ask for a new token, as far as the kind of authentication allows."""
        try:
            self._connected()._refresh_token()
        except (RESTError, RequestException, OSError, ValueError) as error:
            raise LakeUnavailable(self._unreachable(error)) from error

    def _unreachable(self, error: Exception) -> str:
        return (
            f"the catalog {self._options.get('uri')} gives no answer for {self._identifier}: {error}. See "
            "whether it can be reached, and whether the credentials are valid"
        )

    def _refusal(self, what: str, answer: Response) -> LakeUnavailable:
        return LakeUnavailable(
            f"the catalog entry of {self._identifier} cannot be {what}: {answer.status_code} "
            f"{_words(answer)}. See the log of the catalog {self._options.get('uri')}"
        )


def _request(base: Metadata, change: Append) -> dict[str, Any]:
    sid = change.snapshot["snapshot-id"]
    updates: list[dict[str, Any]] = [
        {"action": "add-snapshot", "snapshot": dict(change.snapshot)},
        {"action": "set-snapshot-ref", "ref-name": change.branch, **base.branch_fields(change.branch)}
        | {"type": "branch", "snapshot-id": sid},
    ]
    if change.properties:
        updates.append({"action": "set-properties", "updates": dict(change.properties)})
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": base.identity},
            {"type": "assert-ref-snapshot-id", "ref": change.branch, "snapshot-id": change.head},
        ],
        "updates": updates,
    }


def _was_not_sent(error: BaseException) -> bool:
    """Return True if the connection failed before the request could be sent."""
    if isinstance(error, ConnectTimeout):
        return True
    reason = (
        getattr(error.args[0], "reason", None) if isinstance(error, NoConnection) and error.args else None
    )
    return isinstance(reason, NewConnectionError)


def _words(answer: Response) -> str:
    try:
        error = answer.json()["error"]
        return f"{error['type']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
