"""Replay of a stream with further tables, on real tables of Iceberg in a catalog of sqlite."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.replay.adoption import (
    Adopted,
    Logged,
    Place,
    Stated,
    choose,
    compare_tables,
    read_commits,
    state_of,
)
from sluicegate.coordinator.replay.decisions import (
    CommitStatus,
    Comparison,
    LoggedDecision,
    ReplayRefused,
    Start,
)
from sluicegate.coordinator.replay.orphans import Found, Search
from sluicegate.coordinator.replay.reading import Window, parse_mark, read_decisions
from sluicegate.coordinator.replay.rebuild import Rebuild, Rebuilt
from sluicegate.coordinator.replay.repair import Repair, Repaired, state_table
from sluicegate.coordinator.replay.tables import Connected, ReplayTable, named_tables
from sluicegate.coordinator.replay.verify import Verdict, verify
from sluicegate.coordinator.stream.account import decode_account
from sluicegate.events.models import SnapshotRef, StreamCommand, TableVersion
from sluicegate.events.problems import CauseCode
from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.iceberg.adapter import ADAPTER
from sluicegate.lakes.port import CommitRequest, Published
from tests.contracts.lakes.iceberg_lake import ID_ONLY, local
from tests.replay.shop import EMPTY, HOUR, STREAM, USER, Shop

pytestmark = pytest.mark.slow
MISSING, THERE = CommitStatus.MISSING, CommitStatus.THERE


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
async def shop(tmp_path: Path, threads: ThreadPoolExecutor) -> Shop:
    """Four commits: to all tables, to the anchor and items, to the anchor alone, to the anchor and taxes."""
    made = Shop(tmp_path, threads)
    await made.begin()
    await made.commit(0, orders=[1], items=[10, 11], taxes=[100])
    await made.commit(1, orders=[2], items=[20])
    await made.commit(2, orders=[3])
    await made.commit(3, taxes=[400])
    return made


ROWS = {"orders": [1, 2, 3], "items": [10, 11, 20], "taxes": [100, 400]}
DECISIONS = {"orders": [1, 2, 3, 4], "items": [1, 2], "taxes": [1, 4]}


def rows(shop: Shop) -> dict[str, list[int]]:
    return {name: shop.ids(name) for name in shop.places}


def decisions(shop: Shop) -> dict[str, list[int]]:
    return {name: shop.decisions(name) for name in shop.places}


def whole() -> Window:
    return Window(parse_mark("earliest"), parse_mark("latest"))


def ignore(_: str) -> None:
    """Print nothing."""


async def nobody() -> None:
    """No coordinator runs."""


def tables_of(shop: Shop, anchor: ReplayTable) -> list[ReplayTable]:
    return [anchor, *(anchor.further(name, each.terms) for name, each in shop.state.tables.items())]


async def verified(shop: Shop) -> dict[str, Verdict | ReplayRefused]:
    with closing(shop.opened()) as anchor:
        return await verify(shop.log, STREAM, EMPTY, whole(), tables_of(shop, anchor))


async def wrong(shop: Shop) -> dict[str, list[tuple[int, str]]]:
    """Return the findings by table, of those that differ."""
    found = {}
    for name, each in (await verified(shop)).items():
        assert isinstance(each, Verdict)
        findings = [(one.decision, str(one.status)) for one in each.findings]
        findings += [(one.decision, "foreign") for one in each.foreign]
        if findings:
            found[name] = findings
    return found


async def repaired(shop: Shop, name: str = "", *, dry: bool = False) -> Repaired:
    with closing(shop.opened()) as anchor:
        tables = named_tables(shop.state, name)
        repair = Repair(shop.log, STREAM, anchor, nobody, dry=dry, tables=tables, name=name)
        return await repair.run(EMPTY, whole(), ignore)


def head(shop: Shop, name: str) -> SnapshotRef:
    return ADAPTER.open_maintenance(shop.ref(name)).history().commits[0].ref


def publish(shop: Shop, name: str, decision: int, digest: str) -> None:
    """Commit in the stream's name, as another deployment does."""
    with closing(ADAPTER.open_committer(shop.ref(name), USER)) as committer:
        at = committer.inspect().head
        assert isinstance(committer.publish(CommitRequest(decision, digest, at, None, [])), Published)


# --- verify ---------------------------------------------------------------------------------------


async def test_each_table_has_the_decisions_that_touched_it(shop: Shop) -> None:
    found = await verified(shop)
    counts = {name: each.counts for name, each in found.items() if isinstance(each, Verdict)}
    assert counts == {"": {THERE: 4}, "items": {THERE: 2}, "taxes": {THERE: 2}}
    assert await wrong(shop) == {}


async def test_a_missing_and_a_foreign_commit_are_found_in_their_table(shop: Shop) -> None:
    shop.rollback("items", 1)
    # The log has a decision 3, which does not touch this table.
    publish(shop, "taxes", 3, "x")
    assert await wrong(shop) == {"items": [(2, "missing")], "taxes": [(3, "foreign")]}


async def test_a_decision_after_a_later_one_is_out_of_order(shop: Shop) -> None:
    commits = ADAPTER.open_maintenance(shop.ref("items")).history().commits
    digests = {past.decision: past.digest for past in commits}
    shop.places["bills"] = shop.create("bills")
    shop.append("bills", [0])
    publish(shop, "bills", 2, digests[2])
    publish(shop, "bills", 1, digests[1])

    history = ADAPTER.open_maintenance(shop.ref("bills")).history()
    renamed = history._replace(identity=shop.state.tables["items"].terms.identity)
    found: list[tuple[int, str]] = []
    comparison = Comparison(renamed, USER, "items")

    async def judge(logged: LoggedDecision) -> None:
        if comparison.concerns(logged):
            found.append((logged.decision.id, comparison.judge(logged).status))

    await read_decisions(shop.log, STREAM, EMPTY, await shop.log.end(), whole(), judge)
    assert found == [(1, CommitStatus.MISPLACED), (2, THERE)]


async def test_a_table_that_is_not_there_does_not_hide_the_others(shop: Shop) -> None:
    shop.library.drop_table("shop.items")
    found = await verified(shop)
    assert isinstance(found["items"], ReplayRefused)
    assert "the table items (" in str(found["items"])
    assert {name for name, each in found.items() if isinstance(each, Verdict)} == {"", "taxes"}


# --- repair ---------------------------------------------------------------------------------------


async def test_a_further_table_gets_again_what_it_lacks_and_the_log_its_snapshot(shop: Shop) -> None:
    shop.rollback("items", 1)
    planned = await repaired(shop, "items", dry=True)
    assert [each.decision for each in planned.committed] == [2]
    assert (shop.decisions("items"), planned.orders) == ([1], [])
    made = await repaired(shop, "items")
    assert [each.decision for each in made.committed] == [2]
    assert (rows(shop), decisions(shop)) == (ROWS, DECISIONS)
    stated = StreamCommand(command="resume", table="items", decision=2, head=head(shop, "items"), known=2)
    assert made.orders == [stated]
    shop.order(stated)
    assert shop.state.tables["items"].newest == TableVersion(decision=2, snapshot=head(shop, "items"))
    again = await repaired(shop, "items")
    assert (again.committed, again.orders) == ([], [])
    await shop.commit(4, orders=[5], items=[50])
    assert (shop.ids("items"), shop.decisions("items")) == ([10, 11, 20, 50], [1, 2, 5])
    assert await wrong(shop) == {}


async def test_a_repair_whose_order_was_not_appended_states_it_again(shop: Shop) -> None:
    shop.rollback("items", 1)
    await repaired(shop, "items")
    again = await repaired(shop, "items")
    assert again.committed == []
    assert [(each.table, each.decision, each.head) for each in again.orders] == [
        ("items", 2, head(shop, "items"))
    ]


async def test_the_anchor_gets_back_what_further_tables_have(shop: Shop) -> None:
    shop.rollback("orders", 3)
    made = await repaired(shop)
    assert [each.decision for each in made.committed] == [2, 3, 4]
    assert (rows(shop), decisions(shop)) == (ROWS, DECISIONS)
    assert [(each.command, each.table) for each in made.orders] == [("resume", None)]
    assert await wrong(shop) == {}


async def test_what_all_tables_lack_comes_back_with_the_anchor(shop: Shop) -> None:
    for name, back in (("orders", 3), ("items", 1), ("taxes", 1)):
        shop.rollback(name, back)
    with pytest.raises(ReplayRefused, match="nothing proves that decision 2 is in the stream's own table"):
        await repaired(shop, "items")
    planned = await repaired(shop, dry=True)
    assert [each.decision for each in planned.committed] == [2, 3, 4]
    made = await repaired(shop)
    assert (rows(shop), decisions(shop)) == (ROWS, DECISIONS)
    assert {each.table: each.head for each in made.orders} == {
        None: head(shop, "orders"),
        "items": head(shop, "items"),
        "taxes": head(shop, "taxes"),
    }
    for each in made.orders:
        shop.order(each)
    await shop.commit(4, orders=[5], items=[50], taxes=[500])
    assert await wrong(shop) == {}


async def test_a_table_that_lacks_more_than_the_anchor_is_repaired_first(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    shop = Shop(tmp_path, threads)
    shop.append("items", [0])
    await shop.begin()
    for number in range(3):
        await shop.commit(number, orders=[number], items=[10 + number])
    shop.rollback("orders", 1)
    shop.rollback("items", 3)
    with pytest.raises(ReplayRefused, match="replay repair --stream shop --table items"):
        await repaired(shop)
    with pytest.raises(ReplayRefused, match=r"decision 3 is in the stream's own table. Repair that first"):
        await repaired(shop, "items")
    assert (shop.decisions("items"), shop.decisions("orders")) == ([1, 2], [1, 2])
    await repaired(shop)
    assert (shop.ids("items"), shop.ids("orders")) == ([0, 10, 11, 12], [0, 1, 2])
    assert await wrong(shop) == {}


async def test_a_hole_in_a_further_table_is_not_filled(shop: Shop) -> None:
    shop.rollback("items", 1)
    stated = await stated_of(shop, "items", head(shop, "items"))
    shop.order(stated)
    await shop.commit(4, orders=[5], items=[50])
    with pytest.raises(ReplayRefused, match=r"2 is not in the table, but 5 is.*--table items --into"):
        await repaired(shop, "items")
    assert await wrong(shop) == {"items": [(2, "missing")]}


# --- the statement of an operator -----------------------------------------------------------------


async def stated_of(shop: Shop, name: str, at: SnapshotRef | None) -> StreamCommand:
    with closing(shop.opened()) as anchor:
        return await state_table(Connected(shop.log, EMPTY, anchor, shop.state), STREAM, name, at)


async def test_the_newest_decision_of_a_statement_is_read_from_the_table(shop: Shop) -> None:
    lost = head(shop, "items")
    shop.rollback("items", 1)
    shop.append("items", [0])
    at = head(shop, "items")
    assert await stated_of(shop, "items", at) == StreamCommand(
        command="resume", table="items", decision=1, head=at, known=2
    )
    for bad in (None, lost, SnapshotRef(99, "99")):
        with pytest.raises(ReplayRefused, match=f"The head of the table is {at.id}:{at.identity}"):
            await stated_of(shop, "items", bad)
    with pytest.raises(ReplayRefused, match=r"no further table 'bills'.*It has: items, taxes"):
        await stated_of(shop, "bills", at)


@pytest.mark.parametrize("decision", [2, 3])
async def test_a_commit_that_the_log_has_not_as_committed_is_refused(shop: Shop, decision: int) -> None:
    """Such as one that an order gave up, while nobody could ask this table: its rows came again."""
    shop.rollback("items", 1)
    publish(shop, "items", decision, "x")
    with pytest.raises(
        ReplayRefused, match=rf"snapshot \d+ has decision {decision}, and the log has none of"
    ):
        await stated_of(shop, "items", head(shop, "items"))


async def test_a_snapshot_before_the_newest_decision_is_refused(shop: Shop) -> None:
    first = ADAPTER.open_maintenance(shop.ref("items")).history().commits[1].ref
    with pytest.raises(ReplayRefused, match="has decision 2 after snapshot"):
        await stated_of(shop, "items", first)


async def test_a_table_with_later_decisions_than_the_log_is_refused(shop: Shop) -> None:
    publish(shop, "items", 9, "x")
    with pytest.raises(ReplayRefused, match="has decision 9, and the log ends with 4"):
        await stated_of(shop, "items", head(shop, "items"))


async def test_a_statement_lets_a_stuck_decision_through(shop: Shop) -> None:
    """The decision names what the table had at its offset, and the operator has looked since."""
    shop.checkpoint(4, orders=[5], items=[50])
    shop.decide()
    shop.rollback("items", 1)
    with pytest.raises(AssertionError, match="other-newest"):
        await shop.publish()
    shop.order(await stated_of(shop, "items", head(shop, "items")))
    shop.resolve(await shop.publish())
    assert shop.decisions("items") == [1, 5]


# --- rebuild --------------------------------------------------------------------------------------


async def rebuilt(shop: Shop, name: str, into: str, state: LogState | None = None) -> Rebuilt:
    """Build a table into another one of the catalog."""
    with closing(shop.opened()) as anchor:
        source = anchor.further(name, shop.state.tables[name].terms) if name else anchor
        place = shop.places.get(into) or f"file://{shop.root}/shop/{into}"
        shop.places.setdefault(into, place)
        options = source.settings.options | {"identifier": type(shop.settings.options["uri"])(f"shop.{into}")}
        changes = {"table": place, "tables": {}, "allowed_locations": (), "options": options}
        settings = source.settings.model_copy(update=changes)
        with closing(ReplayTable(settings, anchor._threads, STREAM)) as target:
            rebuild = Rebuild(shop.log, STREAM, source, target, dry=False, state=state or shop.state)
            return await rebuild.run(EMPTY, whole())


async def test_one_table_is_built_again_with_its_own_files_alone(shop: Shop) -> None:
    made = await rebuilt(shop, "items", "copy")
    assert (made.commits, made.found, shop.ids("copy"), shop.decisions("copy")) == (
        2,
        0,
        ROWS["items"],
        [1, 2],
    )
    await shop.commit(4, orders=[5], items=[50])
    again = await rebuilt(shop, "items", "copy")
    assert (again.commits, again.found, shop.decisions("copy")) == (1, 2, [1, 2, 5])
    assert again.head == head(shop, "copy")
    await rebuilt(shop, "", "orders2")
    assert (shop.ids("orders2"), shop.decisions("orders2")) == ([1, 2, 3, 5], [1, 2, 3, 4, 5])


@pytest.mark.parametrize(("name", "into"), [("", "items"), ("items", "orders"), ("items", "taxes")])
async def test_no_table_is_built_into_another_one_of_the_stream(shop: Shop, name: str, into: str) -> None:
    with pytest.raises(ReplayRefused, match="the stream's own table"):
        await rebuilt(shop, name, into)
    assert (rows(shop), decisions(shop)) == (ROWS, DECISIONS)


async def test_a_stream_goes_on_with_a_copy_of_a_table(shop: Shop) -> None:
    """The advice of the command: leave the name out, repeat, name the copy, state that it is right."""
    await rebuilt(shop, "items", "copy")
    await shop.commit(4, items=[50])
    await shop.reload(shop.named({"taxes": "shop.taxes"}))
    made = await rebuilt(shop, "items", "copy")
    assert made.head is not None
    await shop.reload(shop.named({"taxes": "shop.taxes", "items": "shop.copy"}))
    shop.order(await stated_of(shop, "items", made.head))
    await shop.commit(5, items=[60])
    assert (shop.ids("copy"), shop.decisions("copy")) == ([10, 11, 20, 50, 60], [1, 2, 5, 6])
    assert shop.decisions("items") == [1, 2, 5]
    assert await wrong(shop) == {}, "what was built again from the log is no stranger"


# --- orphans --------------------------------------------------------------------------------------


async def found_in(shop: Shop, anchor: ReplayTable, *names: str) -> tuple[Search, Found]:
    tables = [each for each in tables_of(shop, anchor) if not names or each.name in names]
    search = Search(STREAM, shop.log, EMPTY, tables, HOUR)
    return search, await search.find(1_000 * HOUR)


async def deleted(shop: Shop) -> dict[str, set[str]]:
    """Delete the orphans, and return their names by table."""
    names: dict[str, set[str]] = {}
    with closing(shop.opened()) as anchor:
        search, found = await found_in(shop, anchor)
        async for file, status in search.delete(found.deletable, 1_000 * HOUR):
            assert status is FileStatus.DELETED
            names.setdefault(file.table, set()).add(file.path.rpartition("/")[2])
    return names


async def test_files_of_an_event_are_looked_for_in_its_own_table(shop: Shop) -> None:
    _, lost = shop.write("items", [77], 3, "loser")
    _, mine = shop.write("", [78], 3, "loser")
    # No event names it.
    unnamed = shop.files("taxes", [79], 2, "w", "dead")
    there = [local(f"{unnamed.location}/{file.path}") for file in unnamed.files]
    kept = [each for place in shop.places.values() for each in local(place).rglob("*.parquet")]
    kept = [each for each in kept if each not in (*lost, *mine, *there)]
    assert await deleted(shop) == {
        "": {each.name for each in mine},
        "items": {each.name for each in lost},
        "taxes": {each.name for each in there},
    }
    assert not any(each.exists() for each in (*lost, *mine, *there))
    assert all(each.exists() for each in kept)
    assert rows(shop) == ROWS


async def test_pending_files_of_a_further_table_stay(shop: Shop) -> None:
    _, pending = shop.write("items", [50], 4)
    unnamed = shop.files("items", [51], 4, "w", "running")
    assert await deleted(shop) == {}
    assert all(each.exists() for each in pending)
    assert all(local(f"{unnamed.location}/{file.path}").exists() for file in unnamed.files)


async def test_a_table_that_was_rolled_back_keeps_its_files(shop: Shop) -> None:
    """A winner looks like an orphan there; its event shields it, and without one nothing is deleted."""
    unnamed = shop.files("items", [79], 0, "w", "dead")
    shop.rollback("items", 1)
    with closing(shop.opened()) as anchor:
        _, found = await found_in(shop, anchor)
    assert found.deletable == []
    name = unnamed.files[0].path.rpartition("/")[2]
    reasons = {each.path.rpartition("/")[2]: (each.table, each.reason) for each in found.waiting}
    assert reasons[name] == ("items", "the history of the table does not show decision 2")
    await repaired(shop, "items")
    assert await deleted(shop) == {"items": {name}}
    assert rows(shop) == ROWS


async def test_files_of_an_open_decision_stay_in_each_table(shop: Shop) -> None:
    files = shop.checkpoint(4, orders=[5], items=[50])
    shop.decide()
    assert await deleted(shop) == {}
    outcome = await shop.publish()
    assert await deleted(shop) == {}
    shop.resolve(outcome)
    assert await deleted(shop) == {}
    assert all(each.exists() for found in files.values() for each in found)
    assert shop.ids("items") == [10, 11, 20, 50]


async def test_files_of_a_table_that_a_decision_left_out_stay(shop: Shop) -> None:
    files = shop.checkpoint(4, orders=[5], items=[50])
    shop.decide()
    # The anchor alone gets it, as with a catalog that is not atomic.
    made = shop.state.unresolved
    assert made is not None
    publish(shop, "orders", 5, made.digest)
    await shop.reload(shop.named({"taxes": "shop.taxes"}))
    shop.resolve(await shop.publish())
    await shop.reload(shop.named({"items": "shop.items", "taxes": "shop.taxes"}))
    assert await deleted(shop) == {}
    assert all(each.exists() for each in files["items"])
    assert await wrong(shop) == {"items": [(5, "left out")]}
    made_again = await repaired(shop, "items")
    assert [each.decision for each in made_again.committed] == [5]
    assert shop.ids("items") == [10, 11, 20, 50]
    for each in made_again.orders:
        shop.order(each)
    await shop.commit(5, items=[60])
    assert shop.decisions("items") == [1, 2, 5, 6]


async def test_a_table_that_is_away_does_not_stop_the_search_in_the_others(shop: Shop) -> None:
    _, lost = shop.write("taxes", [77], 3, "loser")
    shop.library.drop_table("shop.items")
    with closing(shop.opened()) as anchor:
        _, found = await found_in(shop, anchor)
        assert [each.path.rpartition("/")[2] for each in found.files] == [each.name for each in lost]
        assert {*found.failed} == {"items"}
        with pytest.raises(ReplayRefused):
            await found_in(shop, anchor, "items")


async def test_a_commit_of_another_log_in_a_further_table_ends_the_search_there(shop: Shop) -> None:
    shop.write("items", [77], 3, "loser")
    publish(shop, "items", 3, "x")
    with closing(shop.opened()) as anchor:
        _, found = await found_in(shop, anchor)
    assert found.deletable == []
    assert "decision 3 is in the table items" in found.failed["items"]


# --- adoption -------------------------------------------------------------------------------------


async def adopted(shop: Shop, *left_out: str) -> LogState:
    """Return the state with which the stream continues after a loss of Kafka."""
    return (await adopted_record(shop, *left_out)).state


async def adopted_record(shop: Shop, *left_out: str) -> StateRecord:
    """Return the record with which the stream continues after a loss of Kafka."""
    with closing(shop.opened()) as anchor:
        commits = await read_commits(anchor, STREAM)
        account = Adopted(commits.ref, decode_account(commits.text), stated=False)
        found = await compare_tables(anchor, commits, account, left_out)
        logged = Logged(Place(0, len(shop.log.records), None), LogState())
        return found.record(STREAM, USER, commits.seen.identity, logged, None)


async def continues(shop: Shop, record: StateRecord) -> None:
    """Start a coordinator from a record, and log its policy."""
    shop.replica = Replica(STREAM, 0, record.state.model_copy(deep=True), len(shop.log.records) - 1)
    shop.table.doubted = dict(record.table.doubted)
    await shop.reload()


async def test_another_table_is_not_accepted_because_its_name_was_left_out(shop: Shop) -> None:
    shop.library.rename_table("shop.items", "shop.former")
    shop.library.create_table("shop.items", ID_ONLY, location=f"file://{shop.root}/another")
    record = await adopted_record(shop, "items")
    await continues(shop, record)
    assert shop.state.tables["items"] == record.state.tables["items"]
    problem = (await shop.table.compare(shop.state.tables))["items"]
    assert "shop.items is another table now" in problem.detail
    # The stream continues with its own one.
    shop.library.drop_table("shop.items")
    shop.library.rename_table("shop.former", "shop.items")
    assert not await shop.table.compare(shop.state.tables)


async def test_a_table_that_was_left_out_is_doubted_after_an_expiry(shop: Shop) -> None:
    shop.rollback("items", 1)
    shop.append("items", [900])
    record = await adopted_record(shop, "items")
    shop.expire("items")
    await continues(shop, record)
    problem = (await shop.table.compare(shop.state.tables))["items"]
    assert problem.cause is not None
    assert problem.cause.code is CauseCode.OTHER_NEWEST


async def test_the_registry_comes_back_from_the_anchor(shop: Shop) -> None:
    assert (await adopted(shop)).tables == shop.state.tables
    # A decision without files of a further table: the registry is that of the one before.
    await shop.commit(4, orders=[5])
    assert (await adopted(shop)).tables == shop.state.tables


async def test_tables_that_differ_are_named_and_can_be_left_out(shop: Shop) -> None:
    shop.rollback("items", 1)
    shop.library.drop_table("shop.taxes")
    with pytest.raises(ReplayRefused, match="--leave-out items --leave-out taxes"):
        await adopted(shop)
    with pytest.raises(ReplayRefused, match=r"items: .*--leave-out items:"):
        await adopted(shop, "taxes")
    found = await adopted(shop, "taxes", "items")
    # The entry stays, so that the table gets nothing before an operator has looked at it.
    assert found.tables["items"].newest.decision == 2
    with pytest.raises(ReplayRefused, match=r"no.* table bills"):
        await adopted(shop, "bills", "taxes", "items")


async def test_a_table_that_was_made_again_is_not_adopted(shop: Shop) -> None:
    shop.library.drop_table("shop.items")
    shop.create("items")
    with pytest.raises(ReplayRefused, match="items: it is another table now"):
        await adopted(shop)


async def test_a_renamed_table_is_adopted_under_its_new_name(shop: Shop) -> None:
    shop.library.rename_table("shop.items", "shop.lines")
    shop.settings = shop.named({"items": "shop.lines", "taxes": "shop.taxes"})
    assert (await adopted(shop)).tables["items"].newest == shop.state.tables["items"].newest


async def adopted_by_statement(shop: Shop, *left_out: str) -> LogState:
    """Return the state with which the stream continues if its newest commit states no positions."""
    with closing(shop.opened()) as anchor:
        commits = (await read_commits(anchor, STREAM))._replace(text="")
        region = shop.state.regions["r"]
        logged = Logged(Place(0, 0, None), LogState())
        found = choose(STREAM, commits, logged, Stated({"r": region.position}))
        return state_of((await compare_tables(anchor, commits, found, left_out)).account)


async def test_positions_that_are_stated_say_nothing_of_further_tables(shop: Shop) -> None:
    """The operator looks at each table that has commits, and states that it is right."""
    told = (
        r"tables are not in the positions that you state: items: it has decision 2; taxes: it has decision 4"
        r"\. Repeat this command with --leave-out items --leave-out taxes: .*stream resume --table"
    )
    with pytest.raises(ReplayRefused, match=told):
        await adopted_by_statement(shop)
    with pytest.raises(ReplayRefused, match=r"state: items: it has decision 2\. "):
        await adopted_by_statement(shop, "taxes")
    start = await adopted_by_statement(shop, "items", "taxes")
    shop.replica = Replica(STREAM, 0, start.model_copy(deep=True), len(shop.log.records) - 1)
    await shop.reload()
    with closing(shop.opened()) as anchor:
        await anchor.inspect()
        # A coordinator publishes nothing to such a table.
        assert (await anchor.trouble(shop.state.tables)).keys() == {"items", "taxes"}
        begin = Start(len(shop.log.records), start, len(shop.log.records) - 1)
        for name in ("items", "taxes"):
            connected = Connected(shop.log, begin, anchor, shop.state)
            shop.order(await state_table(connected, STREAM, name, head(shop, name)))
        assert await anchor.trouble(shop.state.tables) == {}
    assert {name: each.newest.decision for name, each in shop.state.tables.items()} == {
        "items": 2,
        "taxes": 4,
    }


async def test_a_table_without_commits_needs_no_statement(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    shop = Shop(tmp_path, threads)
    await shop.begin()
    await shop.commit(0, orders=[1])
    assert (await adopted_by_statement(shop)).tables == {}
