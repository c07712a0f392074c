"""Fixtures of the tests of upgrades and moves."""

from tests.faults.conftest import make as make
