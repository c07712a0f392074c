"""The real core under a seeded scheduler, with every invariant checked after every step."""

from sluicegate.simulator.campaign import LENGTH, Campaign, run_campaign
from sluicegate.simulator.coverage import ENOUGH, FAULTS, TRANSITIONS, Row, rare, rows
from sluicegate.simulator.plan import Plan, Setting, Step, draw_plan
from sluicegate.simulator.report import failure_in_words, summary, table
from sluicegate.simulator.schedule import Outcome, Schedule
from sluicegate.simulator.shrink import Failure, attempt, shrink
from sluicegate.simulator.violation import Violation

__all__ = [
    "ENOUGH",
    "FAULTS",
    "LENGTH",
    "TRANSITIONS",
    "Campaign",
    "Failure",
    "Outcome",
    "Plan",
    "Row",
    "Schedule",
    "Setting",
    "Step",
    "Violation",
    "attempt",
    "draw_plan",
    "failure_in_words",
    "rare",
    "rows",
    "run_campaign",
    "shrink",
    "summary",
    "table",
]
