"""What an error of an object store advises is done, and the same step succeeds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.coordinator.observe.messages import format_cause
from sluicegate.embedded.ports import free_port
from sluicegate.lakes.port import LakeUnavailable, Published, Refused, TableRefused
from sluicegate.lakes.storage import CannotPut
from sluicegate.lakes.storages import location_uri, open_storage
from tests.doubles.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, Effect, S3Double
from tests.lakes.paimon.objects import ObjectTable

URI = f"s3://{BUCKET}/warehouse/numbers"
Setting = Callable[[S3Double, pytest.MonkeyPatch], None]


def no_bucket(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    double.buckets.clear()


def bucket_made(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    double.buckets.add(BUCKET)


def no_rights(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    double.access_keys.clear()


def rights_given(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    double.access_keys.add(ACCESS_KEY)


def no_credentials(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    environment.delenv("AWS_ACCESS_KEY_ID")
    environment.delenv("AWS_SECRET_ACCESS_KEY")
    environment.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")


def credentials_set(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


def other_region(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    double.region = "eu-central-1"


def region_set(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_REGION", "eu-central-1")


def no_plain_http(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    environment.delenv("AWS_ALLOW_HTTP")


def plain_http_allowed(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_ALLOW_HTTP", "true")


def wrong_endpoint(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")


def endpoint_corrected(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_ENDPOINT_URL", double.endpoint)


def setting_that_the_store_rejects(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_SERVER_SIDE_ENCRYPTION", "AES256")


def setting_removed(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    environment.delenv("AWS_SERVER_SIDE_ENCRYPTION")


def sick(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    double.strike(Effect.UNAVAILABLE, "manifest-1", times=1_000)


def healthy(double: S3Double, environment: pytest.MonkeyPatch) -> None:
    double.faults.clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "advice", "follow"),
    [
        (no_bucket, "Create the bucket, or correct the location of the table", bucket_made),
        (no_rights, "Give the credentials in the environment of this process the rights", rights_given),
        (no_credentials, "Set credentials in the environment of this process", credentials_set),
        (other_region, "Set AWS_REGION to the region of the bucket", region_set),
        (no_plain_http, "set AWS_ALLOW_HTTP=true", plain_http_allowed),
        (wrong_endpoint, "See whether this host reaches the endpoint", endpoint_corrected),
        (setting_that_the_store_rejects, "See the settings of the object store", setting_removed),
        (sick, "See the health of the object store", healthy),
    ],
)
def test_a_file_is_written_after_what_the_store_needs_is_done(
    s3_double: S3Double, monkeypatch: pytest.MonkeyPatch, trouble: Setting, advice: str, follow: Setting
) -> None:
    trouble(s3_double, monkeypatch)
    with pytest.raises(LakeUnavailable) as raised:
        open_storage(URI).write("manifest", {"manifest-1": b"1"})
    assert f"cannot write manifest-1 to the folder manifest of {URI}" in str(raised.value)
    assert advice in str(raised.value)
    follow(s3_double, monkeypatch)
    storage = open_storage(URI)
    storage.write("manifest", {"manifest-1": b"1"})
    assert storage.read("manifest/manifest-1") == b"1"


def test_the_location_is_corrected_in_place_of_a_new_bucket(s3_double: S3Double) -> None:
    with pytest.raises(LakeUnavailable, match="or correct the location of the table"):
        open_storage("s3://laek/warehouse/numbers").read("schema/schema-0")
    assert open_storage(URI).read("schema/schema-0") is None


def test_a_setting_that_cannot_be_read_is_corrected(
    s3_double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "perhaps")
    with pytest.raises(TableRefused, match="Correct its variables for the object store"):
        open_storage(URI)
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false")
    assert open_storage(URI).names(".") == []


@pytest.mark.parametrize(
    ("location", "advice", "corrected"),
    [
        (f"s3a://{BUCKET}/t", "Write the location with s3://", f"s3://{BUCKET}/t"),
        (f"s3://key:pass@{BUCKET}/t", "Correct the location; the environment names those", URI),
        (f"s3://{BUCKET}/a%20b", "Use a folder without these", f"s3://{BUCKET}/a b"),
        ("hdfs://host/t", "Use a local or mounted path", "/mnt/t"),
    ],
)
def test_a_location_is_taken_after_its_correction(location: str, advice: str, corrected: str) -> None:
    with pytest.raises(TableRefused) as raised:
        location_uri(location)
    assert advice in str(raised.value)
    assert location_uri(corrected).endswith(corrected)


@pytest.mark.slow
def test_another_store_with_conditional_writes_is_used(s3_double: S3Double) -> None:
    s3_double.heeds_conditions = False
    with pytest.raises(CannotPut, match="Use a store with conditional writes"):
        open_storage(URI).put_if_absent("snapshot/snapshot-1", b"1")
    s3_double.strike(Effect.UNSUPPORTED, times=1_000)
    with pytest.raises(CannotPut, match="Use a store with conditional writes"):
        open_storage(URI).put_if_absent("snapshot/snapshot-1", b"1")
    s3_double.faults.clear()
    s3_double.heeds_conditions = True
    assert open_storage(URI).put_if_absent("snapshot/snapshot-1", b"1")


@pytest.mark.slow
def test_a_table_is_moved_to_a_store_with_conditional_writes(
    s3_double: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ObjectTable(URI, tmp_path)
    event, stream = table.event([1, 2]), table.stream()
    s3_double.heeds_conditions = False
    outcome = stream.publish(1, stream.head(1), [event])
    assert isinstance(outcome, Refused)
    assert outcome.cause is not None
    sentence = format_cause(outcome.cause, outcome.reason)
    assert "Move the table to a store with conditional writes" in sentence
    with S3Double() as other:
        other.objects.update(s3_double.objects)
        monkeypatch.setenv("AWS_ENDPOINT_URL", other.endpoint)
        moved = table.stream()
        assert isinstance(moved.publish(1, moved.head(1), [event]), Published)
        assert table.rows() == 2
