"""Notes in the log: orders that work on a table, on state records or on dead letters."""

from sluicegate.cli.errors import UserError
from sluicegate.cli.ordered_by import current_order
from sluicegate.cli.signing_keys import require_accepted_key
from sluicegate.coordinator.replay.decisions import ReplayRefused
from sluicegate.coordinator.replay.log import open_log
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.orders import make_note
from sluicegate.kafka.permissions import Client, format_grants, lacking
from sluicegate.kafka.topics import TopicRole


async def require_permissions(settings: Settings, client: Client, only: TopicRole | None = None) -> None:
    """Refuse an order before its note if its work would be refused afterwards; `only`: those on one topic.

    Raises UserError, KafkaError.
    """
    kafka = settings.kafka
    where = kafka.topic_prefix, kafka.group_id
    found = await lacking(kafka.client_options(), client, *where)
    if found := [each for each in found if only in (None, each.topic)]:
        raise UserError(
            f"nothing is written: this client lacks permissions. Grant it {format_grants(found, *where)}"
        )


async def note_order(settings: Settings, stream: str, about: str = "") -> None:
    """Append a note of the command that runs, before its work. Raises KafkaError, UserError."""
    await require_accepted_key(settings, stream)
    try:
        async with open_log(settings, stream) as log:
            await log.append(stream, [make_note()], current_order(about))
    except ReplayRefused as error:
        raise UserError(str(error)) from error
