"""The view has the conditions with their codes, and committed and decided positions."""

from sluicegate.coordinator.core.state import RegionPhase, Savepoint
from sluicegate.coordinator.core.state_record import Condition
from sluicegate.coordinator.observe.view import view_of
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.views import write_view
from sluicegate.events.models import FurtherTable, KnownTable, SnapshotRef, StreamPolicy, TableVersion
from sluicegate.events.problems import Code, Problem
from sluicegate.state_store import AssignmentView, MemoryStateStore, PendingView, SavepointView, StreamView
from tests.coordinator.telemetry.records import NOW, ONE, OTHER, position, record, region, undecided

SETTINGS = StreamSettings(table="file:/lake/flights", commit_user="user")


def test_positions_are_as_of_the_newest_outcome() -> None:
    view = view_of(undecided(record()), SETTINGS, NOW)
    assert (view.decided, view.committed, view.watermark) == (5, 4, NOW)
    assert view.cut == {"EWR": position(ONE, 17), "JFK": position(OTHER, 9)}
    assert view.decided_cut == {"EWR": position(ONE, 18), "JFK": position(OTHER, 9)}
    ewr = view.regions["EWR"]
    assert (ewr.source_offsets, ewr.watermark, ewr.listeners) == ('{"orders":{"0":170}}', None, {})
    assert view.pending == PendingView(decision=5, files=1, regions=("EWR",), fallbacks=("LGA",))
    assert (view.snapshot, view.commit_user, view.revision) == (SnapshotRef(id=57, identity="abc"), "user", 9)


def test_the_owner_is_that_of_the_settings() -> None:
    assert view_of(record(), SETTINGS, NOW).owner is None
    assert view_of(record(), SETTINGS.model_copy(update={"owner": "lake-team"}), NOW).owner == "lake-team"


def test_with_an_outcome_both_cuts_are_equal() -> None:
    view = view_of(record(), SETTINGS, NOW)
    assert view.cut == view.decided_cut
    assert (view.decided, view.committed) == (4, 4)


def test_regions_have_a_phase_and_their_problems() -> None:
    lost = Problem(code=Code.FILES_LOST, region="JFK", incarnation=OTHER, checkpoint=10)
    refused = Problem(code=Code.BASE_DIFFERS, region="EWR", incarnation="other")
    found = record(refused={"EWR": refused}, heard={"EWR": NOW})
    found.state.regions["JFK"].fault, found.state.regions["JFK"].fallbacks = lost, 2
    view = view_of(found, SETTINGS, NOW)
    assert {name: (each.phase, each.idle) for name, each in view.regions.items()} == {
        "EWR": ("live", False),
        "JFK": ("live", True),
        "LGA": ("waiting", False),
    }
    ewr, jfk = view.regions["EWR"], view.regions["JFK"]
    assert (ewr.incarnation, ewr.heard, ewr.stalled) == (ONE, NOW, None)
    assert ewr.refused is not None
    assert (ewr.refused.code, "sluicegate region reset" in ewr.refused.message) == ("base-differs", True)
    assert jfk.stalled is not None
    assert (jfk.stalled.code, jfk.consecutive_fallbacks) == ("files-lost", 2)
    assert view.forced_by == ()


def test_the_next_commit_is_full_unless_a_region_is_absent() -> None:
    found = record(heard={"EWR": NOW}, intervals={"EWR": 5_000})
    regions = found.state.regions
    regions["LGA"] = region(ONE, 3)
    regions["JFK"].fallbacks = 2
    assert (view_of(found, SETTINGS, NOW).forced_by, view_of(found, SETTINGS, NOW).absent) == (("JFK",), ())
    silent = view_of(found, SETTINGS, NOW + 61_000)
    assert (silent.forced_by, silent.absent) == ((), ("EWR",))
    assert silent.silent == ("EWR",)
    del regions["LGA"]
    assert view_of(found, SETTINGS, NOW).absent == ("LGA",)
    assert found.state.policy is not None
    found.state.policy = found.state.policy.model_copy(update={"partial": "never"})
    assert view_of(found, SETTINGS, NOW).absent == ()


def test_a_region_that_is_gone_has_no_fallbacks() -> None:
    found = record()
    found.state.regions["JFK"].fallbacks, found.state.regions["JFK"].phase = 2, RegionPhase.REMOVED
    assert view_of(found, SETTINGS, NOW).regions["JFK"].consecutive_fallbacks == 0


def test_conditions_have_kind_code_and_sentence() -> None:
    lost = Problem(code=Code.FILES_LOST, region="JFK", checkpoint=10)
    conditions = [
        Condition(kind="pause", problem=Problem(code=Code.PAUSED)),
        Condition(kind="stall", problem=lost),
        Condition(kind="refusal", problem=lost),
    ]
    view = view_of(record({"paused": True}, conditions=conditions), SETTINGS, NOW)
    assert view.paused
    assert [(each.kind, each.code, each.region) for each in view.conditions] == [
        ("pause", "paused", None),
        ("stall", "files-lost", "JFK"),
    ]
    assert view.conditions[1].message.startswith("Region JFK is stalled: files of checkpoint 10 are lost.")


def test_the_further_tables_of_the_policy_are_as_of_the_newest_outcome() -> None:
    items = FurtherTable(identifier="shop.items", identity="uuid", location="file:///items")
    newest = TableVersion(decision=3, snapshot=SnapshotRef(id=5, identity="55"))
    tables = {"refunds": KnownTable(terms=items), "items": KnownTable(terms=items, newest=newest)}
    policy = StreamPolicy(number=2, tables={"items": items, "refunds": items})
    condition = Condition(
        kind="stall", problem=Problem(code=Code.TABLE_UNUSABLE, table="items", detail="gone")
    )
    left_out = {"former": KnownTable(terms=items)}
    found = record({"policy": policy, "tables": {**tables, **left_out}}, conditions=[condition])
    view = view_of(found, SETTINGS, NOW)
    assert {name: (each.identifier, each.decision, each.snapshot) for name, each in view.tables.items()} == {
        "items": ("shop.items", 3, SnapshotRef(id=5, identity="55")),
        "refunds": ("shop.items", 0, None),
    }
    assert [(each.code, each.region, each.table) for each in view.conditions] == [
        ("table-unusable", None, "items")
    ]
    assert "The table items of stream flights takes no commits: gone" in view.conditions[0].message


def test_the_assignment_and_pending_savepoints() -> None:
    savepoints = [
        Savepoint(name="s1", offset=0, targets={"EWR": position(ONE, 18)}),
        Savepoint(name="d1", offset=0, drain=True),
    ]
    found = record({"savepoints": savepoints})
    found.table.single_region = "fixed-buckets"
    view = view_of(found, SETTINGS, NOW)
    assert view.assignment == AssignmentView(number=2, regions=("EWR", "JFK", "LGA"), after=3)
    assert view.savepoints == (
        SavepointView(name="s1", targets={"EWR": position(ONE, 18)}, unreached=("EWR",)),
        SavepointView(name="d1", drain=True, unreached=("EWR", "JFK", "LGA")),
    )
    assert view.single_region == "fixed-buckets"


def at(revision: int) -> StreamView:
    return view_of(record(), SETTINGS, NOW).model_copy(update={"revision": revision, "updated_at": NOW})


async def test_a_view_of_another_log_is_replaced() -> None:
    store = MemoryStateStore()
    await store.write(at(87))

    async def end() -> int:
        return 87

    assert await write_view(store, at(12), end)
    assert await store.read("flights") == at(12)


async def test_a_late_member_does_not_replace_a_view_of_the_same_log() -> None:
    store = MemoryStateStore()
    await store.write(at(86))

    async def end() -> int:
        return 87

    assert not await write_view(store, at(12), end)
    assert await store.read("flights") == at(86)


async def test_a_late_member_does_not_replace_the_view_that_the_owner_wrote_meanwhile() -> None:
    store = MemoryStateStore()
    await store.write(at(87))

    async def end() -> int:
        # The owner replaces the view of the other log first, and the log grows past its revision.
        stamp = await store.stamp("flights")
        assert stamp is not None
        assert await store.replace(owned, stamp)
        return 80

    owned = at(87).model_copy(update={"decided": 9, "updated_at": 1})
    assert not await write_view(store, at(12), end)
    assert await store.read("flights") == owned
