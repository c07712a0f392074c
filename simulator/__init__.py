"""The real core under a seeded scheduler, with every invariant checked after every step."""

from sluicegate.simulator.invariants import Violation
from sluicegate.simulator.schedule import Outcome, Schedule

__all__ = ["Outcome", "Schedule", "Violation"]
