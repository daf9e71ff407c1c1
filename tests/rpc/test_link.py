"""A link delivers every frame once and in order, whatever happens below it."""

import asyncio
import random
from collections.abc import Awaitable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from melisma.rpc import frames, link
from melisma.rpc.link import Link, Transfer
from melisma.rpc.transport import Closed, memory_transports, start
from melisma.rpc.values import Malformed


class Wire:
    """A transport that records messages, and breaks after ``lasts`` of them."""

    def __init__(self, lasts: int = 1_000_000) -> None:
        self.frames: list[bytes] = []
        self._lasts = lasts

    async def send(self, frame: bytes) -> None:
        if len(self.frames) == self._lasts:
            raise Closed
        self.frames.append(frame)

    def start_send(self, frame: bytes) -> Awaitable[None] | None:
        return start(self.send(frame))

    async def receive(self) -> bytes:
        raise Closed

    async def close(self) -> None: ...


def transfer(id: int, size: int) -> Transfer:
    head = frames.encode(frames.Cancel(id))
    return Transfer(head, id, [np.full(size, id, np.uint8)])


async def pumped(sender: Link, wire: Wire) -> list[bytes]:
    """Return the frames sent over ``wire`` until it breaks or none is left."""
    pump = asyncio.create_task(sender.pump(wire))
    for _ in range(1_000):
        await asyncio.sleep(0)
    pump.cancel()
    await asyncio.gather(pump, return_exceptions=True)
    return [
        frame
        for message in wire.frames
        for frame in ([message] if message[0] != frames.BATCH else unbatched(message))
        if not is_ack(frame)
    ]


def unbatched(message: bytes) -> list[bytes]:
    return list(frames.split_batch(message))


def is_ack(frame: bytes) -> bool:
    return frame[0] != frames.CHUNK and isinstance(frames.decode(frame), frames.Ack)


def small(number: int) -> bytes:
    return frames.encode(frames.Cancel(number))


def ready() -> Link:
    sender = Link()
    sender.room_bytes = 1 << 30
    return sender


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8))
@settings(max_examples=50)
def test_every_frame_arrives_once_and_in_order_over_any_broken_wires(
    breaks: list[tuple[int, int]],
) -> None:
    """Each wire breaks after some frames, of which fewer may have arrived."""

    async def scenario() -> list[bytes]:
        sender = ready()
        arrived: list[bytes] = []
        for number in range(20):
            sender.send(small(number))
        sender.send_transfer(transfer(7, 5 * frames.CHUNK_BYTES))
        for lasts, lost in breaks:
            sender.resume(len(arrived))
            over = await pumped(sender, Wire(lasts))
            arrived += over[: max(0, len(over) - lost)]
        sender.resume(len(arrived))
        return arrived + await pumped(sender, Wire())

    arrived = asyncio.run(scenario())
    assert arrived[:20] == [small(number) for number in range(20)]
    assert arrived[20] == small(7)
    chunks = [frames.split_chunk(frame) for frame in arrived[21:]]
    assert [id for id, _ in chunks] == [7] * 5
    assert sum(len(part) for _, part in chunks) == 5 * frames.CHUNK_BYTES


def test_a_small_frame_overtakes_memory() -> None:
    async def scenario() -> list[bytes]:
        sender, wire = ready(), Wire()
        sender.send_transfer(transfer(1, 10 * frames.CHUNK_BYTES))
        pump = asyncio.create_task(sender.pump(wire))
        while len(wire.frames) < 3:
            await asyncio.sleep(0)
        sender.send(small(99))
        while len(wire.frames) < 12:
            await asyncio.sleep(0)
        pump.cancel()
        return wire.frames

    assert small(99) in asyncio.run(scenario())[3:5]


def test_transfers_take_turns() -> None:
    async def scenario() -> list[bytes]:
        sender = ready()
        sender.send_transfer(transfer(1, 3 * frames.CHUNK_BYTES))
        sender.send_transfer(transfer(2, 3 * frames.CHUNK_BYTES))
        return await pumped(sender, Wire())

    order = [frames.split_chunk(f)[0] for f in asyncio.run(scenario()) if f[0] == 0xC1]
    assert order == [1, 2, 1, 2, 1, 2]


def test_no_more_memory_is_announced_than_the_far_side_takes() -> None:
    async def scenario() -> list[bytes]:
        sender = ready()
        sender.room_bytes = 3 * frames.CHUNK_BYTES
        for id in (1, 2):
            sender.send_transfer(transfer(id, 2 * frames.CHUNK_BYTES))
        return await pumped(sender, Wire())

    sent = asyncio.run(scenario())
    assert [frame[0] == frames.CHUNK for frame in sent] == [False, True, True] * 2


def test_memory_waits_for_confirmation_when_much_is_unconfirmed() -> None:
    async def scenario() -> tuple[int, int]:
        sender, wire = ready(), Wire()
        sender.send_transfer(transfer(1, link.WINDOW_BYTES + 4 * frames.CHUNK_BYTES))
        pump = asyncio.create_task(sender.pump(wire))
        for _ in range(5_000):
            await asyncio.sleep(0)
        before = len(wire.frames)
        sender.confirm(before)
        for _ in range(100):
            await asyncio.sleep(0)
        pump.cancel()
        return before, len(wire.frames)

    before, after = asyncio.run(scenario())
    assert before == 1 + link.WINDOW_BYTES // frames.CHUNK_BYTES
    assert after == before + 4


def test_what_is_cancelled_before_it_left_is_never_known() -> None:
    async def scenario() -> list[bytes]:
        sender = ready()
        unknown, known = transfer(1, 100_000), transfer(2, 3 * frames.CHUNK_BYTES)
        sender.send_transfer(unknown)
        assert not sender.cancel(unknown)
        sender.send_transfer(known)
        wire = Wire(2)
        over = await pumped(sender, wire)
        assert sender.cancel(known)
        sender.resume(len(over))
        return over + await pumped(sender, Wire())

    sent = asyncio.run(scenario())
    assert sent[0] == small(2)
    assert frames.decode(sent[-1]) == frames.Abort(2)
    assert len([frame for frame in sent if frame[0] == frames.CHUNK]) < 3


@pytest.mark.parametrize("claimed", [-1, 3])
def test_confirming_what_was_never_sent_is_malformed(claimed: int) -> None:
    async def scenario() -> None:
        sender = ready()
        sender.send(small(1))
        await pumped(sender, Wire())
        with pytest.raises(Malformed, match="never sent"):
            sender.resume(claimed)

    asyncio.run(scenario())


def test_the_memory_transport_carries_both_ways_and_closes_both_ends() -> None:
    async def scenario() -> None:
        near, far = memory_transports()
        await near.send(b"1")
        await far.send(b"2")
        assert (await far.receive(), await near.receive()) == (b"1", b"2")
        waiting = asyncio.create_task(far.receive())
        await near.close()
        for broken in (waiting, far.receive(), near.receive(), near.send(b"")):
            with pytest.raises(Closed):
                await broken

    asyncio.run(scenario())


def test_a_full_memory_transport_makes_the_sender_wait() -> None:
    async def scenario() -> list[bytes]:
        near, far = memory_transports(frames=2)
        sending = asyncio.gather(*(near.send(bytes([i])) for i in range(6)))
        await asyncio.sleep(0)
        assert not sending.done()
        order = [await far.receive() for _ in range(6)]
        await sending
        return order

    assert asyncio.run(scenario()) == [bytes([i]) for i in range(6)]


def test_frames_of_one_turn_of_the_loop_travel_together() -> None:
    async def scenario() -> list[bytes]:
        sender, wire = ready(), Wire()
        pump = asyncio.create_task(sender.pump(wire))
        await asyncio.sleep(0)
        for number in range(10):
            sender.send(small(number))
        assert wire.frames == [small(0)]  # the first does not wait
        await asyncio.sleep(0)
        pump.cancel()
        return wire.frames

    first, rest = asyncio.run(scenario())
    assert [first, *unbatched(rest)] == [small(number) for number in range(10)]


@given(st.lists(st.binary(), min_size=1))
def test_a_batch_is_taken_apart_again(parts: list[bytes]) -> None:
    assert unbatched(frames.batch(parts)) == parts


@pytest.mark.parametrize("data", [b"\xc2\x01", b"\xc2\x05\0\0\0ab"])
def test_a_batch_cut_short_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed, match="a batch ends within"):
        unbatched(data)


def test_chunks_of_random_sizes_are_cut_and_joined() -> None:
    sizes = [random.Random(0).randrange(1, 200_000) for _ in range(20)]
    buffers = [np.arange(size, dtype=np.uint32).view(np.uint8) for size in sizes]
    whole, parts = Transfer(b"", 1, buffers), []
    while whole.left_bytes:
        chunk = whole.chunk()
        assert isinstance(chunk, tuple)
        parts.append(bytes(chunk[1]))
    assert b"".join(parts) == b"".join(memory.tobytes() for memory in buffers)
    assert max(map(len, parts)) <= frames.CHUNK_BYTES
