"""Tables in HDFS: locations, calls that fail, get lost or hang, and commits of each format."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hdfs_native import FileWriter
from pyiceberg.catalog.sql import SqlCatalog
from pypaimon import CatalogFactory, Schema

from sluicegate.cli.local.servers import EmbeddedHdfs
from sluicegate.events.models import FilesWritten
from sluicegate.installation import install_command
from sluicegate.lakes import storage_hdfs
from sluicegate.lakes.port import (
    Absent,
    CommitRequest,
    Found,
    LakeUnavailable,
    Published,
    TableRef,
    TableRefused,
)
from sluicegate.lakes.registry import adapter
from sluicegate.lakes.storage import Content, Uncertain
from sluicegate.lakes.storage_hdfs import HdfsStorage, Kind, understand
from sluicegate.lakes.storages import location_uri, open_storage
from sluicegate.writer_hooks.errors import BadCheckpointLocation
from sluicegate.writer_hooks.spark.location import Location
from tests.doubles.cutting import CuttingProxy
from tests.hdfs import FILE_IO, NameNode, admin, configuration, data_nodes
from tests.integration.waiting import wait_until

NAME = "snapshot/snapshot-1"
NODE = "hdfs://namenode:8020"
ALL = 1_000_000


# Locations.


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("hdfs://namenode:8020/lake/orders", "hdfs://namenode:8020/lake/orders"),
        ("HDFS://namenode:8020//lake/./orders/", "hdfs://namenode:8020/lake/orders"),
        ("hdfs://cluster/lake/a b/dt=1", "hdfs://cluster/lake/a b/dt=1"),
    ],
)
def test_a_location_has_one_uri(location: str, uri: str) -> None:
    assert location_uri(location) == uri
    assert open_storage(location).uri == uri


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("viewfs://cluster/lake", "viewfs"),
        ("webhdfs://namenode:9870/lake", "webhdfs"),
        ("swebhdfs://namenode:9870/lake", "swebhdfs"),
        ("hdfs://alice:hidden-word@namenode:8020/lake", "must not name a user"),
        ("hdfs:///lake/orders", "HADOOP_CONF_DIR"),
        ("hdfs://", "HADOOP_CONF_DIR"),
        ("hdfs://name node/lake", "must begin with hdfs://"),
        (f"{NODE}/lake/a:b", "forbids in names"),
        (f"{NODE}/lake/../x", "in two ways"),
        (f"{NODE}/lake/a%20b", "in two ways"),
    ],
)
def test_a_location_is_refused_with_its_reason(
    location: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with pytest.raises(TableRefused, match=reason) as caught:
        location_uri(location)
    assert "hidden-word" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["viewfs", "webhdfs", "swebhdfs"])
@pytest.mark.parametrize("lake", ["paimon", "iceberg", "delta"])
def test_each_format_refuses_another_way_to_hdfs_before_it_writes(lake: str, scheme: str) -> None:
    way_out = rf"cannot begin with {scheme}://: .*\. Write it with hdfs:// and the address of the NameNode"
    with pytest.raises(TableRefused, match=way_out):
        adapter(lake).parse_table(f"{scheme}://cluster/lake/db/orders")


def test_a_location_without_an_address_is_of_the_cluster_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = configuration(tmp_path / "conf", fs_defaultFS="hdfs://cluster-1")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))
    assert location_uri("hdfs:///lake/orders") == "hdfs://cluster-1/lake/orders"
    (folder / "core-site.xml").write_text("<configuration>", encoding="utf-8")
    with pytest.raises(TableRefused, match="Correct it, or HADOOP_CONF_DIR"):
        location_uri("hdfs:///lake/orders")


def test_without_its_package_a_table_in_hdfs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    monkeypatch.delitem(sys.modules, "sluicegate.lakes.storage_hdfs")
    with pytest.raises(TableRefused) as caught:
        open_storage(f"{NODE}/lake/orders")
    assert install_command("hdfs") in str(caught.value)


# Kinds of failures.


def _rpc(name: str, text: str = "") -> RuntimeError:
    return RuntimeError(f'RPCError("org.apache.hadoop.{name}", "{text}")')


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_rpc("security.AccessControlException"), Kind.DENIED),
        (
            RuntimeError('FatalRPCError("org.apache.hadoop.security.AccessControlException", "x")'),
            Kind.DENIED,
        ),
        (_rpc("hdfs.server.namenode.SafeModeException"), Kind.SAFE_MODE),
        (_rpc("ipc.RetriableException", "Name node is in safe mode."), Kind.SAFE_MODE),
        (_rpc("ipc.StandbyException"), Kind.STANDBY),
        (_rpc("hdfs.protocol.NSQuotaExceededException"), Kind.QUOTA),
        (_rpc("hdfs.protocol.DSQuotaExceededException"), Kind.QUOTA),
        (_rpc("fs.ParentNotDirectoryException"), Kind.NO_FOLDER),
        (_rpc("hdfs.protocol.FSLimitException$PathComponentTooLongException"), Kind.NO_NAME),
        (
            RuntimeError(
                'RPCError("java.io.IOException", "File /a could only be written to 0 of the 1 minReplication '
                'nodes")'
            ),
            Kind.NO_SPACE,
        ),
        (OSError("Connection refused (os error 111)"), Kind.UNREACHABLE),
        (OSError("RPC listener disconnected"), Kind.UNCLEAR),
        (FileExistsError("/a"), Kind.TAKEN),
        (FileNotFoundError("/a"), Kind.ABSENT),
        (IsADirectoryError("/a"), Kind.NO_FILE),
        (RuntimeError("DataTransferError(...)"), Kind.UNCLEAR),
    ],
)
def test_a_failure_has_the_kind_of_its_java_class(error: Exception, kind: Kind) -> None:
    assert understand(error).kind is kind


# Calls that get lost or hang, and refusals of a real cluster.


class Armed(HdfsStorage):
    """Loses answers from the rename of a put on."""

    def __init__(self, proxy: CuttingProxy, folder: str, answers: int) -> None:
        super().__init__(f"hdfs://127.0.0.1:{proxy.port}/{folder}", f"127.0.0.1:{proxy.port}")
        self._proxy = proxy
        self._answers = answers

    def _rename(self, name: str, draft: str, content: Content) -> bool:
        self._proxy.cutting = self._answers
        try:
            return super()._rename(name, draft, content)
        finally:
            self._proxy.cutting = 0


@pytest.fixture
def proxy(hdfs: EmbeddedHdfs) -> Iterator[CuttingProxy]:
    with CuttingProxy(hdfs.port) as started:
        yield started


@pytest.mark.seam
@pytest.mark.parametrize("answers", [1, 2, 3, 4, ALL])
@pytest.mark.parametrize("taken", [False, True])
def test_a_put_with_lost_answers_has_no_wrong_outcome(
    hdfs: EmbeddedHdfs, proxy: CuttingProxy, unique: str, answers: int, taken: bool
) -> None:
    direct = open_storage(f"{hdfs.uri}/{unique}")
    direct.make_folder()
    if taken:
        assert direct.put_if_absent(NAME, b"other")
    storage = Armed(proxy, unique, answers)
    try:
        put: bool | None = storage.put_if_absent(NAME, b"mine")
    except Uncertain:
        put = None
    except LakeUnavailable:
        put = False
    assert proxy.cut
    there = direct.read(NAME)
    assert there == (b"other" if taken else b"mine" if put else there)
    if answers == 1:
        assert put is (not taken)
    # A put that is uncertain is settled by another try: of two contents, one is there.
    if put is None:
        assert direct.put_if_absent(NAME, b"next") is (there is None)
    elif not put and not taken:
        assert there is None
    assert storage.stamp_of_put(NAME) == (direct.stamp(NAME) if put else None)


@pytest.mark.seam
def test_a_cluster_that_hangs_delays_a_call_until_its_deadline(
    own_hdfs: EmbeddedHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(f"{own_hdfs.uri}/lake/numbers")
    assert isinstance(storage, HdfsStorage)
    storage.make_folder()
    assert storage.put_if_absent(NAME, b"one")
    rename = storage._rename

    def hung(name: str, draft: str, content: Content) -> bool:
        own_hdfs.suspend()
        monkeypatch.setattr(storage_hdfs, "DEADLINE", 0.3)
        try:
            return rename(name, draft, content)
        finally:
            monkeypatch.undo()

    monkeypatch.setattr(storage, "_rename", hung)
    with pytest.raises(Uncertain, match="no answer in time"):
        storage.put_if_absent("snapshot/snapshot-2", b"two")
    with monkeypatch.context() as context:
        context.setattr(storage_hdfs, "DEADLINE", 0.3)
        with pytest.raises(LakeUnavailable, match=r"no answer in time\. See the health of the NameNode"):
            storage.read(NAME)
        with pytest.raises(LakeUnavailable, match="no answer in time"):
            storage.put_if_absent("snapshot/snapshot-3", b"three")
    own_hdfs.resume()
    # The calls that hung may have their effect now, or none.
    assert storage.read(NAME) == b"one"
    won = storage.put_if_absent("snapshot/snapshot-2", b"again")
    assert storage.read("snapshot/snapshot-2") == (b"again" if won else b"two")
    own_hdfs.kill()
    with pytest.raises(LakeUnavailable, match="the NameNode cannot be reached"):
        storage.read(NAME)
    own_hdfs.start()
    assert storage.read(NAME) == b"one"


@pytest.mark.matrix
def test_a_cluster_that_refuses_is_told_with_the_way_out(
    own_hdfs: EmbeddedHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(f"{own_hdfs.uri}/lake/numbers")
    storage.make_folder()
    assert storage.put_if_absent(NAME, b"one")
    admin(own_hdfs, "-safemode", "enter")
    with pytest.raises(LakeUnavailable, match=r"is in safe mode .*\. Wait until it leaves it"):
        storage.put_if_absent("snapshot/snapshot-4", b"four")
    assert storage.read(NAME) == b"one"
    admin(own_hdfs, "-safemode", "leave")
    admin(own_hdfs, "-setQuota", "3", "/lake/numbers")
    with pytest.raises(LakeUnavailable, match=r"the quota of the folder is used up .*\. Raise the quota"):
        storage.put_if_absent("snapshot/snapshot-4", b"four")
    admin(own_hdfs, "-clrQuota", "/lake/numbers")
    assert storage.put_if_absent("snapshot/snapshot-4", b"four")
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    other = open_storage(f"{own_hdfs.uri}/lake/numbers")
    with pytest.raises(LakeUnavailable, match=r"permission denied .*\. Give the user somebody"):
        other.put_if_absent("snapshot/snapshot-5", b"five")
    assert other.read(NAME) == b"one"


@pytest.mark.matrix
@pytest.mark.hdfs
def test_without_space_nothing_is_put() -> None:
    # A data node needs space for a whole block. The NameNode keeps its size in 48 bits.
    with EmbeddedHdfs(settings={"dfs.blocksize": str(1 << 47)}) as cluster:
        storage = open_storage(f"{cluster.uri}/lake/numbers")
        storage.make_folder()
        with pytest.raises(LakeUnavailable, match=r"no data node takes a block .*\. Free some space"):
            storage.put_if_absent(NAME, b"one")
        assert storage.names("snapshot") == []


@pytest.mark.seam
@pytest.mark.parametrize("fails", [False, True])
def test_the_collector_closes_no_file(
    hdfs: EmbeddedHdfs, unique: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would do so in any thread, without a deadline, and make a whole file of what a failed write left."""
    closed: list[FileWriter] = []
    close = FileWriter.close

    def noted(file: FileWriter) -> None:
        closed.append(file)
        close(file)

    def refused(file: FileWriter) -> None:
        raise OSError("Connection refused (os error 111)")

    monkeypatch.setattr(FileWriter, "close", noted)
    storage = open_storage(f"{hdfs.uri}/{unique}")
    storage.make_folder()
    if fails:
        monkeypatch.setattr(FileWriter, "hsync", refused)
        with pytest.raises(LakeUnavailable):
            storage.write("data", {"a": b"x"})
    else:
        storage.write("data", {"a": b"x"})
    called = len(closed)
    closed.clear()
    gc.collect()
    assert (called, len(closed)) == (0 if fails else 1, 0)


@pytest.mark.matrix
@pytest.mark.hdfs
def test_reads_ask_another_data_node_than_a_frozen_one_and_puts_follow_when_it_is_avoided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {
        "dfs.replication": "3",
        "dfs.namenode.avoid.write.stale.datanode": "true",
        # Three heartbeats of the data nodes; less is not possible.
        "dfs.namenode.stale.datanode.interval": "9000",
    }
    # With as many data nodes as copies, the NameNode would choose the frozen one all the same.
    with NameNode(settings=settings) as cluster, data_nodes(cluster, 4) as nodes:
        storage = open_storage(f"{cluster.uri}/lake/numbers")
        storage.make_folder()
        written: list[int] = []

        def put() -> bool:
            try:
                won = storage.put_if_absent(f"snapshot/snapshot-{len(written)}", b"%d" % len(written))
            except LakeUnavailable:
                return False
            assert won, "a put that failed has left its file"
            written.append(len(written))
            return True

        wait_until(lambda: put() and len(written) == 12)
        nodes[0].suspend()
        # A third of these reads begins at the frozen node.
        for number in written:
            assert storage.read(f"snapshot/snapshot-{number}") == b"%d" % number
        with monkeypatch.context() as context:
            context.setattr(storage_hdfs, "DEADLINE", 2.0)
            # A block is on three of four nodes: by chance, some of so many puts choose the frozen one.
            wait_until(lambda: all(put() for _ in range(20)), what="puts without the frozen node")
        nodes[0].resume()
        wait_until(put)
        for number in written:
            assert storage.read(f"snapshot/snapshot-{number}") == b"%d" % number


@pytest.mark.seam
def test_only_a_new_table_gets_a_folder(hdfs: EmbeddedHdfs, unique: str) -> None:
    """A table that was moved away gets no file at its former place."""
    storage, root = open_storage(f"{hdfs.uri}/{unique}/db/numbers"), open_storage(f"{hdfs.uri}/{unique}")
    root.make_folder()
    root.write(".", {"a": b"x"})
    for write in (
        lambda: storage.write("data", {"a": b"x"}),
        lambda: storage.put_if_absent("log/a", b"x"),
        lambda: storage.put_after("data", {"a": b"x"}, "log/a", b"x"),
        lambda: storage.replace("a", b"x"),
        lambda: storage.copy(root, "a"),
    ):
        with pytest.raises(LakeUnavailable, match="See whether the folder of the table was moved"):
            write()
        storage.hint("a", b"x")
        assert root.names(".") == ["a"]
    storage.make_folder()
    storage.write("data/of/a/partition", {"a": b"x"})
    assert storage.read("data/of/a/partition/a") == b"x"


@pytest.mark.seam
def test_a_checkpoint_location_can_be_in_hdfs(hdfs: EmbeddedHdfs, unique: str) -> None:
    location = Location(f"{hdfs.uri}/{unique}/checkpoint")
    assert location.read("metadata") is None
    assert (location.files("", below=True), location.newest("offsets")) == ([], None)
    for name, content in {"metadata": b"q", "offsets/9": b"9", "offsets/10": b"10", "own/a/b": b"b"}.items():
        location.write(name, b"before")
        location.write(name, content)
        assert location.read(name) == content
    assert location.newest("offsets") == 10
    assert location.files("") == ["metadata"]
    location.move("own/a/b", "own/c/d")
    assert location.files("own", below=True) == ["own/c/d"]
    assert location.read("own/c/d") == b"b"
    for _ in range(2):
        location.delete("own/c/d")
    assert location.read("own/c/d") is None
    with pytest.raises(BadCheckpointLocation, match="viewfs"):
        Location("viewfs://cluster/checkpoint")


# Commits of each format; its own library makes the table, and reads it.

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("part", pa.string())])


class Table:
    """A table in a folder of the cluster."""

    def __init__(self, lake: str, root: str, folder: Path) -> None:
        self.lake, self.root, options = adapter(lake), root, {}
        self.location = f"{root}/db.db/numbers"
        if lake == "paimon":
            self.catalog = CatalogFactory.create({"warehouse": root})
            self.catalog.create_database("db", True)
            schema = Schema.from_pyarrow_schema(SCHEMA, partition_keys=["part"])
            self.catalog.create_table("db.numbers", schema, False)
        elif lake == "delta":
            DeltaTable.create(self.location, SCHEMA, partition_by=["part"])
        else:
            options = {"uri": f"sqlite:///{folder}/catalog.db", "identifier": "db.numbers"}
            self.sql = SqlCatalog("default", uri=options["uri"], warehouse=root, **FILE_IO)
            self.sql.create_namespace("db")
            self.location = self.sql.create_table("db.numbers", SCHEMA).location()
        self.ref: TableRef = self.lake.parse_table(self.location, options)

    def event(self, number: int) -> FilesWritten:
        writer = self.lake.open_writer(self.ref, None)
        writer.write(pa.record_batch({"id": [number, -number], "part": ["a", "b"]}, schema=SCHEMA))
        return FilesWritten(
            format=self.lake.name,
            format_version=self.lake.format_version,
            location=writer.location,
            schema_id=writer.schema_id,
            schema_digest=writer.schema_digest,
            table_identity=writer.table_identity,
            spec_id=writer.spec_id,
            files=tuple(writer.finish()),
        )

    def ids(self) -> list[int]:
        if self.lake.name == "delta":
            found = DeltaTable(self.location).to_pyarrow_table()
        elif self.lake.name == "iceberg":
            found = self.sql.load_table("db.numbers").scan().to_arrow()
        else:
            builder = self.catalog.get_table("db.numbers").new_read_builder()
            found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        return sorted(found["id"].to_pylist())


@pytest.mark.seam
@pytest.mark.parametrize(
    "lake", ["paimon", *(pytest.param(each, marks=pytest.mark.matrix) for each in ("iceberg", "delta"))]
)
def test_a_commit_in_hdfs_is_read_by_the_library_of_its_format(
    hdfs: EmbeddedHdfs, lake: str, unique: str, tmp_path: Path
) -> None:
    table = Table(lake, f"{hdfs.uri}/{unique}", tmp_path)
    committer = table.lake.open_committer(table.ref, "orders")
    try:
        identity, recorded = committer.inspect().identity, None
        for number in (1, 2):
            digest = f"digest-{number}"
            answer = committer.ask(number, digest, identity, recorded)
            assert isinstance(answer, Absent)
            request = CommitRequest(number, digest, answer.head, None, committer.check([table.event(number)]))
            done = committer.publish(request)
            assert isinstance(done, Published)
            recorded = done.snapshot
            found = committer.ask(number, digest, identity, recorded)
            assert isinstance(found, Found)
            # A predecessor that thaws changes nothing.
            assert not isinstance(committer.publish(request), Published) or table.ids() == sorted(
                each for n in range(1, number + 1) for each in (n, -n)
            )
    finally:
        committer.close()
    assert table.ids() == [-2, -1, 1, 2]
