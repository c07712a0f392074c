"""Parents of a new incarnation after a re-split or a merge, read from locations of ended queries."""

from sluicegate.events.models import Parent
from sluicegate.writer_hooks.errors import BatchUnfinished
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint


def parent_at(location: str) -> Parent:
    """Return the last checkpoint of the query in a location, as a parent.

    Raises BadCheckpointLocation, or BatchUnfinished if the query planned a batch that it has not completed.
    """
    checkpoint = Checkpoint(location)
    region, marker = checkpoint.opened_region()
    planned, final = checkpoint.newest_planned(), checkpoint.newest_completed()
    if planned != final:
        raise BatchUnfinished(
            f"the query in {location} planned batch {planned} and completed "
            f"{'none' if final is None else final}, so nothing can build on it yet; start it again, so that "
            "it finishes, and stop it"
        )
    if final is not None and final < marker.first:
        # The query has completed nothing since its rewind. It is still the parent itself, because other
        # incarnations may also build on its own parents.
        final = None
    return Parent(region=region, lineage=marker.lineage, checkpoint=final)
