"""`sluicegate rewind`: set a region back to its committed checkpoint, as a new lineage."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from sluicegate.cli.alive import last_sign
from sluicegate.cli.commands import known_record, require_region
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.options import config_option, require_stream, stream_option
from sluicegate.cli.outcomes import parse_timeout, tell
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.telemetry.overview import MISSED
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Assignment, Body, Event, OpeningAnswered, Position, RegionOpened

if TYPE_CHECKING:
    from sluicegate.writer_hooks.spark.rewind import Rewind

Step = Callable[[str], None]
"""Callback for each completed step."""


_LEAST_SILENCE: Final = 15.0


def _parse_silence(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    return None if value is None else parse_timeout(context, option, value)


@click.command()
@config_option
@stream_option
@click.option("--region", required=True, help="Name of the region.")
@click.option("--checkpoint-location", "location", required=True, help="That of the region's query.")
@click.option("--reason", default="", help="Why; noted beside what is moved away.")
@click.option(
    "--silence",
    default=None,
    callback=_parse_silence,
    help="How long nothing must have come from the query. By default three times what it says between two "
    "heartbeats, and 15 s at least.",
)
@click.option("--timeout", default="1m", show_default=True, callback=parse_timeout, help="For an answer.")
def rewind(
    settings: Settings,
    stream: str,
    region: str,
    location: str,
    reason: str,
    silence: float | None,
    timeout: float,
) -> None:
    """Set a region's query back to its committed checkpoint, as a new lineage. Then start the query again.

    Later work of the query is dropped; the query reads it again from the source. Nothing is deleted: removed
    parts of the checkpoint location move to its folder sluicegate/rewound-N. Stop the query first. If the
    command is interrupted, repeat it.
    """
    require_stream(settings, stream)
    record = run_async(settings, known_record(settings, stream))
    require_region(record, region)
    if silence is None:
        silence = max(_LEAST_SILENCE, MISSED * record.heartbeats.get(region, 0) / 1000)
    sign = run_async(settings, last_sign(settings, record, region, silence))
    if sign is not None:
        raise UserError(
            f"the query of region {region} was alive {sign:.0f} s ago (its last event in the log); stop it, "
            f"wait {silence:g} s, and repeat. --silence sets the time"
        )
    for said in carry_out(settings, record, region, location, (reason, timeout)):
        click.echo(said)


def carry_out(
    settings: Settings,
    record: StateRecord,
    region: str,
    location: str,
    how: tuple[str, float],
    done: Step = lambda _: None,
) -> list[str]:
    """Rewind the region step by step; `how` is the reason and the seconds for an answer. Raises UserError."""
    committed = record.state.regions[region].ref if region in record.state.regions else None
    if committed is None:
        _check_region(location, region)
        raise UserError(
            f"nothing of region {region} is committed, so there is no checkpoint to go back to. Delete the "
            "checkpoint location and start the query; if it is refused, the refusal names the command "
            f"`sluicegate accept --stream {record.stream} --region {region} --lineage ...`"
        )
    try:
        return _carry_out(settings, record, (region, committed, location), how, done)
    except _hook_error() as error:
        raise UserError(str(error)) from error


def _check_region(location: str, region: str) -> None:
    """Refuse the location of another region: its deletion would make that region read its rows again.

    Raises UserError.
    """
    with suppress(_hook_error()):
        from sluicegate.writer_hooks.spark.checkpoint import Checkpoint

        opened, _ = Checkpoint(location).opened_region()
        if opened != region:
            raise UserError(
                f"{location} is the checkpoint location of a query of region {opened}, and nothing of region "
                f"{region} is committed. If the option region of the query is wrong, correct it there; to "
                f"set region {opened} back, give --region {opened}"
            )


def _carry_out(
    settings: Settings,
    record: StateRecord,
    place: tuple[str, Position, str],
    how: tuple[str, float],
    done: Step,
) -> list[str]:
    from sluicegate.writer_hooks.spark.rewind import Rewind

    region, committed, location = place
    reason, patience = how
    for _ in range(3):
        step = Rewind(location, region, committed)
        if step.is_back and _is_live(record, region, step.marker.lineage):
            return [f"region {region} is at checkpoint {committed.checkpoint} already; start the query"]
        at = record.state.regions[region]
        # Choose the assignment before the location is marked: a refusal here leaves the location unchanged.
        assignment = _assignment(record, region, step)
        step.examine(at.ref_digest if at.ref == committed else None)
        step.raise_generation()
        done("generation")
        answer = _open(settings, record, region, step, assignment, patience)
        if answer.accepted or answer.committed in (None, committed):
            break
        # The log has a later decision than the state record: go back to that one.
        committed = answer.committed
    if not answer.accepted:
        step.give_up()
        raise UserError(
            f"the new lineage {step.marker.lineage} of region {region} was refused: {answer.reason}. Mend "
            "that and repeat the command; nothing is changed in the location"
        )
    done("opening")
    moved = step.set_back(reason)
    done("location")
    step.finish()
    done("finish")
    return [
        f"region {region} is set back to checkpoint {committed.checkpoint}; {moved} batches beyond it are in "
        f"{location}/{step.backup}",
        f"its lineage is {step.marker.lineage}; start the query again",
    ]


def _is_live(record: StateRecord, region: str, lineage: str) -> bool:
    held = record.state.regions[region]
    return held.live == lineage and held.fault is None


def _assignment(record: StateRecord, region: str, step: "Rewind") -> Assignment:
    """Return the newest assignment that the region can open in. Raises UserError."""
    opened, state = step.opened, record.state
    if opened is not None and (opened.stream, opened.region) != (record.stream, region):
        raise UserError(
            f"the location belongs to region {opened.region} of stream {opened.stream}, not to "
            f"{region} of {record.stream}; give the one of that region"
        )
    # A location that was refused under a newer assignment still has the older one.
    known = [state.assignment, state.next, opened.assignment if opened else None]
    named = [each for each in known if each is not None and (opened is None or region in each.regions)]
    assignment = max(named, key=lambda each: each.number, default=None)
    if assignment is None:
        raise UserError(f"stream {record.stream} has no assignment yet; start its query first")
    return assignment


def _open(
    settings: Settings,
    record: StateRecord,
    region: str,
    step: "Rewind",
    assignment: Assignment,
    patience: float,
) -> OpeningAnswered:
    opened, state = step.opened, record.state
    body = RegionOpened.model_validate(
        {
            "parents": step.marker.parents,
            "parent_digest": step.digest(),
            "assignment": assignment,
            "bounded": state.regions[region].bounded,
            "sink": opened.sink if opened else "independent",
            "owned": opened.owned if opened else True,
            "table": opened.table if opened else None,
        }
    )
    envelope = Envelope(uuid.uuid4().hex, EventType.REGION_OPENED, record.stream, region, step.marker.lineage)

    def concerns(found: Body) -> bool:
        return isinstance(found, OpeningAnswered) and found.opening == envelope.id

    _, outcome = run_async(settings, tell(settings, Event(envelope, body), concerns, patience))
    if not isinstance(outcome, OpeningAnswered):
        raise UserError(
            f"no coordinator answered the opening of lineage {step.marker.lineage} within {patience:g} s; "
            "see that one runs (/readyz), and repeat the command; until then the query does not start"
        )
    return outcome


def _hook_error() -> type[Exception]:
    try:
        from sluicegate.writer_hooks.errors import HookError
    except ImportError as error:
        raise UserError(
            f"rewind needs a package that is not installed ({error.name}); install it with: "
            'pip install "sluicegate[paimon]"'
        ) from error
    return HookError
