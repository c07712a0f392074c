"""Look of a driver at the spool of its own machine, if its tasks have left files there."""

from sluicegate.writer_hooks.errors import SpoolUnusable
from sluicegate.writer_hooks.region import Region
from sluicegate.writer_hooks.upload.entry import region_key
from sluicegate.writer_hooks.upload.options import Uploads
from sluicegate.writer_hooks.upload.spool import existing_spool
from sluicegate.writer_hooks.upload.starting import ensure_uploader


def keep_uploading(uploads: Uploads, region: Region, incarnation: str) -> frozenset[int]:
    """Return the checkpoints of an incarnation with files in this machine's spool, which is uploaded.

    If an uploader was killed after the last task, this starts another one. On a machine without the spool,
    or where it belongs to another user, nothing is done. Other machines are not seen.
    """
    try:
        spool = existing_spool(uploads.spool_folder())
        names = spool.names()
        if names:
            ensure_uploader(spool)
    except (SpoolUnusable, OSError):
        return frozenset()
    key = region_key(region, incarnation)
    return frozenset(name.checkpoint for name in names if name.region == key)
