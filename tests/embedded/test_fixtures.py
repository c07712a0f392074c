import redis


def test_shared_servers(redis_url: str, kafka_bootstrap: str, unique: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()
    assert kafka_bootstrap
