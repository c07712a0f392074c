"""What is advised about the sink's options, and about what it runs in, is done and then accepted."""

import asyncio
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from sluicegate.embedded.ports import free_port
from sluicegate.events.models import CheckpointCompleted
from sluicegate.kafka.clients import started
from sluicegate.writer_hooks import (
    BadOption,
    EventTooLarge,
    PreflightFailed,
    preflight,
)
from sluicegate.writer_hooks.kafka import KafkaSettings
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.registration import ask
from sluicegate.writer_hooks.spark import session
from sluicegate.writer_hooks.spark.examining import troubles
from tests.hooks.conftest import make_table
from tests.hooks.log import Log, silent
from tests.hooks.test_preflight import nobody_answers
from tests.hooks.test_publisher import completion
from tests.hooks.test_thin_install import without
from tests.hooks.unanswered import unanswered
from tests.integration.coordinator import running, settings_for
from tests.integration.test_preflight import is_accepted
from tests.integration.waiting import BACKSTOP, until
from tests.tls import KEY_WORD, make_certificates

GOOD = {
    "stream": "flights",
    "region": "JFK",
    "path": "/lake/flights",
    "kafka.bootstrap.servers": "broker:9092",
    "checkpointlocation": "/checkpoints/jfk",
}
TWO_WORDS = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.username": "writer",
    "kafka.sasl.password": "one",
    "kafka.sasl.password.file": "/run/secrets/word",
}
LOGIN = {"kafka.sasl.username": "writer", "kafka.sasl.password": "one"}


@pytest.mark.parametrize(
    ("wrong", "advice", "change"),
    [
        (
            TWO_WORDS,
            "kafka.sasl.password and kafka.sasl.password.file are both set; set one of them",
            {"kafka.sasl.password": None},
        ),
        (TWO_WORDS, "are both set; set one of them", {"kafka.sasl.password.file": None}),
        (
            {"kafka.ssl.key.password": "one", "kafka.ssl.key.password.file": "/run/secrets/word"},
            "kafka.ssl.key.password and kafka.ssl.key.password.file are both set; set one of them",
            {"kafka.ssl.key.password": None},
        ),
        (
            LOGIN,
            "set kafka.security.protocol to SASL_SSL (or SASL_PLAINTEXT)",
            {"kafka.security.protocol": "SASL_SSL"},
        ),
        (
            LOGIN,
            "set kafka.security.protocol to SASL_SSL (or SASL_PLAINTEXT)",
            {"kafka.security.protocol": "SASL_PLAINTEXT"},
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.key.location": "/run/key.pem"},
            "kafka.ssl.key.location is set, but kafka.ssl.certificate.location is not; set both or none",
            {"kafka.ssl.certificate.location": "/run/certificate.pem"},
        ),
        (
            {"checkpointlocation": None},
            "set it on the query itself, not in the session",
            {"checkpointlocation": "/checkpoints/jfk"},
        ),
        (
            {"regions": "EWR,LGA", "assignment": "1"},
            "correct the option region or the option regions",
            {"region": "EWR"},
        ),
        (
            {"regions": "EWR,LGA", "assignment": "1"},
            "correct the option region or the option regions",
            {"regions": "EWR,JFK"},
        ),
        (
            {"regions": "EWR,JFK"},
            "it numbers their list; raise it whenever the list changes",
            {"assignment": "1"},
        ),
    ],
)
def test_options_that_are_corrected_as_advised_are_accepted(
    wrong: dict[str, str | None], advice: str, change: dict[str, str | None]
) -> None:
    given = GOOD | wrong
    with pytest.raises(BadOption, match=re.escape(advice)):
        SinkOptions.parse({name: value for name, value in given.items() if value is not None})
    mended = SinkOptions.parse({name: value for name, value in (given | change).items() if value is not None})
    assert mended.region.name in mended.region.assignment.regions


def test_the_number_of_a_list_of_regions_is_raised_as_it_changes() -> None:
    several = GOOD | {"regions": "EWR,JFK"}
    with pytest.raises(BadOption, match="raise it whenever the list changes"):
        SinkOptions.parse(several)
    numbered = SinkOptions.parse(several | {"assignment": "1"}).region.assignment
    changed = SinkOptions.parse(several | {"regions": "EWR,JFK,LGA", "assignment": "2"}).region.assignment
    assert (numbered.number, numbered.regions) == (1, ("EWR", "JFK"))
    assert (changed.number, changed.regions) == (2, ("EWR", "JFK", "LGA"))


@pytest.mark.slow
def test_tls_files_are_given_as_pem_and_with_the_word_of_the_key(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    other = tmp_path / "ca.jks"
    other.write_bytes(b"\xfe\xed\xfe\xed")
    wrong = {
        "kafka.bootstrap.servers": "broker:9093",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": str(other),
        "kafka.ssl.certificate.location": str(made.client),
        "kafka.ssl.key.location": str(made.client_key),
    }
    advice = "cannot be used on this machine: .*; give PEM files, and kafka.ssl.key.password if the key has"
    with pytest.raises(BadOption, match=advice):
        KafkaSettings.from_options(wrong).client_options()
    pem = wrong | {"kafka.ssl.ca.location": str(made.ca)}
    with pytest.raises(BadOption, match=advice):
        KafkaSettings.from_options(pem).client_options()
    with_word = pem | {"kafka.ssl.key.password": KEY_WORD}
    assert KafkaSettings.from_options(with_word).client_options()["ssl_context"].check_hostname


@pytest.mark.slow
def test_what_a_writing_job_needs_is_what_the_line_installs() -> None:
    """The packages of the extras that it names are those that tests run with."""
    refused = without({"pyarrow", "pypaimon"}, "from sluicegate.writer_hooks import attach")
    assert 'install what a writing job needs with: pip install "sluicegate[paimon,spark]"' in refused.stderr
    needed = [text for text in metadata.requires("sluicegate") or () if re.search("'?(paimon|spark)", text)]
    assert {re.split(r"[^\w-]", text)[0] for text in needed} >= {"pypaimon", "pyspark"}
    done = without(set(), "from sluicegate.writer_hooks import attach")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_workers_python_is_set_as_advised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = tmp_path / "python3"
    other.write_text("")
    other.chmod(0o700)
    session._check_python(str(other))
    (message,) = caplog.messages
    advised = re.search(r"set PYSPARK_PYTHON=(\S+) before the session", message)
    assert advised is not None
    caplog.clear()
    session._check_python(advised[1])
    assert caplog.messages == []
    subprocess.run([advised[1], "-c", "import sluicegate.writer_hooks"], check=True)
    assert Path(advised[1]) == Path(sys.executable)


def kafka_options(tmp_path: Path, bootstrap: str, prefix: str) -> dict[str, str]:
    return {
        "stream": "flights",
        "region": "JFK",
        "table": str(tmp_path / "default.db" / "flights"),
        "kafka.bootstrap.servers": bootstrap,
        "topic.prefix": prefix,
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }


@pytest.mark.kafka
def test_a_wrong_address_of_kafka_is_corrected(tmp_path: Path, log: Log) -> None:
    make_table(tmp_path)
    options = kafka_options(tmp_path, f"127.0.0.1:{free_port()}", log.names.prefix)
    with pytest.raises(PreflightFailed, match=r"check the options kafka\.\*, and that it runs"):
        preflight(options | {"kafka.request.timeout.ms": "500"}, timeout=0.5)  # time: nothing answers
    right = SinkOptions.parse(options | {"kafka.bootstrap.servers": log.bootstrap})
    assert list(troubles(right, BACKSTOP)) == []


@pytest.mark.kafka
def test_a_registration_is_answered_once_a_coordinator_runs_there(tmp_path: Path, log: Log) -> None:
    options = kafka_options(tmp_path, log.bootstrap, log.names.prefix)
    log.answer = silent
    advice = f"Check that a coordinator runs against {log.bootstrap} with the topic prefix {log.names.prefix}"
    assert advice in unanswered(options)[1]
    log.answer = None
    patient = SinkOptions.parse(options | {"registration.timeout": str(BACKSTOP)}).region
    assert ask(patient, patient.registration("i", None)).live == "i"


@pytest.mark.kafka
async def test_preflight_passes_once_a_coordinator_is_started(tmp_path: Path, log: Log) -> None:
    make_table(tmp_path)
    options = kafka_options(tmp_path, log.bootstrap, log.names.prefix)
    log.answer = silent
    advice = f"with the topic prefix {log.names.prefix}"
    told = await asyncio.to_thread(nobody_answers, options)
    assert advice in told
    assert "start one with sluicegate run" in told
    streams = {"flights": {"table": options["table"]}}
    async with running(settings_for(log.bootstrap, log.names.prefix, streams)):
        await until(lambda: is_accepted(options))


async def raise_limit(bootstrap: str, topic: str, limit: int) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        configs = {"max.message.bytes": str(limit)}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])


@pytest.mark.kafka
def test_a_large_event_is_taken_once_the_limit_of_the_topic_is_raised(log: Log) -> None:
    publisher, large = (
        shared_publisher(KafkaSettings(bootstrap_servers=log.bootstrap)),
        completion(log, 100_000),
    )
    with pytest.raises(
        EventTooLarge,
        match=r"exceeds the broker's message limit for the topic .*; raise the topic's max\.message\.bytes",
    ):
        publisher.publish(log.names.events, [large], BACKSTOP)
    asyncio.run(raise_limit(log.bootstrap, log.names.events, 8_000_000))
    publisher.publish(log.names.events, [large], BACKSTOP)
    log.wait(lambda: log.of(CheckpointCompleted), "the large completion")
