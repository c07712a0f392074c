"""The flag that rewrites expectations: `pytest tests/golden --rewrite-golden`, then review the diff."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the flag; it exists when this folder is named on the command line."""
    parser.addoption(
        "--rewrite-golden", action="store_true", help="write what the core does into the golden cases"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether the expected lines are to be rewritten."""
    return bool(request.config.getoption("--rewrite-golden", default=False))
