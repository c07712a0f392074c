"""Options of asynchronous uploads: a task leaves its files in a local folder, and an uploader sends them."""

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, Self

from sluicegate.writer_hooks.errors import BadOption
from sluicegate.writer_hooks.option_values import seconds, whole

UPLOAD: Final = "upload"
SPOOL, BYTES, CHECKPOINTS = "upload.spool", "upload.max.bytes", "upload.max.checkpoints"
THREADS, TIMEOUT = "upload.threads", "upload.timeout"
BEFORE, BEFORE_TIMEOUT = "before.publish", "before.publish.timeout"
_DETAILS: Final = (SPOOL, BYTES, CHECKPOINTS, THREADS, TIMEOUT, BEFORE, BEFORE_TIMEOUT)
NAMES: Final = (UPLOAD, *_DETAILS)

_SIZE: Final = re.compile(r"([0-9]{1,15})\s*(B|KiB|MiB|GiB|TiB)?", re.IGNORECASE)
_UNITS: Final = {"": 0, "b": 0, "kib": 10, "mib": 20, "gib": 30, "tib": 40}
_DEFAULT_BYTES: Final = 16 << 30
_DEFAULT_CHECKPOINTS: Final = 16
_DEFAULT_THREADS: Final = 4
_MOST_THREADS: Final = 64
_DEFAULT_TIMEOUT: Final = 3600.0
_DEFAULT_BEFORE: Final = 600.0
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_FOR_LOG: Final = ("topic.prefix", "publish.timeout")


@dataclass(frozen=True, slots=True)
class Uploads:
    """Options of a job whose files an uploader sends."""

    spool: str | None = None
    """Folder on the machine of each task; None: one for this user below its folder of temporary files."""
    max_bytes: int = _DEFAULT_BYTES
    """Bytes of waiting files on a machine, from which on no task begins to write."""
    max_checkpoints: int = _DEFAULT_CHECKPOINTS
    """Checkpoints of a region with waiting files on a machine; a task of another one does not begin."""
    threads: int = _DEFAULT_THREADS
    """Attempts that are uploaded at the same time, on each machine."""
    timeout: float = _DEFAULT_TIMEOUT
    """Seconds after a completion in which all its events must arrive; later, its files count as lost."""
    before_publish: str | None = None
    """Function `module:function` of a local file and its final URI, called before the file is uploaded."""
    before_timeout: float = _DEFAULT_BEFORE
    """Seconds for one call of it."""
    log: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Options of the connection to Kafka, for the uploader. They may contain a password."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self | None:
        """Return the options of names in lower case; None if tasks upload themselves. Raises BadOption."""
        way = options.get(UPLOAD, "sync").strip().lower()
        if way not in ("sync", "async"):
            raise BadOption(f"the option {UPLOAD} must be sync or async: {options[UPLOAD]!r}")
        if way == "sync":
            named = [name for name in _DETAILS if name in options]
            if named:
                raise BadOption(
                    f"the option {named[0]} is for asynchronous uploads; set {UPLOAD} to async, or leave "
                    f"{', '.join(named)} out"
                )
            return None
        _require_absolute_files(options)
        if THREADS in options and whole(options, THREADS, 1, 1) > _MOST_THREADS:
            raise BadOption(
                f"the option {THREADS} must be a whole number from 1 to {_MOST_THREADS}: {options[THREADS]!r}"
            )
        return cls(
            _spool(options),
            _size(options),
            whole(options, CHECKPOINTS, _DEFAULT_CHECKPOINTS, 1),
            whole(options, THREADS, _DEFAULT_THREADS, 1),
            seconds(options, TIMEOUT, _DEFAULT_TIMEOUT),
            _before(options),
            seconds(options, BEFORE_TIMEOUT, _DEFAULT_BEFORE),
            tuple((name, value) for name, value in options.items() if _is_for_log(name)),
        )

    def spool_folder(self) -> str:
        """Return the folder on this machine."""
        return self.spool or default_spool()


def default_spool() -> str:
    """Return the folder of this user on this machine."""
    return os.path.join(tempfile.gettempdir(), f"sluicegate-uploads-{os.geteuid()}")


def refuse_uploads(uploads: Uploads | None, why: str) -> None:
    """Raise BadOption if uploads are asynchronous. `why` is the reason, with the way out."""
    if uploads is not None:
        raise BadOption(f"the option {UPLOAD} cannot be async: {why}")


def resolve(function: str) -> Callable[[str, str], object]:
    """Return the function of a name `module:function`. Raises BadOption."""
    if not _FUNCTION.fullmatch(function):
        raise BadOption(f"the option {BEFORE} must be module:function: {function!r}")
    module, _, name = function.partition(":")
    try:
        found = getattr(import_module(module), name, None)
    except Exception as error:  # whatever a module of the user raises
        raise BadOption(
            f"the option {BEFORE} names the module {module}, which cannot be imported here "
            f"({type(error).__name__}: {error}); install it on the driver and on all executors"
        ) from error
    if not callable(found):
        raise BadOption(f"the option {BEFORE}: the module {module} has no function {name}; correct the name")
    return found  # type: ignore[no-any-return]


def _is_for_log(name: str) -> bool:
    return name.startswith("kafka.") or name in _FOR_LOG


def _require_absolute_files(options: Mapping[str, str]) -> None:
    """Refuse files that an uploader would not find: it has another working folder than a task."""
    for name, value in options.items():
        if name.startswith("kafka.") and name.endswith((".file", ".location")) and not os.path.isabs(value):
            raise BadOption(
                f"the option {name} must be an absolute path with asynchronous uploads, of a file that stays "
                f"when an executor ends: {value!r}"
            )


def _spool(options: Mapping[str, str]) -> str | None:
    given = options.get(SPOOL)
    if given is None:
        return None
    if not os.path.isabs(given):
        raise BadOption(
            f"the option {SPOOL} must be an absolute path of a folder on the machines of the tasks, such as "
            f"/var/spool/sluicegate: {given!r}"
        )
    return os.path.normpath(given)


def _size(options: Mapping[str, str]) -> int:
    text = options.get(BYTES)
    if text is None:
        return _DEFAULT_BYTES
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) << _UNITS[(match[2] or "").lower()] if match else 0
    if size < 1:
        raise BadOption(f"the option {BYTES} must be a size above 0 such as 16GiB: {text!r}")
    return size


def _before(options: Mapping[str, str]) -> str | None:
    function = options.get(BEFORE)
    if function is None:
        if BEFORE_TIMEOUT in options:
            raise BadOption(f"the option {BEFORE_TIMEOUT} needs the option {BEFORE}: set that too")
        return None
    resolve(function)
    return function
