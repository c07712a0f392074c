"""Refusal of tables that are out of scope, with the way out."""

from sluicegate.lakes.delta.features import out_of_scope
from sluicegate.lakes.delta.log import Log, NoTable, State
from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.storage import Storage


def open_in_scope(storage: Storage) -> State:
    """Return the newest state of a table in scope. Raises TableRefused or LakeUnavailable."""
    try:
        state = Log(storage).load()
    except NoTable as error:
        raise TableRefused(str(error)) from error
    refuse_out_of_scope(state, storage.uri)
    return state


def refuse_out_of_scope(state: State, uri: str) -> None:
    """Raise TableRefused with the first feature of the table that an append would not respect."""
    reason = out_of_scope(state.protocol, state.metadata)
    if reason is not None:
        raise TableRefused(
            f"{uri}: {reason}. Give the stream an append table without that (a new one, or this one altered)"
        )
