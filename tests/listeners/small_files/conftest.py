"""The deployment of the integration tests, for tests that run the whole service."""

from tests.integration.conftest import impatient, place

__all__ = ["impatient", "place"]
