"""The file `_SUCCESS` in the folder of a partition, with the JSON that Paimon writes and reads."""

import json
import os
import uuid
from typing import Any, Final

from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Storage
from sluicegate.listeners.mark_done.policy import Mark

NAME: Final = "_SUCCESS"


def put_success_file(storage: Storage, folder: str, mark: Mark) -> None:
    """Put the file of a mark, atomically and durably; a file of this mark, or of a later one, stays.

    It keeps the time of the first mark. It blocks. Raises LakeUnavailable.
    """
    name = f"{folder}/{NAME}"
    if storage.leads_out(name):
        raise LakeUnavailable(f"{name} of {storage.uri} leads out of the table by a link. Remove the link")
    before = _read(storage, name)
    if _number(before.get("decision")) >= mark.decision:
        return
    created = _number(before.get("creationTime")) or mark.time
    _replace(storage, folder, _content(mark, created))


def _content(mark: Mark, created: int) -> bytes:
    fields = {
        "creationTime": created,
        "modificationTime": mark.time,
        "decision": mark.decision,
        "snapshot": mark.snapshot,
        "watermark": mark.watermark,
    }
    return json.dumps(fields).encode()


def _read(storage: Storage, name: str) -> dict[str, Any]:
    """Return the fields of the file; none if there is no file, or one of another product."""
    raw = storage.read(name)
    try:
        found = json.loads(raw) if raw else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _replace(storage: Storage, folder: str, content: bytes) -> None:
    if storage.object_store:
        # A put replaces an object as a whole.
        storage.write(folder, {NAME: content})
        return
    draft = f".{NAME}.{uuid.uuid4()}.tmp"
    storage.write(folder, {draft: content})
    place = os.path.join(storage.root, folder)
    try:
        os.replace(os.path.join(place, draft), os.path.join(place, NAME))
    except OSError as error:
        storage.discard(folder, [draft])
        raise LakeUnavailable(f"cannot put {NAME} in {place}: {error}. Look at that folder") from error
    storage.settle(folder)
