"""What the core needs to know of the settings; whoever runs it reads them."""

from dataclasses import dataclass

from sluicegate.events.models import StreamPolicy


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """What the core needs to know; times in milliseconds."""

    policy: StreamPolicy
    """Wanted; its number does not count."""
    record_interval: int = 3_600_000
    """At most a quarter of the log's retention."""
    probe_interval: int = 60_000
    """How often a stream without work looks at its table.

    At most a quarter of the retention of the table's snapshots.
    """
    freeze: int = 1_000
    """A longer gap between two polls means that the process stood still."""
    first_pause: int = 50
    longest_pause: int = 10_000
    stall_pause: int = 15_000
    """How often a stalled stream looks whether the cause is gone."""
    stall_after: int = 30_000
    """For how long an effect fails, and is tried again, until that counts as a stall."""
    overdue_after: int = 10_000
    """For how long a completed checkpoint lacks something, until its region stalls for that."""
    alignment_timeout: int = 10_000
    """How long something sealed waits for regions that owe, before they fall back."""
    carry_after: int | None = None
    """Age in the log at which what is pending is appended again: a share of the log's retention.

    None: the log keeps everything.
    """
