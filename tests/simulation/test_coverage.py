"""The table of coverage has every fault of the simulator, and everything that the core can do."""

import re
from pathlib import Path
from typing import get_args

from sluicegate.coordinator.core import registration, replica
from sluicegate.coordinator.core.effects import Append
from sluicegate.events.models import Command
from sluicegate.events.notifications import NotificationType
from sluicegate.events.problems import Code
from tests.simulator.coverage import FAULTS, REFUSALS, RESULTS, TRANSITIONS, effects_of_core, rows
from tests.simulator.fates import FATES, KINDS
from tests.simulator.plan import FAULTS as OF_PLANS
from tools.docs.states_page import REGION

_RARE = {
    Code.TAKE_OVER_AHEAD,
    Code.OFFSETS_KIND_DIFFERS,
    Code.NOT_APPLICABLE,
    Code.ASSIGNMENT_TOO_HIGH,
    Code.TOO_MANY_REGIONS,
}
"""No refusal, and refusals that need numbers or lists that no plan has."""


def test_every_effect_of_the_core_is_in_the_table() -> None:
    crashes = {name.removeprefix("crash after ") for name in FAULTS if name.startswith("crash after ")}
    events = {kind for kind in crashes if "." in kind}
    assert crashes - events | {Append.__name__, "WriteView"} == effects_of_core()
    assert {name.split(" -> ")[0] for name in RESULTS} == {*KINDS, "WriteView"}


def test_every_event_that_the_core_appends_is_in_the_table() -> None:
    folder = Path(registration.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    appended = {*re.findall(r"Append\(\s*EventType\.(\w+)", text), "CUT_REVERTED", "CUT_COMMITTED"}
    assert {name.lower().replace("_", ".") for name in appended} == {kind for kind in KINDS if "." in kind}


def test_every_change_of_a_region_is_in_the_table() -> None:
    assert {f"phase: {row.cause}" for row in REGION} <= {*TRANSITIONS}


def test_every_command_is_in_the_table() -> None:
    assert {f"command: {name}" for name in get_args(Command)} == {
        name for name in TRANSITIONS if name.startswith("command: ")
    }


def test_every_fault_is_in_the_table() -> None:
    assert {*OF_PLANS} <= {*FAULTS}
    for fate in FATES:
        assert any(name.startswith(f"{fate}: ") for name in FAULTS), fate


def test_every_refusal_of_a_registration_is_in_the_table() -> None:
    judged = Path(registration.__file__).read_text(encoding="utf-8")
    answered = Path(replica.__file__).read_text(encoding="utf-8")
    codes = {*re.findall(r"Code\.(\w+)", judged)} | {*re.findall(r"Code\.(REGISTRATION_\w+)", answered)}
    # A withdrawal without effect is no refusal.
    assert {Code[name] for name in codes} - _RARE == {*REFUSALS}


def test_every_notification_is_in_the_table() -> None:
    assert {f"announced: {kind}" for kind in NotificationType} <= {*TRANSITIONS}


def test_names_are_distinct() -> None:
    names = [row.name for row in rows({})]
    assert len({*names}) == len(names) >= 150
