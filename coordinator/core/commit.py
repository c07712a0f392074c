"""One commit against the table: ask, publish on the head that was asked, and what each answer means."""

from dataclasses import dataclass
from typing import Final

from sluicegate.coordinator.core.decisions import void_digest
from sluicegate.coordinator.core.effects import Ask, Publish, Result
from sluicegate.coordinator.core.state import Decision, LightState
from sluicegate.lakes.port import (
    Absent,
    Ahead,
    Conflict,
    Found,
    NotPublished,
    OtherDigest,
    OutcomeUnknown,
    Published,
    Refused,
    SnapshotRef,
    TableReplaced,
    Unproven,
)

_BACK: Final = "Put the table's snapshots back"
ANEW: Final = (
    "go on in a new stream with a commit_user of its own, in empty checkpoint locations, with sources that "
    "begin right after the committed rows"
)


@dataclass(frozen=True, slots=True)
class Stall:
    """The stream does not go on until the cause is gone; the reason says what to do."""

    reason: str
    committing: bool = False
    """Whether a commit stands in the way; writers and openings go on meanwhile."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The commit is in the table; the snapshot is None when only later ones of ours are left to see."""

    snapshot: SnapshotRef | None


@dataclass(frozen=True, slots=True)
class Voided:
    """The empty commit that takes the decision's place is in the table."""

    snapshot: SnapshotRef


Outcome = Resolved | Voided | Stall


class Commit:
    """The oldest valid decision whose outcome is not known, on its way into the table."""

    def __init__(self, decision: Decision, stream: str | None = None) -> None:
        """Without a stream it is `replay` that commits, and its refusals do not name it as the way out."""
        self.decision = decision
        self._mending = mending(stream) if stream else f"{_BACK}, or {ANEW}"
        self._stream = stream or "..."
        self.retries = 0
        """How often a publication had to be asked about again."""
        self._absent: Absent | None = None
        self._void = void_digest(decision.digest)
        self._voided = False
        """Whether the void was seen in the table."""

    def next(self, state: LightState, recorded: SnapshotRef | None) -> Ask | Publish:
        """Ask first, every time; publish only on a head where the decision is proven absent.

        An absence is proven from the recorded snapshot.
        """
        decision = self.decision
        if self._absent is None:
            digest = self._void if self._voided else decision.digest
            return Ask(decision.id, digest, state.table or "", recorded)
        void = decision.void is not None and decision.before is not None
        return Publish(
            decision=decision.id,
            digest=self._void if void else decision.digest,
            head=self._absent.head,
            watermark=decision.before.watermark if void and decision.before else decision.watermark,
            offsets=() if void else tuple(decision.parts),
            allowed_locations=state.policy.allowed_locations if state.policy else (),
            names_checked=state.policy is None or state.policy.file_names == "checked",
        )

    def take(self, effect: Ask | Publish, result: Result, state: LightState) -> Outcome | None:
        """Draw the conclusion of an outcome; None: the commit goes on with `next`."""
        if isinstance(effect, Ask):
            outcome = self._asked(result, state)
        else:
            outcome = self._published(result, void=effect.digest == self._void)
        if isinstance(outcome, Resolved | Voided) and outcome.snapshot is not None:
            state.recorded, state.contradicted = outcome.snapshot, None
        return outcome

    def _asked(self, answer: Result, state: LightState) -> Outcome | None:
        number = self.decision.id
        match answer:
            case Found(snapshot):
                return Voided(snapshot) if self._voided else Resolved(snapshot)
            case Absent(head):
                self._absent = answer
                self._voided = False
                state.recorded, state.contradicted = head, None
                return None
            case Ahead(_, made) if made is not None and _is_decided(state, *made):
                # Commits are strictly ordered, so an earlier one has been resolved before the later.
                return Resolved(None)
            case Ahead(newest) if newest <= state.decided:
                return _stall(
                    f"decision {number} cannot be found in the table, and a commit there has the id {newest} "
                    "of a later one without its digest: another job commits as the same commit user. Give "
                    "each deployment and job a commit user of its own; then roll the table back to before "
                    f"that commit, and the stream goes on by itself, or {ANEW}"
                )
            case Ahead(newest):
                return _stall(
                    f"the table has decision {newest} of this stream, the log only {state.decided}: the "
                    "topics were made anew, or another deployment commits as the same commit user. To see "
                    f"which: sluicegate replay --stream {self._stream} --verify; then restore the topics, or "
                    "configure another commit_user"
                )
            case OtherDigest(digest) if digest == self._void and not self._voided:
                self._voided = True
                return None
            case OtherDigest(digest):
                return _stall(
                    f"decision {number} is in the table with other content (digest {digest}, ours "
                    f"{self.decision.digest}): another deployment commits as the same commit user. To see "
                    f"what differs: sluicegate replay --stream {self._stream} --verify. Give each deployment "
                    "and job a commit user of its own; then roll the table back to before that commit, and "
                    f"the stream goes on by itself, or {ANEW}"
                )
            case Unproven(reason):
                return _stall(
                    f"it cannot be proven whether decision {number} is in the table: {reason}. "
                    f"{self._mending}"
                )
            case TableReplaced(identity):
                return replaced(self._stream, identity, f" while decision {number} was to be committed")
        raise TypeError(f"{answer!r} is no answer to an ask")

    def _published(self, publication: Result, *, void: bool) -> Outcome | None:
        self._absent = None
        match publication:
            case Published(snapshot):
                return Voided(snapshot) if void else Resolved(snapshot)
            case Conflict() | NotPublished() | OutcomeUnknown():
                self.retries += 1
                return None
            case Refused(reason):
                return _stall(
                    f"the table refuses decision {self.decision.id}: {reason}. Mend that, and it goes on by "
                    f"itself; or give the decision up: sluicegate void --stream {self._stream} --decision "
                    f"{self.decision.id} --region ... --checkpoint ..., which are held out"
                )
        raise TypeError(f"{publication!r} is no outcome of a publication")


def _is_decided(state: LightState, number: int, digest: str) -> bool:
    """Whether a commit is one of the decisions without an outcome, or what took the place of one."""
    return any(
        number == each.id and digest in (each.digest, void_digest(each.digest)) for each in state.pending
    )


def mending(stream: str) -> str:
    """What helps when an absence cannot be proven."""
    return (
        f"{_BACK}, and it goes on by itself; if the table was rolled back for good, stop the coordinators "
        f"and commit anew what it lost: sluicegate replay --stream {stream} --commit-missing; where that "
        f"proves nothing either, {ANEW}"
    )


def replaced(stream: str, identity: str, when: str = "") -> Stall:
    """Return the stall of a stream that finds another table in the place of its own."""
    return Stall(
        f"the table was replaced{when}: it is {identity} now, and not the one that the stream has committed "
        "to. Put the old table back, and the stream goes on by itself; or make a fresh one of what the log "
        f"decided: sluicegate replay --stream {stream} --into TABLE; or start a new stream for the new one",
        committing=bool(when),
    )


def _stall(reason: str) -> Stall:
    return Stall(reason, committing=True)
