"""Sentences for errors of a file system: the failed attempt, the cause with its error code, the remedy."""

import errno
import os
from typing import Final
from urllib.parse import unquote, urlsplit

from sluicegate.lakes.port import LakeUnavailable

_NO_INODES: Final = "no inodes left"

_CAUSES: Final[dict[int, tuple[str, str]]] = {
    errno.ENOSPC: ("no space left on the file system", "Free some space on the file system of {path}"),
    errno.EDQUOT: (
        "the disk quota is used up",
        "Raise the quota of user {user}, or free some space in {path}",
    ),
    errno.EROFS: ("the file system is mounted read-only", "Mount the file system of {path} read-write"),
    errno.EACCES: (
        "permission denied",
        "Give user {user} the permission to read and write {path} and the folders that lead to it",
    ),
    errno.EPERM: (
        "operation not permitted",
        "See whether {path} is immutable (lsattr), who owns it, and whether its file system allows the step",
    ),
    errno.ENOTDIR: ("a file stands where a folder must be", "Move the file away from the path {path}"),
    errno.EEXIST: ("something else stands at the path", "See what stands at {path}, and move it away"),
    errno.EISDIR: ("a folder stands where a file must be", "Move the folder away from the path {path}"),
    errno.ENOENT: ("there is no such folder", "See whether the storage of {path} is mounted"),
    errno.EIO: ("the device reports an input/output error", "See the health of the device of {path} (dmesg)"),
    errno.ESTALE: ("the network file system has lost the file", "Mount the file system of {path} again"),
    errno.EMFILE: ("the process has too many open files", "Raise its limit of open files (ulimit -n)"),
    errno.ENFILE: ("the host has too many open files", "Raise the host's limit of open files (fs.file-max)"),
    errno.EFBIG: ("the file is larger than allowed", "Raise the process's limit of file sizes (ulimit -f)"),
    errno.ETIMEDOUT: ("the storage did not answer in time", "See whether the storage of {path} is reachable"),
}
"""Cause in plain words and remedy, by error code."""


def explain(attempt: str, path: str, error: OSError) -> str:
    """Return the sentence for an error. `attempt` describes the failed step at `path`."""
    code = error.errno
    if code is None:
        return f"{attempt}: {error}. See whether {path} can be read and written"
    cause, help_ = _CAUSES.get(
        code, (os.strerror(code).lower(), "See whether {path} can be read and written")
    )
    if code == errno.ENOSPC and _lacks_inodes(path):
        cause, help_ = f"{_NO_INODES} on the file system", "Remove files from the file system of {path}"
    name = errno.errorcode.get(code, str(code))
    return f"{attempt}: {cause} ({name}). {help_.format(path=path, user=os.geteuid())}"


def unwritable(location: str, error: OSError) -> LakeUnavailable:
    """Return the error of a data file that cannot be written. `location`: URI of the folder of data files."""
    # A writer names its files itself, so the folder is all that a user knows.
    path = unquote(urlsplit(location).path) if location.startswith("file:") else location
    return LakeUnavailable(explain(f"cannot write data files to {location}", path, error))


def is_too_long(error: BaseException) -> bool:
    """True if an error, or one that led to it, is that a name or a path is too long for the file system."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return True
    before = error.__cause__ or error.__context__
    return before is not None and is_too_long(before)


def _lacks_inodes(path: str) -> bool:
    """Return True if the file system has free space but no free inodes."""
    # The path itself may not exist yet, so its nearest existing parent is examined.
    while True:
        try:
            found = os.statvfs(path)
        except OSError:
            parent = os.path.dirname(path)
            if parent == path:
                return False
            path = parent
            continue
        return found.f_files > 0 and found.f_favail == 0 and found.f_bavail > 0
