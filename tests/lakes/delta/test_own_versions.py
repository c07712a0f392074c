"""A version counts as a request's own only on exactly the head that the request was made for."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluicegate.events.models import SnapshotRef
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.port import Published

HEAD = SnapshotRef(4, "four")
OWN = SnapshotRef(5, "five")


def ours(
    *, there: SnapshotRef = HEAD, newest: int = 6, oldest: int = 0, mine: bool = True, asked: bool = True
) -> Any:
    """Ask for the version after the head, in a log whose version 4 is this one."""
    versions = {4: SimpleNamespace(ref=there), 5: SimpleNamespace(ref=OWN)}
    committer = SimpleNamespace(
        _ancestry=lambda state: SimpleNamespace(oldest=oldest),
        _log=SimpleNamespace(version=versions.get),
        _is=lambda version, request: mine,
        _storage=SimpleNamespace(settle=lambda folder: None),
    )
    request = SimpleNamespace(head=HEAD if asked else None)
    return DeltaCommitter._ours(
        cast(Any, committer), cast(Any, request), cast(Any, SimpleNamespace(version=newest))
    )


def test_the_version_after_the_head_is_found() -> None:
    assert ours() == Published(OWN)


@pytest.mark.parametrize(
    "how",
    [
        {"there": SnapshotRef(4, "another")},
        {"newest": 4},
        {"oldest": 6},
        {"mine": False},
    ],
    ids=["another content of the head", "nothing after the head", "expired", "another's"],
)
def test_another_one_is_not_its_own(how: dict[str, Any]) -> None:
    """The table was restored to another version 4, and the same number follows it."""
    assert ours(**how) is None
