"""Type of the file system of a folder, where the machine states it."""

import contextlib
import os
from typing import Final

_NETWORK: Final = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "gpfs", "glusterfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"}
)
"""File systems that several machines share, which do not see each other's locks in all cases."""
_FUSE: Final = "fuse."
_REMOTE_FUSE: Final = frozenset(
    {
        "blobfuse",
        "blobfuse2",
        "ceph",
        "gcsfuse",
        "glusterfs",
        "juicefs",
        "mount-s3",
        "rclone",
        "s3fs",
        "sshfs",
    }
)


def network_type(folder: str, mounts: str = "/proc/self/mounts") -> str | None:
    """Return the type of a network file system that a folder is in; None for others, and where it is unknown.

    `mounts` is the file in which Linux lists what is mounted.
    """
    place = os.path.realpath(folder)
    best, found = "", ""
    with contextlib.suppress(OSError), open(mounts, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            fields = line.split(" ")
            # A later one at the same place covers the earlier one.
            if len(fields) > 2 and len(point := _plain(fields[1])) >= len(best) and _is_in(place, point):
                best, found = point, fields[2]
    is_remote = found in _NETWORK or (
        found.startswith(_FUSE) and found.removeprefix(_FUSE) in _REMOTE_FUSE | _NETWORK
    )
    return found if is_remote else None


def _is_in(place: str, point: str) -> bool:
    return place == point or place.startswith(point.rstrip("/") + "/")


def _plain(text: str) -> str:
    """Return a path without the escapes of the list."""
    for octal in ("040", "011", "012", "134"):
        text = text.replace(f"\\{octal}", chr(int(octal, 8)))
    return text
