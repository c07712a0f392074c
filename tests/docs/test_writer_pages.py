"""The pages for foreign writers: each example is what the code makes."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest

from sluicegate.coordinator.observe.messages import REFUSAL_MESSAGES as MESSAGES
from sluicegate.events.asyncapi import OF_WRITERS, document
from sluicegate.events.envelope import BODIES, key_of, partition_of, wire_type
from sluicegate.events.files import attempt_digest
from sluicegate.events.notifications import NOTIFICATION_BODIES
from sluicegate.events.problems import Code
from sluicegate.lakes.delta.log import Metadata
from sluicegate.lakes.delta.schema import read_schema

ROOT: Final = Path(__file__).parents[2]
CONTRACT: Final = (ROOT / "docs" / "writers" / "contract.md").read_text(encoding="utf-8")
FILES: Final = (ROOT / "docs" / "writers" / "files.md").read_text(encoding="utf-8")


def references(part: Any) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set[str]()
        return own.union(*(references(each) for each in part.values()))
    return set[str]().union(*(references(each) for each in part)) if isinstance(part, list) else set()


def found(whole: Any, reference: str) -> Any:
    for name in reference.removeprefix("#/").split("/"):
        whole = whole[name]
    return whole


@pytest.mark.slow
def test_each_reference_of_the_document_leads_somewhere() -> None:
    written = json.loads(json.dumps(document()))
    assert all(isinstance(found(written, each), dict) for each in references(written))
    wires = {wire_type(kind).decode() for kind in (*BODIES, *NOTIFICATION_BODIES)}
    assert {each["name"] for each in written["components"]["messages"].values()} == wires
    sent = [found(written, each["$ref"]) for each in written["operations"]["publish"]["messages"]]
    names = {found(written, each["$ref"])["name"] for each in sent}
    assert names == {wire_type(kind).decode() for kind in OF_WRITERS}


def table(page: str, heading: str) -> list[list[str]]:
    """Return the rows of the table below a line of headings."""
    lines = page.partition(f"\n{heading}\n")[2].splitlines()[1:]
    rows = lines[: next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    return [[cell.strip().strip("`") for cell in row.strip("|").split(" | ")] for row in rows]


def test_the_partitions_of_the_page() -> None:
    rows = table(CONTRACT, "| stream | CRC-32 | of 12 partitions | of 50 partitions |")
    assert len(rows) == 2
    for stream, checksum, *partitions in rows:
        assert crc32(stream.encode()) == int(checksum)
        assert [partition_of(stream, 12), partition_of(stream, 50)] == [int(each) for each in partitions]


def test_the_keys_of_the_page() -> None:
    assert f"`{key_of('flights', 'EWR', 7).decode()}`" in CONTRACT
    assert f"`{key_of('flights', 'EWR').decode()}`" in CONTRACT


def test_the_digests_of_the_page() -> None:
    rows = table(CONTRACT, "| input | digest |")
    assert len(rows) == 2
    for text, digest in rows:
        stream, region, incarnation, checkpoint, writer, attempt = text.split("/", 5)
        assert attempt_digest(stream, region, incarnation, int(checkpoint), writer, attempt) == digest
        assert hashlib.sha256(text.encode()).hexdigest()[:32] == digest


def test_the_schema_id_of_the_page() -> None:
    ((text, number),) = table(FILES, "| input | `schema_id` |")
    mode, partitions, columns = json.loads(text)
    fields = [
        {"name": name, "type": kind, "nullable": nullable, "metadata": {}}
        for name, _, nullable, kind in columns
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = Metadata(
        id="t", schema=schema, partition_columns=tuple(partitions), configuration={}, provider="parquet"
    )
    read = read_schema(metadata)
    assert (read.mode, read.id) == (mode, int(number))


def test_each_code_of_a_refusal_is_on_the_page() -> None:
    rows = table(CONTRACT, "| reaction | codes |")
    named = [code for _, codes in rows for code in re.findall(r"`?([a-z]+(?:-[a-z]+)+)`?(?:,|$| and)", codes)]
    assert sorted(named) == sorted({*MESSAGES, Code.UNKNOWN_STREAM, Code.WRONG_PARTITION})


def test_the_contract_fits_on_a_page() -> None:
    assert len(CONTRACT.splitlines()) <= 130
