"""Where an engine answers, the servers of the tests are containers of the images in docker-compose.yml."""

import asyncio
import subprocess

import pytest
import redis

from tests.integration.job import make_topics
from tests.servers import compose_service

pytestmark = pytest.mark.engine


def test_kafka_and_valkey_run_in_containers(
    engine: None, kafka_bootstrap: str, redis_url: str, unique: str
) -> None:
    asyncio.run(make_topics(kafka_bootstrap, unique))
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()
    listed = subprocess.run(
        ["docker", "ps", "--format", "{{.Image}}"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {compose_service("kafka").image, compose_service("valkey").image} <= {*listed}
