"""Large state records: they are compressed, the largest one passes, and one that is refused waits."""

import random

import pytest

from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.records import read_held
from sluicegate.coordinator.stream.state_records import encode_record
from sluicegate.events.models import MOST_REGIONS
from sluicegate.kafka.clients import started
from sluicegate.kafka.producer import SessionProducer
from tests.golden.coordinator import STREAM
from tests.golden.largest_record import largest_record
from tests.integration.conftest import Place

pytestmark = pytest.mark.kafka


async def test_the_largest_record_passes_the_topic(place: Place) -> None:
    kafka, record = place.settings().kafka, largest_record(random.Random(1))
    options = kafka.client_options()
    async with started(SessionProducer(kafka.max_message_bytes, kafka.limits(), **options)) as producer:
        for number in range(2):
            value = encode_record(record.model_copy(update={"applied": number}))
            await producer.send_and_wait(place.topics.state, value, key=STREAM.encode(), partition=0)
    found = (await read_held(kafka, 1, [STREAM]))[STREAM].record
    assert isinstance(found, StateRecord)
    assert (found.applied, len(found.state.regions)) == (1, MOST_REGIONS)
