"""Names of drafts: read back by us, taken by readers, and of nobody else."""

import uuid
from itertools import product

import pytest
from pyiceberg.catalog import MetastoreCatalog

from sluicegate.events.files import attempt_label, stated_attempt
from sluicegate.lakes.drafts import COORDINATOR, draft_names, draft_owner, stated_draft

OTHER = uuid.UUID("6470f0d1-5a2b-4c3d-8e4f-0123456789ab")
NAMES = draft_names("t", "main", "sluicegate-flights", 17)
OWNER = draft_owner("t", "main", "sluicegate-flights")


@pytest.mark.parametrize(
    ("before", "kind", "after"),
    [
        ("", "manifest", "-m0.avro"),
        ("", "manifest-list", "-1"),
        ("", "snap-6470-0", ".avro"),
        (".snapshot-5.", "draft", ".tmp"),
        (f".{5:020d}.json.", "draft", ".tmp"),
    ],
)
def test_a_name_states_owner_decision_and_coordinator(before: str, kind: str, after: str) -> None:
    name = f"{before}{NAMES.name(kind)}{after}"
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
        f"{OTHER}-m0.avro",
        f"snap-6470-1-{OTHER}.avro",
        f"00012-{OTHER}.metadata.json",
        f"manifest-{OTHER}-0",
        f"manifest-list-{OTHER}-0",
        f".snapshot-5.{OTHER}.tmp",
        f"data-{attempt_label('s', 'r', 16 * 'q', 7, 'w', 'a')}-{OTHER}.parquet",
        "snapshot-5",
        f"{5:020d}.json",
    ],
)
def test_files_of_others_are_no_drafts(name: str) -> None:
    assert stated_draft(name) is None
