"""Requests to an object store that fail, get lost or take long: no outcome is guessed."""

import re
import sys
import traceback
from collections.abc import Callable

import pytest

from sluicegate.events.problems import CauseCode
from sluicegate.installation import install_command
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.storage import CannotPut, Storage, Uncertain
from sluicegate.lakes.storages import location_uri, open_storage
from tests.doubles.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, Effect, S3Double

URI = f"s3://{BUCKET}/warehouse/numbers"
NAME = "snapshot/snapshot-1"
KEY = f"warehouse/numbers/{NAME}"
ALWAYS = 1_000


@pytest.fixture
def storage(s3_double: S3Double) -> Storage:
    return open_storage(URI)


BEFORE = (Effect.LOST_BEFORE, Effect.UNAVAILABLE, Effect.CONFLICT)
"""What a put meets before its effect, and may be tried again."""
AFTER = (Effect.LOST_AFTER, Effect.ERROR_AFTER)


@pytest.mark.parametrize(
    ("effect", "times"),
    [
        *((effect, times) for effect in (*BEFORE, *AFTER) for times in (1, 3)),
        *((each, ALWAYS) for each in AFTER),
    ],
)
def test_a_put_succeeds_after_requests_that_failed(
    s3_double: S3Double, storage: Storage, effect: Effect, times: int
) -> None:
    """Also if the first one had its effect: what is there is compared with what was put."""
    s3_double.strike(effect, NAME, times=times)
    assert storage.put_if_absent(NAME, b"ours")
    assert s3_double.objects[KEY] == b"ours"


@pytest.mark.parametrize(
    ("effect", "error"),
    [
        (Effect.LOST_BEFORE, Uncertain),
        (Effect.UNAVAILABLE, Uncertain),
        (Effect.CONFLICT, LakeUnavailable),
        (Effect.REJECTED, LakeUnavailable),
    ],
)
def test_a_put_that_always_fails_before_its_effect(
    s3_double: S3Double, storage: Storage, effect: Effect, error: type[Exception]
) -> None:
    """Without any answer it is uncertain; one that is always refused was not made."""
    s3_double.strike(effect, NAME, times=ALWAYS)
    with pytest.raises(error) as raised:
        storage.put_if_absent(NAME, b"ours")
    assert type(raised.value) is error
    assert KEY not in s3_double.objects


@pytest.mark.parametrize("effect", [*BEFORE, Effect.LOST_AFTER])
def test_a_put_that_another_writer_overtakes_between_its_attempts(
    s3_double: S3Double, storage: Storage, effect: Effect
) -> None:
    """Or whose effect another writer has overwritten."""
    fault = s3_double.strike(effect, NAME)
    fault.meanwhile = lambda: s3_double.objects.update({KEY: b"theirs"})
    assert not storage.put_if_absent(NAME, b"ours")
    assert s3_double.objects[KEY] == b"theirs"


def test_a_taken_name_is_taken_although_its_file_is_deleted_then(
    s3_double: S3Double, storage: Storage
) -> None:
    s3_double.objects[KEY] = b"theirs"
    fault = s3_double.strike(Effect.HELD_BEFORE, NAME, method="GET")
    fault.meanwhile = lambda: s3_double.objects.pop(KEY, None)
    fault.release.set()
    assert not storage.put_if_absent(NAME, b"ours")
    assert KEY not in s3_double.objects


def test_a_put_that_cannot_be_read_back_is_uncertain(s3_double: S3Double, storage: Storage) -> None:
    s3_double.strike(Effect.LOST_AFTER, NAME)
    s3_double.strike(Effect.REJECTED, NAME, method="GET", times=ALWAYS)
    with pytest.raises(Uncertain):
        storage.put_if_absent(NAME, b"ours")
    assert s3_double.objects[KEY] == b"ours"


def test_a_refusal_after_a_lost_answer_proves_nothing(s3_double: S3Double, storage: Storage) -> None:
    s3_double.strike(Effect.LOST_BEFORE, NAME)
    s3_double.strike(Effect.REJECTED, NAME, times=ALWAYS)
    with pytest.raises(Uncertain):
        storage.put_if_absent(NAME, b"ours")


@pytest.mark.slow
def test_a_slow_put_is_repeated_and_has_its_effect_once(
    s3_double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", "500 ms")
    storage = open_storage(URI)
    held = s3_double.strike(Effect.HELD_BEFORE, NAME)
    assert storage.put_if_absent(NAME, b"ours")
    storage.remove(NAME)
    storage.write("snapshot", {"snapshot-1": b"later"})
    held.release.set()
    s3_double.settle()
    assert s3_double.objects[KEY] == b"later"


@pytest.mark.slow
def test_a_put_that_lands_after_its_attempts_was_called_uncertain(
    s3_double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", "300 ms")
    storage = open_storage(URI)
    held = s3_double.strike(Effect.HELD_BEFORE, NAME, times=ALWAYS)
    with pytest.raises(Uncertain, match="no answer in time"):
        storage.put_if_absent(NAME, b"ours")
    assert KEY not in s3_double.objects
    held.release.set()
    s3_double.settle()
    assert s3_double.objects[KEY] == b"ours"


@pytest.mark.slow
def test_a_truncated_answer_is_never_taken_for_the_file(s3_double: S3Double, storage: Storage) -> None:
    content = bytes(range(256)) * 512
    s3_double.objects[KEY] = content
    s3_double.strike(Effect.TRUNCATED, NAME, method="GET")
    assert storage.read(NAME) == content
    s3_double.strike(Effect.TRUNCATED, NAME, method="GET", times=ALWAYS)
    with pytest.raises(LakeUnavailable):
        storage.read(NAME)


@pytest.mark.slow
@pytest.mark.parametrize("size", [100, (16 << 20) + 1], ids=["one request", "parts"])
@pytest.mark.parametrize(
    "effect", [Effect.LOST_BEFORE, Effect.LOST_AFTER, Effect.UNAVAILABLE, Effect.ERROR_AFTER]
)
def test_uploads_are_repeated(s3_double: S3Double, storage: Storage, effect: Effect, size: int) -> None:
    s3_double.strike(effect, "data.parquet", times=2)
    storage.write("bucket-0", {"data.parquet": bytes(size)})
    assert s3_double.objects["warehouse/numbers/bucket-0/data.parquet"] == bytes(size)


def test_a_store_that_ignores_conditions_is_refused_before_a_put(
    s3_double: S3Double, storage: Storage
) -> None:
    s3_double.heeds_conditions = False
    s3_double.objects[KEY] = b"theirs"
    with pytest.raises(CannotPut) as raised:
        storage.put_if_absent(NAME, b"ours")
    assert raised.value.code is CauseCode.NO_CONDITIONAL_PUT
    assert s3_double.objects == {KEY: b"theirs"}


def test_a_store_without_conditions_is_refused(s3_double: S3Double, storage: Storage) -> None:
    s3_double.strike(Effect.UNSUPPORTED, times=ALWAYS)
    with pytest.raises(CannotPut, match="501 NotImplemented"):
        storage.put_if_absent(NAME, b"ours")
    assert s3_double.objects == {}


def test_the_environment_cannot_switch_conditions_off(
    s3_double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    storage = open_storage(URI)
    assert storage.put_if_absent(NAME, b"ours")
    assert not storage.put_if_absent(NAME, b"theirs")


@pytest.mark.slow
def test_a_listing_of_many_pages_is_whole(s3_double: S3Double, storage: Storage) -> None:
    names = [f"{number:05}.json" for number in range(2_500)]
    s3_double.objects.update({f"warehouse/numbers/log/{name}": b"{}" for name in names})
    assert sorted(storage.names("log")) == names
    assert sorted(storage.names("log", names[1_200])) == names[1_201:]


def test_many_sizes_are_asked_side_by_side(s3_double: S3Double, storage: Storage) -> None:
    """The first answer comes only after the second request."""
    storage.write("bucket-0", {"a": b"1", "b": b"22"})
    held = s3_double.strike(Effect.HELD_BEFORE, "bucket-0/a", method="HEAD")
    second = s3_double.strike(Effect.HELD_AFTER, "bucket-0/b", method="HEAD")
    second.meanwhile = held.release.set
    second.release.set()
    assert storage.sizes(["bucket-0/a", "bucket-0/b"]) == [1, 2]


def without_effect(storage: Storage) -> list[Callable[[], object]]:
    """Give every step that tells of a failure."""
    return [
        lambda: storage.read(NAME),
        lambda: storage.names("snapshot"),
        lambda: storage.size(NAME),
        lambda: storage.write("manifest", {"a": b"1"}),
        lambda: storage.put_if_absent(NAME, b"ours"),
        lambda: storage.copy(open_storage(f"s3://{BUCKET}/elsewhere"), NAME),
    ]


@pytest.mark.slow
def test_no_error_shows_credentials(s3_double: S3Double, storage: Storage) -> None:
    s3_double.access_keys.clear()
    for step in without_effect(storage):
        with pytest.raises(LakeUnavailable) as raised:
            step()
        shown = "".join(traceback.format_exception(raised.value))
        assert ACCESS_KEY not in shown
        assert SECRET_KEY not in shown
        # The answer to a HEAD has no code.
        assert re.search(r"(the keys are not valid, or not any more|access is denied) \(403", shown)
        assert raised.value.__context__ is None


@pytest.mark.parametrize(
    "location",
    ["s3://key:pass-word@bucket/t", "s3://pass-word@bucket/t", "abfss://c@account:pass-word/t", "s3:///t"],
)
def test_a_location_with_credentials_is_refused_and_not_shown(location: str) -> None:
    with pytest.raises(TableRefused) as raised:
        location_uri(location)
    assert "pass-word" not in str(raised.value)


def test_a_setting_that_cannot_be_read_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "pass-word")
    with pytest.raises(TableRefused) as raised:
        open_storage(URI)
    assert "pass-word" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("s3://bucket/warehouse/t", "s3://bucket/warehouse/t"),
        ("s3://bucket//warehouse/./t//", "s3://bucket/warehouse/t"),
        ("S3://bucket/warehouse/t/", "s3://bucket/warehouse/t"),
        ("s3://bucket/", "s3://bucket"),
        ("gs://bucket/a b/café", "gs://bucket/a b/café"),
        (
            "abfss://lake@account.dfs.core.windows.net/warehouse/t/",
            "abfss://lake@account.dfs.core.windows.net/warehouse/t",
        ),
        ("/data//t/", "file:///data/t"),
        ("//data/t", "file:///data/t"),
        ("file:////data/a%20b/", "file:///data/a%20b"),
        ("/data/a b", "file:///data/a%20b"),
    ],
)
def test_each_table_has_one_uri(written: str, canonical: str) -> None:
    assert location_uri(written) == canonical
    assert location_uri(canonical) == canonical


@pytest.mark.parametrize(
    "location",
    [
        "s3://bucket/a/../b",
        "s3://bucket/a%20b",
        "s3://bucket/a?versionId=1",
        "s3://bucket/a#b",
        "s3://bucket/a\nb",
        "s3://bucket\\a",
    ],
)
def test_a_location_with_two_readings_is_refused(location: str) -> None:
    with pytest.raises(TableRefused):
        location_uri(location)


def test_without_its_package_a_table_in_an_object_store_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sluicegate.lakes.storage_objects")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(TableRefused) as raised:
        open_storage(URI)
    assert "needs a package that is not installed (obstore)" in str(raised.value)
    assert install_command("object-stores") in str(raised.value)


def test_a_bucket_that_is_not_there_is_named(s3_double: S3Double) -> None:
    with pytest.raises(LakeUnavailable, match="or correct the location of the table"):
        open_storage("s3://laek/warehouse/numbers").read("schema/schema-0")
    assert open_storage(f"s3://{BUCKET}/warehouse/numbers").read("schema/schema-0") is None
