"""Records of a partition that orders skip, for readers of a range of it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from aiokafka import ConsumerRecord

from sluicegate.events.attributes import RawHeader
from sluicegate.events.codec import EVENT_SHAPES, Reading
from sluicegate.events.signing import Decoder
from sluicegate.events.skipping import Skips, digest_of, skipped_record

Batches = AsyncGenerator[list[ConsumerRecord], None]


class Skipped:
    """Finds the orders that skip records, and decodes each record with regard to them.

    An order follows its record. So the first record that only a newer release reads has the rest of the log
    searched for orders, once. A log without such a record is read once.
    """

    def __init__(
        self, read: Decoder, batches: Callable[[int, int], Batches], end: Callable[[], Awaitable[int]]
    ) -> None:
        """`read` decodes a record, `batches` reads a range of the partition, `end` returns its end offset."""
        self._decode = read
        self._batches = batches
        self._end = end
        self._skips = Skips()
        self._digests: dict[int, str] = {}
        """By offset, the digests of the records that an order skips, as far as they were read."""
        self._searched = 0

    async def note(self, batch: Sequence[ConsumerRecord]) -> bool:
        """Note the records of a batch that orders skip; return True if the log was searched for orders.

        Raises KafkaError, TimeoutError.
        """
        newer = [(each, stream) for each in batch if (stream := self._stalled(each)) is not None]
        searched = bool(newer) and newer[-1][0].offset >= self._searched
        if searched:
            end = await self._end()
            async with aclosing(self._batches(newer[0][0].offset, end)) as batches:
                async for later in batches:
                    for each in later:
                        if (record := self._read(each).record) is not None:
                            self._skips.note(record)
            self._searched = end
        for each, stream in newer:
            digest = digest_of(each.key, each.headers, each.value)
            if self._skips.name(stream, each.offset, digest):
                self._digests[each.offset] = digest
        return searched

    def decode(self, offset: int, time: int, headers: Sequence[RawHeader], value: bytes | None) -> Reading:
        """Decode a record of a batch that was noted."""
        if (digest := self._digests.get(offset)) is not None:
            return Reading(skipped_record(offset, time, headers, digest), None)
        return self._decode(offset, time, headers, value)

    def _stalled(self, record: ConsumerRecord) -> str | None:
        """Return the stream that a record stalls; None if it stalls none."""
        if any(name == "ce_type" and value in EVENT_SHAPES for name, value in record.headers):
            # Nearly every record.
            return None
        flaw = self._read(record).flaw
        return flaw.stream if flaw is not None and flaw.stalls else None

    def _read(self, record: ConsumerRecord) -> Reading:
        return self._decode(record.offset, record.timestamp, record.headers, record.value)
