"""Outcomes of publications, as tests ask for them."""

from typing import TypeGuard

from sluicegate.lakes.port import Refused


def is_refused(outcome: object, *, again: bool = False) -> TypeGuard[Refused]:
    """True if nothing was published; `again`: for a cause that may pass, such as another writer."""
    return isinstance(outcome, Refused) and outcome.again is again
