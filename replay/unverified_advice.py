"""Advice about records that a command refuses, and that may be true all the same."""

from collections.abc import Collection

from sluicegate.coordinator.telemetry.wording import iso_time
from sluicegate.events.causes import CauseCode
from sluicegate.replay.unverified import UNSIGNED, Group


def since(group: Group) -> str:
    """Return the earliest time for `kafka.signing.since` with which all of these records count unsigned."""
    return iso_time(group.time + 1) or "no such time"


def way_out(groups: Collection[Group]) -> str:
    """Return the advice about unverified records."""
    ways = [_without_signature(each) for each in groups if each.why is CauseCode.UNSIGNED]
    names = list(dict.fromkeys(each.key for each in groups if each.why is not CauseCode.UNSIGNED))
    if names:
        options = " ".join(f"--forged {name}" for name in names)
        ways.append(
            f"Give this command the right file of {', '.join(names)}, in kafka.signing.key_files. If no "
            f"coordinator or command of yours has signed them, they are forged: repeat with {options}"
        )
    return ". ".join(ways)


def _without_signature(group: Group) -> str:
    return (
        "If your coordinators wrote records without a signature, set kafka.signing.since of this command to "
        f"a time after the last of those ({since(group)} is after all that are refused). The others are "
        f"forged: repeat with --forged {UNSIGNED}"
    )
