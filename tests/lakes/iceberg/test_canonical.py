"""Records that are proven without decoding: only those that the decoder and its checks take, too."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.types import NestedField

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.avro import write_long
from sluicegate.lakes.iceberg.entries import COUNTS, CanonicalRecords, Examiner, MetricRules
from sluicegate.lakes.iceberg.layout import Layout, Partition
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.iceberg.values import bound_reader
from sluicegate.lakes.port import BadFiles
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.lakes.iceberg import rich

pytestmark = pytest.mark.slow

SEEDS = 20_000
BOUNDS = ("lower_bounds", "upper_bounds")


class Prover:
    """A prover that knows the partitions of a table's files."""

    def __init__(self, lake: IcebergLake, events: list[FilesWritten]) -> None:
        self.view = TableView(lake.metadata)
        self.layout = Layout(self.view.schema, self.view.spec, self.view.version)
        readers = {column: bound_reader(each.field_type) for column, each in self._fields()}
        columns = {column: read for column, read in readers.items() if read is not None}
        orders = {None, 0, *self.view.sort_orders}
        prefix = f"{self.view.data_location}/"
        self.records = CanonicalRecords(prefix, columns, orders, MetricRules(self.view.schema))
        for event in events:
            for file in event.files:
                partition: Partition = self.layout.decode(file.metadata)["partition"]
                self.records.learn(file, self.layout.encode_partition(partition), partition)

    def _fields(self) -> Iterator[tuple[int, NestedField]]:
        schema = self.view.schema
        return ((number, schema.find_field(number)) for number in schema.field_ids)

    def decoded(self, event: FilesWritten, file: FileInfo) -> Partition:
        """Return the partition that the decoder finds. Raises BadFiles."""
        (found,) = Examiner(self.view).examine(event.model_copy(update={"files": (file,)})).partitions
        return found


def damaged(raw: bytes, dice: random.Random) -> bytes:
    spoiled = bytearray(raw)
    at = dice.randrange(len(raw))
    match dice.randrange(7):
        case 0:
            del spoiled[at : at + dice.randint(1, 4)]
        case 5:
            del spoiled[at:]
        case 6:
            spoiled += dice.randbytes(dice.randint(1, 9))
        case 1:
            # A number that is longer than it must be.
            spoiled[at : at + 1] = bytes([raw[at] | 0x80, 0])
        case 2:
            spoiled[at : at + dice.randrange(4)] = dice.randbytes(dice.randrange(4))
        case 3:
            spoiled[at] = (raw[at] + dice.choice((-2, -1, 1, 2))) % 256
        case _:
            for _ in range(dice.randint(1, 3)):
                spoiled[dice.randrange(len(raw))] = dice.randrange(256)
    return bytes(spoiled)


@pytest.mark.parametrize("name", ["buckets", "truncated", "real", "void"])
def test_whatever_is_proven_is_taken_by_the_decoder(tmp_path: Path, name: str) -> None:
    lake = IcebergLake(tmp_path, schema=rich.RICH, spec=rich.spec(name))
    event = lake.write(rich.rows(range(14)))
    prover = Prover(lake, [event])
    proven = 0
    for seed in range(SEEDS):
        dice = random.Random(seed)
        good = dice.choice(event.files)
        file = good.model_copy(update={"metadata": damaged(good.metadata, dice)})
        partition = prover.records.partition_of(file)
        if partition is not None and file.metadata != good.metadata:
            proven += 1
            # Few of them have another content, such as another bound.
            if proven < 100:
                assert partition == prover.decoded(event, file)
    assert proven


def test_what_the_decoder_refuses_is_refused_by_an_examiner_that_knows_the_partition(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, schema=rich.RICH, spec=rich.spec("buckets"))
    event = lake.write(rich.rows([1]))
    (file,) = event.files
    view = TableView(lake.metadata)
    layout, examiner = Layout(view.schema, view.spec, view.version), Examiner(view)
    examiner.examine(event)
    record = layout.decode(file.metadata)
    counts = [{"key": 1, "value": 70}, {"key": 2, "value": 1}]
    plain = layout.encode({**record, "column_sizes": counts})
    first, second = (write_long(each["key"]) + write_long(each["value"]) for each in counts)
    whole = b"\x02\x04" + first + second + b"\x00"
    assert plain.count(whole) == 1
    forms = {
        "as it is": whole,
        "two blocks": b"\x02\x02" + first + b"\x02" + second + b"\x00",
        "a size": b"\x02\x03" + write_long(len(first + second)) + first + second + b"\x00",
        "a long number": b"\x02\x04" + first + second[:-1] + bytes([second[-1] | 0x80, 0]) + b"\x00",
        "a long count": b"\x02\x84\x00" + first + second + b"\x00",
        "a long kind": b"\x82\x00\x04" + first + second + b"\x00",
        "a negative count": b"\x02\x04" + first + write_long(2) + write_long(-1) + b"\x00",
        "a column twice": b"\x02\x04" + first + first + b"\x00",
        "no such column": b"\x02\x04" + first + write_long(99) + write_long(1) + b"\x00",
        "too large": b"\x02\x04" + first + write_long(2) + b"\xfe" + b"\xff" * 8 + b"\x03\x00",
    }
    events = {
        name: event.model_copy(
            update={"files": (file.model_copy(update={"metadata": plain.replace(whole, form)}),)}
        )
        for name, form in forms.items()
    }
    examiner.examine(events.pop("as it is"))
    for name, changed in events.items():
        with pytest.raises(BadFiles, match=file.path):
            raise AssertionError(f"{name}: {examiner.examine(changed)}")


def test_the_counts_of_a_proven_record_follow_the_rules(tmp_path: Path) -> None:
    """Random counts and bounds: what is proven is taken by the decoder, and the other way round."""
    lake = IcebergLake(tmp_path, schema=rich.RICH, spec=rich.spec("void"))
    event = lake.write(rich.rows(range(0, 6, 2)))
    (file,) = event.files
    prover = Prover(lake, [event])
    record = prover.layout.decode(file.metadata)
    outcomes = [0, 0]
    for seed in range(1_500):
        dice = random.Random(seed)
        changed = {name: [dict(pair) for pair in record[name] or ()] for name in (*COUNTS, *BOUNDS)}
        for _ in range(dice.randint(1, 2)):
            name = dice.choice(COUNTS)
            numbers = (0, 0, 1, 2, 3, 3, 4, file.size, file.size + 1, (1 << 63) - 1)
            pair = {"key": dice.choice((1, 5, 6, 7, 16, 19)), "value": dice.choice(numbers)}
            changed[name] = [each for each in changed[name] if each["key"] != pair["key"]] + [pair]
        for name in BOUNDS:
            changed[name] = [each for each in changed[name] if dice.randrange(6)]
        crafted = file.model_copy(update={"metadata": prover.layout.encode({**record, **changed})})
        proven = prover.records.partition_of(crafted) is not None
        outcomes[proven] += 1
        try:
            prover.decoded(event, crafted)
        except BadFiles:
            assert not proven
        else:
            assert proven
    assert min(outcomes) > 50
