"""Content of large files in memory: the same bytes in the same order, in less memory."""

import random

import pytest

from sluicegate.lakes.delta.versions import Packed


@pytest.mark.slow
@pytest.mark.parametrize("plain", [0, 1, 1 << 20, 3 << 20, 1 << 30])
def test_the_parts_are_the_content_as_often_as_they_are_read(plain: int) -> None:
    dice, packed, whole = random.Random(7), Packed(plain), b""
    for _ in range(40):
        part = bytes([dice.randrange(256)]) * dice.choice((0, 1, 1_000, 200_000, 1_500_000))
        packed.add(part)
        whole += part
        if dice.randrange(5) == 0:
            assert b"".join(packed.parts()) == whole
    assert b"".join(packed.parts()) == b"".join(packed.parts()) == whole
    assert packed.size == len(whole)


def test_large_content_takes_less_memory_than_it_has_bytes() -> None:
    packed = Packed(4 << 20)
    for number in range(3_000):
        packed.add(b'{"add":{"path":"data-%032d.parquet","size":1234567,"stats":"..."}}\n' % number * 100)
    assert packed.size > 20 << 20
    assert packed.held < 5 << 20
    assert all(len(part) < 2 << 20 for part in packed.parts())
