"""Paimon's place in the registry of table formats."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sluicegate.lakes.paimon.caretaker import PaimonCaretaker
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.paimon.entries import FORMAT, FORMAT_VERSION
from sluicegate.lakes.paimon.storage import LocalStorage
from sluicegate.lakes.paimon.table import Table
from sluicegate.lakes.port import PORT_VERSION, TableRefused

if TYPE_CHECKING:
    from sluicegate.lakes.paimon.writer import PaimonWriter


class PaimonAdapter:
    """Append tables on a local file system; a location is the table's folder."""

    name = FORMAT
    format_version = FORMAT_VERSION
    port_version = PORT_VERSION

    def open_committer(self, location: str, commit_user: str, options: Mapping[str, str]) -> PaimonCommitter:
        """Open the committer half. Raises TableRefused or LakeUnavailable."""
        if not commit_user:
            raise TableRefused("a commit user must not be empty: the table tells decisions apart by it")
        storage = LocalStorage(location)
        Table(storage).newest()
        return PaimonCommitter(storage, commit_user)

    def open_caretaker(self, location: str, options: Mapping[str, str]) -> PaimonCaretaker:
        """Open the caretaker; the table need not be there yet. Raises TableRefused."""
        return PaimonCaretaker(LocalStorage(location))

    def open_writer(
        self,
        location: str,
        options: Mapping[str, str],
        event_time_column: str | None,
        digest: str | None = None,
    ) -> "PaimonWriter":
        """Open the writer half. Raises TableRefused or LakeUnavailable."""
        # It brings half of the library along, which a coordinator that was just started need not wait for.
        from sluicegate.lakes.paimon.writer import PaimonWriter

        return PaimonWriter(LocalStorage(location), event_time_column, digest)


ADAPTER: Final = PaimonAdapter()
