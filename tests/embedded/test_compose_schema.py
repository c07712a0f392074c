"""The compose file follows the Compose Specification's schema."""

import copy
from typing import Any

import pytest
import yaml
from compose_pydantic import ComposeSpecification  # type: ignore[import-not-found, import-untyped, unused-ignore]
from pydantic import ValidationError

from tests.servers import COMPOSE_FILE


@pytest.fixture
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))
    return loaded


def test_the_compose_file_follows_the_schema(document: dict[str, Any]) -> None:
    assert set(ComposeSpecification.model_validate(document).services) == {"kafka", "valkey", "coordinator"}


@pytest.mark.parametrize(
    ("service", "key", "value"),
    [
        ("kafka", "imagee", "apache/kafka"),
        ("valkey", "healthcheck", {"intervall": "5s"}),
        ("coordinator", "depends_on", {"kafka": {"condition": "healthy"}}),
    ],
)
def test_the_schema_refuses_mistakes(document: dict[str, Any], service: str, key: str, value: object) -> None:
    broken = copy.deepcopy(document)
    broken["services"][service][key] = value
    with pytest.raises(ValidationError, match=key):
        ComposeSpecification.model_validate(broken)
