"""Names of drafts: read back by us, taken by readers, and of nobody else."""

import re
import uuid
from itertools import product

import pytest
from pyiceberg.catalog import MetastoreCatalog

from sluicegate.events.files import attempt_label, stated_attempt
from sluicegate.lakes.drafts import COORDINATOR, draft_names, draft_owner, stated_draft

NAMES = draft_names("t", "main", "sluicegate-flights", 17)
OWNER = draft_owner("t", "main", "sluicegate-flights")


@pytest.mark.parametrize(
    "name",
    [
        f"{NAMES.name('manifest')}-m0.avro",
        f"{NAMES.name('manifest-list')}-1",
        f"{NAMES.name('snap-6470-0')}.avro",
        f".snapshot-5.{NAMES.name('draft')}.tmp",
        f".{5:020d}.json.{NAMES.name('draft')}.tmp",
    ],
    ids=["manifest", "manifest list", "list of Iceberg", "snapshot", "version"],
)
def test_a_name_states_owner_decision_and_coordinator(name: str) -> None:
    found = stated_draft(name)
    assert found is not None
    assert found[:3] == (OWNER, 17, COORDINATOR)
    assert stated_attempt(name) is None


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_metadata_file_states_the_same_in_a_uuid(packed: str) -> None:
    name = f"00012-{NAMES.uuid()}{packed}.metadata.json"
    assert (uuid.UUID(NAMES.uuid()).version, NAMES.uuid()[-12:]) == (8, "000000000017")
    assert MetastoreCatalog._parse_metadata_version(f"s3://b/t/metadata/{name}") == 12
    found, other = stated_draft(name), stated_draft(f"{NAMES.name('manifest')}-m0.avro")
    assert found is not None
    assert other is not None
    assert (found.owner, found.decision, found.coordinator) == (OWNER[:8], 17, COORDINATOR[:4])
    assert found.publication == other.publication
    again = stated_draft(f"00012-{draft_names('t', 'main', 'sluicegate-flights', 17).uuid()}.metadata.json")
    assert again is not None
    assert again.publication != found.publication


def test_a_decision_with_too_many_digits_has_a_random_uuid() -> None:
    highest = draft_names("t", "", "u", 10**12 - 1).uuid()
    assert stated_draft(f"00001-{highest}.metadata.json") is not None
    beyond = draft_names("t", "", "u", 10**12).uuid()
    assert (uuid.UUID(beyond).version, stated_draft(f"00001-{beyond}.metadata.json")) == (4, None)


def test_tables_branches_and_users_have_their_own_drafts() -> None:
    each = product(("a", "b"), ("", "main", "b"), ("a", "b"))
    assert len({draft_owner(*parts) for parts in each}) == 12


@pytest.mark.parametrize(
    "name",
    [
        f"{uuid.UUID(int=7)}-m0.avro",
        f"snap-6470-1-{uuid.uuid4()}.avro",
        f"00012-{uuid.uuid4()}.metadata.json",
        f"manifest-{uuid.uuid4()}-0",
        f"manifest-list-{uuid.uuid4()}-0",
        f".snapshot-5.{uuid.uuid4()}.tmp",
        f"data-{attempt_label('s', 'r', 16 * 'q', 7, 'w', 'a')}-{uuid.uuid4()}.parquet",
        "snapshot-5",
        f"{5:020d}.json",
    ],
    # The names are random, and each process of a run must find the same tests.
    ids=lambda name: re.sub("[0-9a-f-]{32,}", "X", name),
)
def test_files_of_others_are_no_drafts(name: str) -> None:
    assert stated_draft(name) is None
