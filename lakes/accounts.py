"""Accounts: text that a table keeps with each commit, so that a stream can continue from the table alone."""

from typing import Protocol, runtime_checkable

from sluicegate.lakes.port import SnapshotRef, TableMaintenance


@runtime_checkable
class KeepsAccounts(TableMaintenance, Protocol):
    """Capability: the account of a commit can be read. `sluicegate stream adopt` needs it."""

    def account(self, commit_user: str, snapshot: SnapshotRef) -> str:
        """Return the account of the commit that made a snapshot; empty if the table has none.

        A format that keeps only the newest account of a user may return that one: it names its decision.
        Raises LakeUnavailable.
        """
        ...
