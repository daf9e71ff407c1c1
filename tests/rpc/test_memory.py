"""What peers have half sent or do not read fits in one budget, and others go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.rpc.test_hostile import announced, hello, silent

from melisma import cgroups, rpc
from melisma.errors import RemoteError, TransportError
from melisma.rpc import frames, memory
from melisma.rpc.memory import Budget, Reservation
from melisma.rpc.transport import Transport, memory_transports

KB, MB = 1 << 10, 1 << 20


@dataclass
class Half:
    bytes: int
    left_bytes: int


def granted(*reservations: Reservation) -> list[bool]:
    return [r.granted.done() and not r.granted.cancelled() for r in reservations]


def test_room_is_granted_in_the_order_of_asking() -> None:
    async def scenario() -> None:
        budget = Budget(100)
        sizes = {"a": 40, "b": 40, "c": 30, "d": 5}
        a, b, c, d = (budget.reserve(name, n) for name, n in sizes.items())
        assert granted(a, b, c, d) == [True, True, False, False]
        a.release()
        assert granted(c, d) == [True, True]
        for reservation in (b, c, d):
            reservation.release()
        assert budget.held_bytes == 0

    asyncio.run(scenario())


def test_one_token_has_half_of_it_and_lets_others_pass() -> None:
    async def scenario() -> None:
        budget = Budget(100)
        greedy = [budget.reserve("greedy", 25) for _ in range(4)]
        other = budget.reserve("other", 25)
        assert granted(*greedy, other) == [True, True, False, False, True]

    asyncio.run(scenario())


def test_what_is_larger_than_all_of_it_comes_alone() -> None:
    async def scenario() -> None:
        budget = Budget(100)
        small, large = budget.reserve("a", 10), budget.reserve("b", 1000)
        after = budget.reserve("c", 10)
        assert granted(small, large, after) == [True, False, False]
        small.release()
        assert granted(large, after) == [True, False]
        large.release()
        assert granted(after) == [True]

    asyncio.run(scenario())


def test_who_leaves_the_line_is_not_waited_for() -> None:
    async def scenario() -> None:
        budget = Budget(100)
        budget.reserve("a", 90)
        gone, after = budget.reserve("b", 60), budget.reserve("c", 10)
        assert granted(after) == [False]
        gone.release()
        assert granted(after) == [True]
        assert gone.granted.cancelled()

    asyncio.run(scenario())


def test_the_transfer_that_takes_longest_yet_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "PATIENCE_S", 0.02)
    monkeypatch.setattr(memory, "SOON_S", 1.0)

    async def scenario() -> None:
        budget, cut = Budget(100), list[str]()
        quick = budget.reserve("a", 45, Half(45, 1), lambda: cut.append("quick"))

        def stop() -> None:
            cut.append("slow")
            slow.release()

        slow = budget.reserve("b", 45, Half(10**6, 10**6 - 1), stop)
        waiting = budget.reserve("c", 45)
        await asyncio.wait_for(waiting.granted, 10)
        assert cut == ["slow"]
        quick.release()

    asyncio.run(scenario())


def test_who_waits_for_its_own_token_has_nobody_else_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "PATIENCE_S", 0.01)
    monkeypatch.setattr(memory, "SOON_S", 0.0)

    async def scenario() -> None:
        budget, cut = Budget(100), list[str]()
        half = Half(10**6, 10**6 - 1)
        budget.reserve("honest", 30, half, lambda: cut.append("honest"))
        own = budget.reserve("greedy", 40, half, lambda: cut.append("greedy"))
        waiting = budget.reserve("greedy", 20)
        await asyncio.sleep(0.05)
        assert set(cut) == {"greedy"}
        own.release()
        assert granted(waiting) == [True]

    asyncio.run(scenario())


def test_an_answer_comes_before_calls_that_nobody_asked_for() -> None:
    async def scenario() -> None:
        budget = Budget(100)
        first = budget.reserve("a", 90)
        calls = [budget.reserve(name, 40) for name in "bc"]
        answers = [budget.reserve(name, 40, asked=True) for name in "de"]
        first.release()
        assert granted(*calls, *answers) == [False, False, True, True]

    asyncio.run(scenario())


def test_nobody_is_cut_off_who_will_soon_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "PATIENCE_S", 0.01)

    async def scenario() -> None:
        budget, cut = Budget(100), list[str]()
        budget.reserve("a", 90, Half(90, 45), lambda: cut.append("a"))
        waiting = budget.reserve("b", 45)
        await asyncio.sleep(0.05)
        assert (granted(waiting), cut) == ([False], [])

    asyncio.run(scenario())


def test_the_default_is_part_of_what_this_process_may_use() -> None:
    with open("/proc/meminfo") as file:
        total = int(file.readline().split()[1]) * KB
    assert 0 < memory.default_bytes() <= total / 4


@pytest.mark.parametrize(
    ("own", "file"),
    [
        ("0::/system.slice/melisma.service", "system.slice/memory.max"),
        ("7:cpu:/x\n4:memory:/a/b", "memory/a/b/memory.limit_in_bytes"),
    ],
)
def test_the_limit_of_a_cgroup_or_its_parent_counts(
    own: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_text(own + "\n")
    limit = tmp_path / "groups" / file
    limit.parent.mkdir(parents=True)
    limit.write_text("400000\n")
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "groups")
    assert memory.default_bytes() == 100_000


# On a server

accepting: list[asyncio.Future[None]] = []


@rpc.expose
def size(array: Any) -> int:
    return int(array.size)


@rpc.expose
def large() -> Any:
    return np.zeros(MB, dtype=np.uint8)


@rpc.expose
def length(value: Any) -> int:
    return len(value)


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[rpc.Server]:
    limits = {"message_bytes": MB, "grace_s": 0.001, "calls": 16} | limits
    server = await rpc.aserve(
        size, large, length, port=None, limits=rpc.Limits(**limits), say=silent
    )
    async with asyncio.timeout(60), server:
        yield server


async def dialled(
    server: rpc.Server, name: str, functions: dict[str, bool] | None = None
) -> Transport:
    near, far = memory_transports()
    accepting.append(asyncio.ensure_future(server._hub.accept(far)))
    offers = functions or {}
    await near.send(hello(name=name, message_bytes=2 * MB, functions=offers))
    await near.receive()
    return near


def test_a_crowd_that_sends_at_once_is_served_in_turn() -> None:
    array, most = np.zeros(512 * KB, dtype=np.uint8), list[int]()

    async def scenario() -> None:
        async with serving(total_bytes=MB) as server:
            budget = server._hub.budget
            crowd = [await rpc.aconnect(server, name=f"p{k}") for k in range(12)]
            calls = [peer.size(array) for peer in crowd]
            waiting = asyncio.gather(*calls)
            while not waiting.done():
                most.append(budget.held_bytes)
                await asyncio.sleep(0)
            assert await waiting == [array.size] * 12
            assert 0 < max(most) <= MB
            assert budget.held_bytes == 0
            for peer in crowd:
                await peer.close()

    asyncio.run(scenario())


def test_half_messages_do_not_keep_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "PATIENCE_S", 0.02)
    monkeypatch.setattr(memory, "SOON_S", 0.5)
    chunk = frames.chunk_prefix(1) + bytes(KB)

    async def scenario() -> None:
        async with serving(total_bytes=2 * MB) as server:
            for k in range(6):
                wire = await dialled(server, f"offender-{k}")
                await wire.send(announced(1, 8, 700 * KB, function="size"))
                with contextlib.suppress(TimeoutError):  # the later ones are not read
                    async with asyncio.timeout(0.01):
                        await wire.send(chunk)
            honest = await rpc.aconnect(server, name="honest")
            assert await honest.size(np.zeros(800 * KB, dtype=np.uint8)) == 800 * KB
            assert server._hub.budget.held_bytes <= 2 * MB
            await honest.close()

    asyncio.run(scenario())


def test_nothing_is_read_before_there_is_room_for_it() -> None:
    async def scenario() -> None:
        async with serving(total_bytes=MB) as server:
            for name in ("first", "second"):
                wire = await dialled(server, name)
                await wire.send(announced(1, 8, 700 * KB, function="size"))
                await wire.send(frames.chunk_prefix(1) + bytes(KB))
            await asyncio.sleep(0.05)
            first, second = (
                server._hub._sessions[name]._incoming[1] for name in ("first", "second")
            )
            assert first.left_bytes == first.bytes - KB
            assert (second.left_bytes, second.buffers) == (second.bytes, [])

    asyncio.run(scenario())


def test_who_reads_nothing_is_sent_away() -> None:
    async def scenario() -> None:
        limits = {"ping_s": 0.02, "silence_s": 5.0, "stall_s": 0.1}
        async with serving(**limits) as server:
            wire = await dialled(server, "offender")
            await wire.send(
                frames.encode(
                    frames.Call(1, "large", None, 0, (), frames.wrap(b"\x92\x90\x80"))
                )
            )
            session = server._hub._sessions["offender"]
            while session.ended is None:
                await wire.send(frames.encode(frames.Ack(0)))  # it is there
                await asyncio.sleep(0.01)
            assert "took nothing in for 0.1 s" in str(session.ended)

    asyncio.run(scenario())


def test_who_waits_for_memory_is_not_taken_for_one_that_reads_nothing() -> None:
    size, rest = 700 * KB, frames.chunk_prefix(1) + bytes(50 * KB)

    async def scenario() -> None:
        limits = {"ping_s": 0.02, "silence_s": 5.0, "stall_s": 0.1}
        async with serving(total_bytes=MB, **limits) as server:
            holder = await dialled(server, "holder")
            await holder.send(announced(1, 8, size - 8, function="size"))
            honest = await dialled(server, "honest")
            body = frames.wrap(b"\x92\x90\x80")
            await honest.send(
                frames.encode(frames.Call(7, "length", None, 0, (), body))
            )
            await honest.send(announced(1, 8, size - 8, function="size"))
            await asyncio.sleep(0.5)  # five times as long as a peer may confirm nothing
            assert "honest" in server._hub._sessions
            for _ in range(size // (50 * KB)):
                await holder.send(rest)
            for _ in range(size // (50 * KB)):
                await honest.send(rest)
            assert "honest" in server._hub._sessions

    asyncio.run(scenario())


def test_a_large_value_without_arrays_is_refused_and_the_session_lives_on() -> None:
    async def scenario() -> None:
        async with serving(body_bytes=100 * KB) as server:
            peer = await rpc.aconnect(server, name="peer")
            with pytest.raises(RemoteError, match="besides arrays are too many"):
                await peer.length([0] * (200 * KB))
            assert await peer.length([0] * (80 * KB)) == 80 * KB
            assert server._hub.budget.held_bytes == 0
            await peer.close()

    asyncio.run(scenario())


def test_arguments_without_arrays_count_while_their_call_runs() -> None:
    async def scenario() -> None:
        held: list[int] = []

        @rpc.expose
        async def look(value: list[int]) -> None:
            held.append(server._hub.budget.held_bytes)

        server = await rpc.aserve(look, port=None, say=silent)
        async with asyncio.timeout(60), server:
            peer = await rpc.aconnect(server, name="peer")
            await peer.look([0] * (8 * KB))
            assert (held[0] > 8 * KB, server._hub.budget.held_bytes) == (True, 0)
            await peer.close()

    asyncio.run(scenario())


def test_half_an_answer_is_given_up_with_its_call() -> None:
    async def scenario() -> None:
        async with serving(ping_s=0.02, silence_s=5.0) as server:
            wire = await dialled(server, "slow", {"fit": False})
            peer = (await server.wait_for("slow"))["slow"]
            call = peer.fit.submit()
            asked = frames.decode(await wire.receive())
            answer = frames.Result(asked.id, 1, (700 * KB,), frames.wrap(b"\xc0"))
            await wire.send(frames.encode(answer))
            await wire.send(frames.chunk_prefix(1) + bytes(KB))
            budget = server._hub.budget
            while budget.held_bytes != 700 * KB:
                await asyncio.sleep(0.001)
            call.cancel()
            while budget.held_bytes:
                await wire.send(frames.encode(frames.Ack(1)))
                await asyncio.sleep(0.01)
            assert "slow" in server._hub._sessions  # it may go on

    asyncio.run(scenario())


def test_a_large_answer_without_arrays_fails_its_call_alone() -> None:
    async def scenario() -> None:
        async with serving(body_bytes=100 * KB) as server:
            client = await rpc.aconnect(server, Answers(), name="peer")
            peer = (await server.wait_for("peer"))["peer"]
            with pytest.raises(TransportError, match="besides arrays are too many"):
                await peer.zeros(200 * KB)
            assert len(await peer.zeros(10)) == 10
            await client.close()

    asyncio.run(scenario())


class Answers:
    @rpc.expose
    def zeros(self, n: int) -> list[int]:
        return [0] * n
