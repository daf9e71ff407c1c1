import asyncio

from hypothesis import given
from hypothesis import strategies as st

from melisma.algorithms.clock import VirtualClock

Log = list[tuple[float, str]]


def played(paces: dict[str, list[float]]) -> Log:
    """Tasks whose cycles take these seconds, and when each began."""
    turns, log = VirtualClock(), []

    async def task(name: str, cycles: list[float]) -> None:
        now_s = 0.0
        for cycle_s in cycles:
            await turns.take(name, now_s)
            log.append((now_s, name))
            await asyncio.sleep(0)  # others may run
            now_s += cycle_s
        turns.leave(name)

    async def all_of_them() -> None:
        for name in paces:
            turns.enter(name, 0.0)
        await asyncio.gather(*(task(name, paces[name]) for name in paces))

    asyncio.run(all_of_them())
    return log


def test_cycles_begin_in_the_order_of_the_clock() -> None:
    log = played({"slow": [3.0, 3.0], "fast": [1.0] * 5})
    assert log == [
        (0.0, "slow"),
        (0.0, "fast"),
        (1.0, "fast"),
        (2.0, "fast"),
        (3.0, "slow"),
        (3.0, "fast"),
        (4.0, "fast"),
    ]


@given(st.dictionaries(st.text("abc", min_size=1), st.lists(st.floats(0.1, 9.0))))
def test_time_never_goes_back_and_nobody_is_forgotten(
    paces: dict[str, list[float]],
) -> None:
    log = played(paces)
    times = [time_s for time_s, _ in log]
    assert times == sorted(times)
    assert len(log) == sum(map(len, paces.values()))


def test_who_enters_later_is_waited_for_from_then_on() -> None:
    turns, log = VirtualClock(), []

    async def early() -> None:
        for now_s in (0.0, 1.0, 2.0):
            await turns.take("early", now_s)
            log.append((now_s, "early"))
            if now_s == 0.0:
                turns.enter("late", 1.5)
        turns.leave("early")

    async def late() -> None:
        while not log:
            await asyncio.sleep(0)
        await turns.take("late", 1.5)
        log.append((1.5, "late"))
        turns.leave("late")

    async def both() -> None:
        turns.enter("early", 0.0)
        await asyncio.gather(early(), late())

    asyncio.run(both())
    assert [name for _, name in log] == ["early", "early", "late", "early"]
