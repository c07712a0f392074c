"""The texts of all regions together have a limit, so that each state record fits into a message."""

import random
import string
from itertools import pairwise
from typing import Final

import pytest

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.state import MOST_ENDED
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.state_records import decode_record, encode_record
from sluicegate.events.models import (
    MOST_REGION_NAMES,
    MOST_REGIONS,
    MOST_TEXT,
    CutDecided,
)
from sluicegate.events.notifications import Committed
from sluicegate.kafka.topics import MAX_MESSAGE_BYTES, STATE_MESSAGE_BYTES
from tests.golden.coordinator import STREAM
from tests.golden.largest_record import largest_record
from tests.golden.script import Script

LARGEST_DUE: Final = 128 << 10
"""Characters of the notifications in one record."""
LARGE: Final = "x" * (MOST_TEXT - 5_000)
"""Source offsets that an event may have; four of them fit."""
REGIONS: Final = tuple(f"r{number}" for number in range(6))


def played(*lines: str) -> str:
    """Return the reactions to the lines, without the long texts."""
    return Script().run("\n".join(lines)).replace(LARGE, "LARGE")


def registered(names: tuple[str, ...] = REGIONS) -> list[str]:
    return [f"regions {' '.join(names)}", *(f"register {name} {name}.0" for name in names)]


@pytest.mark.slow
def test_a_region_with_too_much_text_stays_and_the_others_commit() -> None:
    batches = [f"batch {name} {name}.0 0 f{name} offsets={LARGE} &" for name in REGIONS[:5]]
    found = played(
        *registered(),
        # The first cut is full, so it waits: five of these are too much.
        *batches,
        "batch r5 r5.0 0 f5 offsets=short",
        "show conditions",
        "register r4 r4.1 replaces=r4.0",
        "batch r4 r4.1 0 again offsets=short",
        # A second one, in a partial cut.
        f"batch r5 r5.0 1 g5 offsets={LARGE} &",
        "batch r4 r4.1 1 g4 offsets=short",
        "tick 11000",
        "show conditions",
        "register r5 r5.1 base=r5.0:0 replaces=r5.0",
        "batch r5 r5.1 1 h5 after=r5.0:0 offsets=short &",
        "tick 11000",
    )
    first, _, rest = found.partition("register r4 r4.1")
    assert "Publish" not in first
    assert "conditions: stall texts-too-large region=r4 other=262144" in first
    assert "Publish 1" in rest
    assert "stall texts-too-large region=r5 other=262144" in rest
    assert "fallback" in rest
    assert "Publish 3 [h5]" in rest


@pytest.mark.slow
def test_a_decision_of_another_coordinator_with_too_much_text_is_void() -> None:
    moved = " ".join(f"{name}={name}.0:0" for name in REGIONS[:5])
    found = played(
        *registered(REGIONS[:5]),
        *(f"batch {name} {name}.0 0 f{name} offsets={LARGE} &" for name in REGIONS[:5]),
        f"decide 1 {moved}",
    )
    assert "ignored cut.decided: texts-too-large" in found
    assert "Publish" not in found


@pytest.mark.slow
def test_listeners_of_a_region_add_up() -> None:
    """Each completion may name others."""
    states = [" ".join(f"l{batch}x{each}={'y' * 3_000}" for each in range(20)) for batch in range(6)]
    found = played(
        *registered(("r1",)),
        *(f"batch r1 r1.0 {n} f{n} {each}" for n, each in enumerate(states)),
        "show conditions",
    )
    assert "Publish 4" in found
    assert "Publish 5" not in found
    assert "texts-too-large region=r1" in found


def test_open_savepoints_have_a_limit() -> None:
    script = [
        *registered(("r1",)),
        *(f"command savepoint name=s{each}" for each in range(6)),
        "command cancel name=s0",
    ]
    found = played(*script, "command savepoint name=s5")
    assert found.count("ignored stream.command: too-many-savepoints number=5 [s0]") == 1


def test_regions_that_left_count() -> None:
    names = tuple(f"n{number}" for number in range(MOST_REGIONS))
    found = played(
        *registered(("r1",)),
        "batch r1 r1.0 0 a",
        "close r1 r1.0 0",
        f"regions {' '.join(names)}",
        "register n0 n0.0 number=1 after=1",
        f"regions {' '.join(names[1:])}",
        "register n1 n1.0 number=1 after=1",
    )
    assert f"refused too-many-regions other={MOST_REGIONS + 1} number=1 " in found
    assert "n1 n1.0 accepted" in found


def test_the_names_of_all_regions_have_a_limit_together() -> None:
    names = [f"{'r' * 195}{number:05}" for number in range(MOST_REGION_NAMES // 200 + 1)]
    found = played(f"regions {' '.join(names)}", f"register {names[0]} life")
    assert f"refused too-many-regions other={len(names)} number=0 " in found
    found = played(f"regions {' '.join(names[1:])}", f"register {names[1]} life")
    assert "life accepted" in found


@pytest.mark.slow
def test_answers_that_piled_up_are_announced_before_a_record_has_all_of_them() -> None:
    """Regions of any name may ask while no coordinator answers."""
    script = Script()
    asked = [f"register x{number} x{number}.0 &" for number in range(150)]
    lines = [*registered(("r1",)), f"batch r1 r1.0 0 a offsets={LARGE}", "crash", *asked]
    lines += ["register r1 r1.0 planned=0 &"] * 120
    found = script.run("\n".join([*lines, "trace WriteRecord", "start", "batch r1 r1.0 1 b offsets=short"]))
    records = [line for line in found.splitlines() if line.startswith("> WriteRecord")]
    assert max(int(line.rpartition(" ")[2]) for line in records) <= 100
    assert found.count("> Announce registration.answered") == 1 + 150 + 120
    assert "[b] on" in found
    record = StateRecord.model_validate_json(script.world.record or "")
    assert len(record.refused) == 100
    assert len(encode_record(record)) < MAX_MESSAGE_BYTES


@pytest.mark.slow
def test_the_largest_record_fits_into_a_message_of_its_topic() -> None:
    record = largest_record(random.Random(1))
    value = encode_record(record)
    assert MAX_MESSAGE_BYTES < len(value) < STATE_MESSAGE_BYTES - LARGEST_DUE
    again = decode_record(STREAM, value)
    assert isinstance(again, StateRecord)
    assert encode_record(again) == value
    cut = record.state.cut
    body = Committed(
        decision=1,
        cut=cut,
        fallbacks=cut,
        listeners={"x": {"y": "z" * cuts.MOST}},
        snapshot=None,
        watermark=0,
        files=1,
    )
    assert len(body.model_dump_json()) < MAX_MESSAGE_BYTES
    made = CutDecided(decision=1, cut=cut, digest="x" * 64)
    assert len(made.model_dump_json()) < MAX_MESSAGE_BYTES / 2


@pytest.mark.slow
@pytest.mark.matrix
def test_a_stall_is_known_again_by_a_record_that_has_no_room_for_its_details() -> None:
    script, names = Script(), tuple(f"{'r' * 155}{number:04}" for number in range(400))
    lines = [f"regions {' '.join(names)}"]
    for number, name in enumerate(names):
        lost = f"failed {name} {number:064} 0 lost {'y' * 1_000} &"
        lines += [f"register {name} {number:064} &", lost, *(["tick 1"] if number % 50 == 49 else [])]
    found = script.run("\n".join([*lines, "crash", "start", "tick 1"]))
    told = [line for line in found.splitlines() if line.startswith("> Announce stream.stalled")]
    # Those of the newest record are repeated, under the same ids.
    assert sum(not line.endswith(" again") for line in told) == len(names)
    record = StateRecord.model_validate_json(script.world.record or "")
    assert {each.detail for each in record.announced.values()} == {""}
    assert 0 < len(record.conditions) < len(names)


@pytest.mark.slow
def test_answers_that_name_many_regions_are_announced_before_a_record_has_them() -> None:
    """None of these registrations lists its own region, and each answer names all that it lists."""
    dice, script = random.Random(1), Script()
    lines: list[str] = []
    for number in range(30):
        names = ["".join(dice.choices(string.ascii_letters + string.digits, k=200)) for _ in range(101)]
        lines += [f"regions {' '.join(names)}", f"register x x{number} &"]
    found = script.run("\n".join(["crash", *lines, "trace WriteRecord", "start"]))
    records = [line for line in found.splitlines() if line.startswith("> WriteRecord")]
    assert max(int(line.rpartition(" ")[2]) for line in records) <= 7
    assert found.count("refused region-not-assigned") == 30


@pytest.mark.slow
def test_a_driver_that_starts_again_and_again_does_not_fill_the_record() -> None:
    """Nothing is committed, and the names are as long as they may be."""
    dice, script = random.Random(1), Script()
    names = ["".join(dice.choices(string.ascii_letters + string.digits, k=64)) for _ in range(1_500)]
    starts = [f"register r1 {new} replaces={old} &" for old, new in pairwise(names)]
    script.run("\n".join(["regions r1", f"register r1 {names[0]}", *starts]))
    state = script.reader().state
    assert [*state.ended] == names[-1 - MOST_ENDED : -1]
    record = StateRecord(stream=STREAM, applied=1, low_water=0, state=state)
    assert len(encode_record(record)) < MAX_MESSAGE_BYTES / 4


def test_reasons_for_which_files_are_lost_have_a_limit_together() -> None:
    script, names = Script(), tuple(f"r{number}" for number in range(20))
    lines = [f"failed {name} {name}.0 0 lost {'y' * 1_000} &" for name in names]
    script.run("\n".join([*registered(names), *lines, "tick 1"]))
    found = [region.fault for region in script.machine.replica.state.regions.values()]
    assert [len(each.detail) for each in found if each] == [1_000] * 16 + [384, 0, 0, 0]


@pytest.mark.slow
def test_each_text_is_measured_once_for_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """All streams of a coordinator wait while it chooses, so the work must not grow with the square."""
    names = tuple(f"r{number:02}" for number in range(40))
    script = Script()
    script.run(
        "\n".join(
            [
                *registered(names),
                "command pause",
                *(f"batch {name} {name}.0 0 f{name} offsets={'x' * 9_000}{name} &" for name in names),
                "tick 1",
            ]
        )
    )
    log = script.machine.replica.log
    measured = 0
    size = cuts._size

    def counting(each: cuts._Texts) -> int:
        nonlocal measured
        measured += 1
        return size(each)

    monkeypatch.setattr(cuts, "_size", counting)
    left = {each.region or "" for each in cuts.problems(log)}
    moves = {name: log.sealed(name)[-1].position for name in names}
    kept = cuts.next_moves(log)
    assert {*names} - {*kept} == left
    assert 0 < len(left) < len(names)
    assert measured <= 2 * 2 * len(names)
    # What is left out does not fit, and what stays does.
    assert cuts.texts_problem(log, kept) is None
    assert all(cuts.texts_problem(log, {**kept, name: moves[name]}) is not None for name in left)
