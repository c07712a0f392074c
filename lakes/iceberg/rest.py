"""Catalog behind Iceberg's REST protocol. The library does the connection and its authentication.

A commit is one request, with the conditions that the table is the same and that the branch ends in the
snapshot that was asked. New columns have the condition that nobody else has changed the schema. A request is
never repeated: a server may have carried it out although its answer was lost.
"""

import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic_core import ValidationError, from_json
from pyiceberg.catalog.rest import Endpoints, RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerFactory
from pyiceberg.exceptions import RESTError
from requests import Request, RequestException, Response
from requests.exceptions import ConnectionError as NoConnection
from requests.exceptions import ConnectTimeout
from urllib3.exceptions import NewConnectionError

from sluicegate.installation import install_command
from sluicegate.lakes.capabilities import CatalogAccess
from sluicegate.lakes.group import GroupTable, Member, Unchanged
from sluicegate.lakes.iceberg.ancestry import marker_property
from sluicegate.lakes.iceberg.catalog import (
    Identifier,
    NoTable,
    after_change,
    before_change,
    discard_overtaken,
    missing_table,
)
from sluicegate.lakes.iceberg.committer import Composed, IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.layout import FORMAT
from sluicegate.lakes.iceberg.metadata import Append, Change, Metadata, NewSchema, NewTag, from_fields
from sluicegate.lakes.iceberg.vended import DELEGATION, OPTION, VENDED, VendedKeys, asking
from sluicegate.lakes.port import LakeError, LakeUnavailable
from sluicegate.lakes.storage import Uncertain
from sluicegate.token_claims import stated_end

TIMEOUT: Final = (10.0, 60.0)
"""Seconds for a connection, and for an answer."""

_OK: Final = 200
_UNCHANGED: Final = 304
_NOT_FOUND: Final = 404
_NO_FILE: Final = "NotFoundException"
"""Type with which Iceberg's own server answers 404 for a table whose metadata file is missing."""
_CONFLICT: Final = 409
_EXPIRED: Final = (401, 419)
_NESTED: Final = ("auth", "ssl")
"""Options that the library takes as trees. Here, their parts are joined by dots."""
_SECONDS: Final = (["expires_in"], ["refresh_margin"])
"""Last parts of options that are numbers."""
_BAD_REQUEST: Final = 400
_SERVER: Final = 500
_TRANSACTIONS: Final = "transactions/commit"
_DELETES: Final = "write.metadata.delete-after-commit.enabled"
_FAILURES: Final = (RESTError, RequestException, OSError, ImportError, ValueError, KeyError, TypeError)
"""Errors of a request, and of the authentication before it."""


_SIGNED: Final = "rest.sigv4-enabled"
_ENVIRONMENT: Final = {
    "client.access-key-id": "AWS_ACCESS_KEY_ID",
    "client.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "client.session-token": "AWS_SESSION_TOKEN",
}
"""Options of the library, and the variables that count without them."""
_SENT_ONCE: Final = {"rest.sigv4.max-retries": "0"}
"""Options that keep the library from repeating a request."""


class FileTokens(AuthManager):
    """Kind `file` of the library's authentication: a bearer token in a file, read again for each request."""

    def __init__(self, path: str) -> None:
        self._path = path

    def auth_header(self) -> str:
        """Return the header with the token. Raises ValueError without it, or OSError."""
        token = Path(self._path).read_text(encoding="utf-8").strip()
        if not token or not token.isascii() or not token.isprintable():
            # An error of the header itself would show the token.
            raise ValueError(f"the file {self._path} must contain one line, the token")
        return f"Bearer {token}"


AuthManagerFactory.register("file", FileTokens)


class _NotSent(LakeUnavailable):
    """The connection failed before the request could be sent, so it certainly had no effect."""


class _Refused(NamedTuple):
    """A change that was refused. A proxy may have sent it twice, so the other copy may come later."""

    change: Append
    files: tuple[str, ...]
    """New files to which it refers."""

    def is_overtaken(self, found: Metadata) -> bool | None:
        """Return True if the change is not in the table and can not get there any more.

        None if it still can, False if it is there, or if the history does not prove anything.
        """
        if self.change.snapshot["snapshot-id"] in found.by_id:
            return False
        try:
            head = found.head(self.change.branch)
        except LakeUnavailable:
            return False
        if (head["snapshot-id"] if head is not None else None) == self.change.head:
            return None
        # The change must follow its head directly. Another one does, if the whole line down to it is known.
        line = head
        while line is not None and line["snapshot-id"] != self.change.head:
            line = found.by_id.get(line.get("parent-snapshot-id") or 0)
        return line is not None


class RestTable:
    """One table behind a REST catalog."""

    reads_files = False

    def __init__(
        self,
        options: Mapping[str, str],
        catalog: str,
        identifier: Identifier,
        files: Files,
        sibling: "RestTable | None" = None,
    ) -> None:
        """Prepare the access; nothing is connected yet. `sibling`: another table, with whose connection.

        With the option for it, the catalog hands out the keys of `files`.
        """
        self._options = {**_keys_for_signatures(options), **options}
        self._sibling = sibling
        self._name = catalog
        self.identifier = identifier
        self._files = files
        self._library: RestCatalog | None = None
        self._refused: list[_Refused] = []
        """Changes that were refused, and of which a copy may still be on its way."""
        self._known: Metadata | None = None
        self._tag = ""
        """Version of the known state, as the server names it."""
        self._surroundings: dict[str, Any] = {}
        """Proxies and certificates that the environment names, for each request of the connection."""
        if asking(options):
            named = {"format": FORMAT, "type": "rest", "catalog": catalog, "identifier": str(identifier)}
            files.source = VendedKeys(self._load_keys, str(identifier), {**options, **named})

    def load(self) -> Metadata:
        headers = {"If-None-Match": self._tag} if self._tag and self._known is not None else {}
        answer = self._send("GET", Endpoints.load_table, headers=headers)
        if answer.status_code in _EXPIRED:
            self._renew()
            answer = self._send("GET", Endpoints.load_table)
        if answer.status_code == _UNCHANGED and self._known is not None:
            return self._known
        if answer.status_code == _NOT_FOUND and not _lacks_a_file(answer):
            raise NoTable
        if answer.status_code == _NOT_FOUND:
            raise LakeUnavailable(
                f"the catalog {self._options.get('uri')} cannot read the metadata of {self.identifier}: "
                f"{_words(answer)}. Mount the storage of the table where the catalog runs, or restore the "
                "file"
            )
        if answer.status_code != _OK:
            raise self._refusal("read", answer)
        return self._learned(answer)

    def commit(self, base: Metadata, change: Change, files: Mapping[str, bytes]) -> bool:
        self._discard_refused(base)
        try:
            self._files.write(files)
            before_change()
        except LakeUnavailable:
            self._files.discard(files)
            raise
        try:
            answer = self._send("POST", Endpoints.update_table, _request(base, change))
        except _NotSent:
            self._files.discard(files)
            raise
        except LakeUnavailable as error:
            raise Uncertain(str(error)) from error
        code = answer.status_code
        if code == _OK:
            after_change()
            self._confirm(change, answer)
            return True
        if code >= _SERVER:
            raise Uncertain(str(self._refusal("changed, perhaps", answer)))
        # A proxy may have repeated a request that had succeeded: then the repetition is refused.
        if isinstance(change, Append):
            found = self._check_absent(change, answer)
            self._refused.append(_Refused(change, tuple(files)))
            self._discard_refused(found)
        if code == _CONFLICT:
            return False
        if not isinstance(change, Append):
            raise Uncertain(str(self._refusal("changed", answer)))
        raise self._refusal("changed", answer)

    def sibling(self, identifier: Identifier, files: Files) -> "RestTable":
        """Return another table of this catalog, over the same connection."""
        return RestTable(self._options, self._name, identifier, files, self)

    def create(self, fields: Mapping[str, Any], location: str) -> None:
        self._files.create(location, json.dumps(fields).encode())
        body = {"name": self.identifier.name, "metadata-location": location}
        answer = self._send("POST", Endpoints.register_table, body)
        if answer.status_code not in (_OK, _CONFLICT):
            raise self._refusal("made", answer)

    def access(self) -> CatalogAccess:
        refuses = self._refuses()
        manager = self._connected()._auth_manager
        try:
            header = "" if manager is None else manager.auth_header() or ""
        except _FAILURES as error:
            raise LakeUnavailable(self._unreachable(error)) from _harmless(error)
        end = stated_end(header.removeprefix("Bearer "))
        lifetime = None if end is None else end - time.time()
        return CatalogAccess(
            "REST catalog", str(self._options.get("uri")), _login(self._options), lifetime, refuses
        )

    def _refuses(self) -> bool:
        """Return True if the catalog refuses a change of nothing to a table that is another one.

        Raises LakeUnavailable if it refuses this process, or cannot be reached.
        """
        other = {"type": "assert-table-uuid", "uuid": str(uuid.uuid4())}
        body = {"requirements": [other], "updates": []}
        answer = self._send("POST", Endpoints.update_table, body)
        if answer.status_code in _EXPIRED:
            self._renew()
            answer = self._send("POST", Endpoints.update_table, body)
        if answer.status_code not in (_OK, _CONFLICT):
            raise self._refusal("changed", answer)
        return bool(answer.status_code == _CONFLICT)

    def close(self) -> None:
        if self._library is not None:
            self._library.close()

    def _confirm(self, change: Change, answer: Response) -> None:
        """Check that the table has a change that was confirmed: a gate before the catalog may have answered.

        Raises Uncertain if the change is not there, or if that cannot be found out.
        """
        found = self._load_after(answer)
        if isinstance(change, Append):
            there = change.snapshot["snapshot-id"] in found.by_id
        elif isinstance(change, NewTag):
            there = (found.fields.get("refs") or {}).get(change.name, {}).get("type") == "tag"
        else:
            there = found.fields["last-column-id"] >= change.last_column_id
        if not there:
            raise Uncertain(
                f"the catalog {self._options.get('uri')} has confirmed a change of {self.identifier}, but "
                "the table lacks it. See whether the option uri names the catalog itself"
            )

    def _check_absent(self, change: Append, answer: Response) -> Metadata:
        """Return the state after a refused commit, without its snapshot.

        Raises Uncertain if the snapshot is there, or if that cannot be found out.
        """
        found = self._load_after(answer)
        if change.snapshot["snapshot-id"] in found.by_id:
            raise Uncertain(str(self._refusal("changed twice", answer)))
        return found

    def _load_after(self, answer: Response) -> Metadata:
        """Return the state after the answer to a change. Raises Uncertain if it cannot be read."""
        self._known, self._tag = None, ""
        try:
            return self.load()
        except (LakeUnavailable, NoTable) as error:
            raise Uncertain(f"{self._refusal('changed, perhaps', answer)}; then: {error}") from error

    def _load_keys(self) -> Mapping[str, Any]:
        """Return an answer with keys of the storage. Raises LakeUnavailable."""
        headers = {DELEGATION: VENDED}
        answer = self._send("GET", Endpoints.load_table, headers=headers)
        if answer.status_code in _EXPIRED:
            self._renew()
            answer = self._send("GET", Endpoints.load_table, headers=headers)
        if answer.status_code != _OK:
            raise self._refusal("read", answer)
        try:
            found = from_json(answer.content)
        except ValueError:
            # The text of the error may contain keys.
            found = None
        return found if isinstance(found, dict) else {}

    def _discard_refused(self, found: Metadata) -> None:
        """Discard the files of refused changes that can not get into the table any more."""
        kept = []
        for refused in self._refused:
            overtaken = refused.is_overtaken(found)
            if overtaken is None:
                kept.append(refused)
            elif overtaken:
                discard_overtaken(self._files, refused.files)
        self._refused = kept

    def _learned(self, answer: Response) -> Metadata:
        """Return the state that an answer contains. Raises LakeUnavailable if it contains none."""
        try:
            body = from_json(answer.content)
            location = str(body.get("metadata-location") or f"{self.identifier}#{uuid.uuid4()}")
            self._known = from_fields(location, body["metadata"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LakeUnavailable(
                f"the catalog's answer for {self.identifier} has no metadata of a table: {error!r}. See "
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
        *,
        of_table: bool = True,
    ) -> Response:
        """Send one request. Raises LakeUnavailable if there is no answer.

        `of_table`: its address names the table.
        """
        library = self._connected()
        identifier = (*self.identifier.namespace, self.identifier.name)
        named = library._split_identifier_for_path(identifier) if of_table else {}
        url = library.url(endpoint, prefixed=True, **named)
        try:
            data = None if body is None else json.dumps(body).encode()
            request = library._session.prepare_request(Request(method, url, dict(headers or {}), data=data))
            # The library would follow a redirection with a GET, whose success means nothing.
            follows = method == "GET"
            return library._session.send(
                request, timeout=TIMEOUT, allow_redirects=follows, **self._surroundings
            )
        except _FAILURES as error:
            kind = _NotSent if _was_not_sent(error) else LakeUnavailable
            raise kind(self._unreachable(error)) from _harmless(error)
        except Exception as error:
            # The library of signatures has errors of its own for keys that AWS does not give.
            if _SIGNED not in self._options:
                raise
            raise LakeUnavailable(self._unsigned(error)) from error

    def _connected(self) -> RestCatalog:
        """Return the library's connection. Raises LakeUnavailable."""
        if self._sibling is not None:
            library = self._sibling._connected()
            self._surroundings = self._sibling._surroundings
            return library
        if self._library is None:
            try:
                self._library = RestCatalog(self._name, **nested({**self._options, **_SENT_ONCE}))
            except ImportError as error:
                raise _NotSent(
                    f"the catalog {self._options.get('uri')} needs a package that is not installed "
                    f"({error.name}); install it with: {install_command('iceberg', 'glue')}"
                ) from error
            except _FAILURES as error:
                raise _NotSent(self._unreachable(error)) from _harmless(error)
            except Exception as error:
                if _SIGNED not in self._options:
                    raise
                raise _NotSent(self._unsigned(error)) from error
            # The library asks for keys with each request. What is not used need not be handed out.
            self._library._session.headers.pop(DELEGATION, None)
            session, uri = self._library._session, self._library.uri
            # The library reads the whole environment for this, and would do so for each request.
            self._surroundings = dict(session.merge_environment_settings(uri, {}, None, None, None))
        return self._library

    def _renew(self) -> None:
        """Connect again, with a new token as far as the kind of authentication has one."""
        if self._sibling is not None:
            self._sibling._renew()
            return
        self.close()
        self._library = None
        self._connected()

    def _unsigned(self, error: Exception) -> str:
        return (
            f"the request to the catalog {self._options.get('uri')} for {self.identifier} is not signed: "
            f"{error}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine "
            "or the pod a role"
        )

    def _unreachable(self, error: Exception) -> str:
        return (
            f"the catalog {self._options.get('uri')} gives no answer for {self.identifier}: {_text(error)}. "
            "See whether it can be reached, and whether the credentials are valid"
        )

    def _refusal(self, what: str, answer: Response) -> LakeUnavailable:
        return LakeUnavailable(
            f"the catalog entry of {self.identifier} cannot be {what}: {answer.status_code} "
            f"{_words(answer)}. See the log of the catalog {self._options.get('uri')}"
        )


_Member = Member[Metadata, Composed]


class RestTransactions:
    """Changes of several tables with one request, of a server that its operator calls atomic.

    Nothing that the server says proves anything: servers answer success for a change that they dropped, and
    apply tables one by one. So each table is loaded after each answer, and compared. A request is never sent
    again.
    """

    def __init__(self, anchor: RestTable) -> None:
        self._anchor = anchor

    def scope(self, metadata: Metadata) -> str | None:
        if metadata.properties.get(_DELETES, "false").strip().lower() == "true":
            return (
                f"the property {_DELETES} is on, and a server that fails in a change of several tables has "
                "deleted metadata in use. Turn it off for each table of the stream"
            )
        if metadata.fields.get("current-snapshot-id") in (None, -1):
            # Nessie 0.99 takes a first snapshot in place of any other: a late request would set tables back.
            return (
                "it has no snapshot yet, and servers do not check the condition of a first one. Commit to it "
                "once with another tool, without rows if you like"
            )
        return None

    def load_all(self, tables: Sequence[GroupTable[Metadata, Composed]]) -> list[Metadata | LakeError]:
        found: list[Metadata | LakeError] = []
        for each in map(_catalog_of, tables):
            try:
                found.append(each.load())
            except NoTable:
                found.append(missing_table(each.identifier))
            except LakeError as error:
                found.append(error)
        return found

    def commit_all(
        self, members: Sequence[_Member], unchanged: Unchanged[Metadata, Composed] | None = None
    ) -> bool:
        written = self._write(members)
        changes = [_change(each) for each in members]
        if unchanged is not None:
            changes.insert(0, _condition(unchanged))
        try:
            answer = self._anchor._send("POST", _TRANSACTIONS, {"table-changes": changes}, of_table=False)
        except _NotSent:
            _discard(written)
            raise
        except LakeUnavailable as error:
            raise Uncertain(str(error)) from error
        there = {each.name: self._has(each, answer) for each in members}
        code = answer.status_code
        if all(there.values()) and code < _BAD_REQUEST:
            after_change()
            return True
        refusal = self._anchor._refusal("changed together with others", answer)
        if any(there.values()) or code >= _SERVER or code < _BAD_REQUEST:
            lacking = ", ".join(name or "the anchor" for name, has in there.items() if not has)
            raise Uncertain(f"{refusal}; the change is not seen in: {lacking}" if lacking else str(refusal))
        for each in written:
            refused = _Refused(each.composed.change, tuple(each.composed.draft.files))
            _catalog_of(each.table)._refused.append(refused)
        for each in members:
            table = _catalog_of(each.table)
            if table._known is not None:
                table._discard_refused(table._known)
        if code == _CONFLICT:
            return False
        raise refusal

    def _write(self, members: Sequence[_Member]) -> list[_Member]:
        """Write the files of all changes, and return those that had none. Raises LakeUnavailable.

        A further change of a refused request has its files, and a copy of that request may still come. So
        they are neither written again, nor deleted with the others.
        """
        done: list[_Member] = []
        try:
            for each in members:
                table = _catalog_of(each.table)
                table._discard_refused(each.composed.base)
                if all(refused.change is not each.composed.change for refused in table._refused):
                    done.append(each)
                    table._files.write(each.composed.draft.files)
            before_change()
        except LakeUnavailable:
            _discard(done)
            raise
        return done

    def _has(self, member: _Member, answer: Response) -> bool:
        """Return True if a table has its change. Raises Uncertain if it cannot be read."""
        found = _catalog_of(member.table)._load_after(answer)
        return member.composed.change.snapshot["snapshot-id"] in found.by_id


def _catalog_of(table: GroupTable[Metadata, Composed]) -> RestTable:
    if not isinstance(table, IcebergCommitter) or not isinstance(table.catalog, RestTable):
        raise TypeError(f"{table!r} is no table of a REST catalog")
    return table.catalog


def _discard(members: Sequence[_Member]) -> None:
    for each in members:
        _catalog_of(each.table)._files.discard(each.composed.draft.files)


def _change(member: _Member) -> dict[str, Any]:
    """Return the change of one table, as a request over several tables has it."""
    named = _named(_catalog_of(member.table).identifier)
    return {"identifier": named, **_request(member.composed.base, member.composed.change)}


def _condition(unchanged: Unchanged[Metadata, Composed]) -> dict[str, Any]:
    """Return a change that changes nothing, with the condition that the table has the same head.

    It sets properties that the table has, since a server may leave out a change that is empty.
    """
    table, state = unchanged.table, unchanged.state
    if not isinstance(table, IcebergCommitter):
        raise TypeError(f"{table!r} is no table of a REST catalog")
    head, mark = table.head(state), marker_property(table.user, table.branch)
    at = int(head.identity) if head is not None else None
    asserts = [
        {"type": "assert-table-uuid", "uuid": state.identity},
        {"type": "assert-ref-snapshot-id", "ref": table.branch, "snapshot-id": at},
    ]
    same = {name: text for name, text in state.properties.items() if name == mark}
    return {
        "identifier": _named(table.catalog.identifier),
        "requirements": asserts,
        "updates": [{"action": "set-properties", "updates": same}] if same else [],
    }


def _named(identifier: Identifier) -> dict[str, Any]:
    return {"namespace": list(identifier.namespace), "name": identifier.name}


def _keys_for_signatures(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with the keys of AWS that the environment has now, none without signatures.

    Else the library reads the environment with its first request. By then it may be that of other files: an
    uploader serves several stores.
    """
    if _SIGNED not in options or any(name in options for name in ("client.profile-name", *_ENVIRONMENT)):
        return {}
    return {name: os.environ[key] for name, key in _ENVIRONMENT.items() if os.environ.get(key)}


def _login(options: Mapping[str, str]) -> str:
    """Return the kind of the login."""
    if options.get("rest.sigv4-enabled", "").lower() == "true":
        return "signatures of AWS"
    if kind := options.get("auth.type"):
        return f"auth.type = {kind}"
    if "credential" in options:
        return "OAuth2, client credentials"
    if "token" in options:
        return "a fixed token"
    others = any(name.startswith("header.") and name.lower() != OPTION.lower() for name in options)
    return "headers" if others else "none"


def nested(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a catalog as the library takes them: `auth.basic.username` is a tree.

    Raises ValueError if one option is a text and a tree.
    """
    found: dict[str, Any] = {}
    for name in sorted(options):
        kind, *parts = name.split(".")
        value = options[name]
        if kind not in _NESTED:
            found[name] = value
            continue
        number = parts[-1:] in _SECONDS and value.isdigit()
        _graft(found.setdefault(kind, {}), name, parts, int(value) if number else value)
    return found


def _graft(tree: dict[str, Any], name: str, parts: Sequence[str], value: str | int) -> None:
    """Put an option into a tree of options. Raises ValueError if its place is taken, or is none."""
    for part in parts[:-1]:
        below = tree.setdefault(part, {})
        if isinstance(below, str | int):
            # Options in order: the one with fewer parts came before.
            raise ValueError(f"the option {name} is a part of another one that has a value")  # noqa: TRY004
        tree = below
    if not parts:
        raise ValueError(f"the option {name} has parts, such as {name}.type. Set these")
    tree[parts[-1]] = value


def _request(base: Metadata, change: Change) -> dict[str, Any]:
    """Return a change with the conditions under which it is right."""
    asserts: list[dict[str, Any]]
    updates: list[dict[str, Any]]
    match change:
        case NewSchema():
            asserts, updates = _of_schema(base, change)
        case NewTag():
            asserts, updates = _of_tag(change)
        case Append():
            asserts, updates = _of_append(base, change)
    if change.properties:
        updates.append({"action": "set-properties", "updates": dict(change.properties)})
    same = {"type": "assert-table-uuid", "uuid": base.identity}
    return {"requirements": [same, *asserts], "updates": updates}


_Parts = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""Requirements and updates."""


def _of_schema(base: Metadata, change: NewSchema) -> _Parts:
    current, last = base.fields["current-schema-id"], base.fields["last-column-id"]
    asserts: list[dict[str, Any]] = [
        {"type": "assert-current-schema-id", "current-schema-id": current},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": last},
    ]
    updates: list[dict[str, Any]] = [
        {"action": "add-schema", "schema": dict(change.schema), "last-column-id": change.last_column_id},
        # -1 stands for the schema that was added.
        {"action": "set-current-schema", "schema-id": -1},
    ]
    return asserts, updates


def _of_append(base: Metadata, change: Append) -> _Parts:
    sid = change.snapshot["snapshot-id"]
    updates: list[dict[str, Any]] = [
        {"action": "add-snapshot", "snapshot": dict(change.snapshot)},
        {"action": "set-snapshot-ref", "ref-name": change.branch, **base.branch_fields(change.branch)}
        | {"type": "branch", "snapshot-id": sid},
    ]
    head = {"type": "assert-ref-snapshot-id", "ref": change.branch, "snapshot-id": change.head}
    return [head], updates


def _of_tag(change: NewTag) -> _Parts:
    absent = {"type": "assert-ref-snapshot-id", "ref": change.name, "snapshot-id": None}
    return [absent], [{"action": "set-snapshot-ref", "ref-name": change.name, **change.reference}]


def _text(error: Exception) -> str:
    """Return the text of an error. That of an answer with another form would show the answer, and a token."""
    if not isinstance(error, ValidationError):
        return str(error)
    wrong = (
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_input=False)
    )
    return f"the answer is no {error.title} ({', '.join(wrong)})"


def _harmless(error: Exception) -> Exception | None:
    """Return an error for a chain, None if its text may have a secret."""
    return None if isinstance(error, ValidationError) else error


def _was_not_sent(error: BaseException) -> bool:
    """Return True if the connection failed before the request could be sent."""
    if isinstance(error, ConnectTimeout):
        return True
    reason = (
        getattr(error.args[0], "reason", None) if isinstance(error, NoConnection) and error.args else None
    )
    return isinstance(reason, NewConnectionError)


def _lacks_a_file(answer: Response) -> bool:
    """Return True if a catalog has the entry of a table, and not the metadata file that it names."""
    try:
        return str(answer.json()["error"]["type"]) == _NO_FILE
    except (ValueError, KeyError, TypeError):
        return False


def _words(answer: Response) -> str:
    if answer.is_redirect:
        return f"redirects to {answer.headers['Location']}. Set the option uri to the address of the catalog"
    try:
        error = answer.json()["error"]
        return f"{error['type']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
