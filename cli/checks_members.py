"""Check of `sluicegate check` that compares the signing keys of the members, and of this command."""

from sluicegate.cli.finding import Finding, fine, problem, warning
from sluicegate.cli.signing_keys import settled_keys
from sluicegate.coordinator.service.keys import differences
from sluicegate.coordinator.settings.model import Settings, own_keys


async def check_keys(settings: Settings) -> list[Finding]:
    """Compare the signing keys of the members with each other, and with those of this command.

    Other checks report problems of Kafka and of the group.
    """
    told = await settled_keys(settings)
    if told is None or not told.known:
        return []
    name = f"group {settings.kafka.group_id}, signing keys"
    everybody = (*told.known, own_keys(settings.kafka, "the settings of this command"))
    found = differences(everybody)
    if found.refused or found.coming:
        return [
            *(problem(name, each) for each in found.refused),
            *(warning(name, each) for each in found.coming),
        ]
    if all(each.mode == "off" for each in everybody):
        return []
    return [fine(name, f"{len(told.known)} of {told.members} members publish their keys, and all fit")]
