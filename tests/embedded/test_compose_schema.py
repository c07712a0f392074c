"""The compose file follows the Compose Specification's schema."""

from typing import Any

import pytest
import yaml
from compose_pydantic import ComposeSpecification  # type: ignore[import-not-found, import-untyped, unused-ignore]

from tests.servers import COMPOSE_FILE

NAMES = ("kafka", "valkey", "topics", "coordinator")


@pytest.fixture
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))
    return loaded


def test_the_compose_file_follows_the_schema(document: dict[str, Any]) -> None:
    assert set(ComposeSpecification.model_validate(document).services) == {*NAMES}
