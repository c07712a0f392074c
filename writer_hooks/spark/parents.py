"""What a new lineage of a re-split or a merge builds on: queries that have ended, by their locations."""

from sluicegate.events import Parent
from sluicegate.writer_hooks.errors import BatchUnfinished
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint


def parent_at(location: str) -> Parent:
    """The last checkpoint of the query in a location, as a parent.

    Raises BadCheckpointLocation, or BatchUnfinished if it planned a batch that it has not completed.
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
        # It has done nothing since it was set back. Others may build on its parents too: it is named itself.
        final = None
    return Parent(region=region, lineage=marker.lineage, checkpoint=final)
