"""Settings of the core; whoever runs it reads them. Times are in milliseconds."""

from dataclasses import dataclass

from sluicegate.events.models import SingleRegionReason, StreamPolicy


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """Settings of one stream's machine."""

    policy: StreamPolicy
    """The policy to be logged; its number is ignored."""
    commit_interval: int = 0
    """Shortest time between two decisions, unless one of the maxima is reached; 0: decide at once."""
    commit_max_files: int | None = None
    """Number of sealed files at which a cut is due at once."""
    commit_max_bytes: int | None = None
    """Size of the sealed files at which a cut is due at once."""
    alignment_timeout: int = 10_000
    """Time that a due cut waits for lagging regions."""
    silence: int = 60_000
    """Silence after which an idle region counts as not idle, unless its heartbeats are rarer."""
    record_interval: int = 3_600_000
    """Time after which a record is written although nothing was announced."""
    head_interval: int = 60_000
    """Time between two questions about the head of an idle table; at most a quarter of its retention."""
    freeze: int = 1_000
    """A longer time between two polls means that the process stood still."""
    first_pause: int = 50
    longest_pause: int = 10_000
    stall_pause: int = 15_000
    """Time between two checks of a stalled stream."""
    stall_after: int = 30_000
    """Time of failures of an effect that is a stall."""
    overdue_after: int = 10_000
    """Time after which a lack of a completed checkpoint is a stall of its region."""

    @property
    def has_maxima(self) -> bool:
        """True if amounts of files can make a cut due."""
        return self.commit_max_files is not None or self.commit_max_bytes is not None

    def is_full(self, files: int, size: int) -> bool:
        """True if this many sealed files, or bytes of them, make a cut due at once."""
        full = self.commit_max_files is not None and files >= self.commit_max_files
        return full or (self.commit_max_bytes is not None and size >= self.commit_max_bytes)

    def policy_to_log(
        self, logged: StreamPolicy | None, single_region: SingleRegionReason | None
    ) -> StreamPolicy | None:
        """Return the policy of these settings and of the table, if the log has another one."""
        number = logged.number if logged is not None else 0
        changes: dict[str, object] = {"number": number}
        if single_region is not None:
            changes["single_region"] = single_region
        wanted = self.policy.model_copy(update=changes)
        return None if wanted == logged else wanted.model_copy(update={"number": number + 1})
