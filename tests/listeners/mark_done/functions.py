"""Functions of a user, for the action `custom`."""

from sluicegate.listeners.mark_done.listener import DoneMark

CALLS: list[DoneMark] = []


def plain(mark: DoneMark) -> None:
    """Take a mark."""
    CALLS.append(mark)


async def waiting(mark: DoneMark) -> None:
    """Take a mark on the event loop."""
    CALLS.append(mark)


def failing(mark: DoneMark) -> None:
    """Raise RuntimeError."""
    raise RuntimeError(f"no {mark.partition}")
