"""Two knapsacks that are easy because their gains are small whole numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest
from operator import itemgetter

import numpy as np

from melisma.maths.arrays import Bools, Ints

#: The search for the least spread looks at so many trades and keeps so many states.
TRADES, STATES = 96, 500

_Way = tuple[int, int, int, tuple[int, ...]]  # digit, loss, gain and place of a trade


def most_items(cost: Ints, budget: int) -> Bools:
    """As many items as ``budget`` pays for: the cheapest, the first among equals.

    >>> most_items(np.array([5, 2, 2, 9]), 6).tolist()
    [False, True, True, False]
    """
    ascending = np.sort(cost)
    count = int(np.searchsorted(np.cumsum(ascending), budget, side="right"))
    dearest = ascending[max(count - 1, 0)]
    chosen: Bools = cost < dearest
    equals = np.flatnonzero(cost == dearest)
    chosen[equals[: count - int(chosen.sum())]] = True
    return chosen


def multiple_choice(gain: Ints, size: Ints, total: int) -> Ints:
    """Pick one option of each item: the largest Σ gain with Σ size ≥ ``total``.

    Both tables are options × items; down a column gains rise as sizes fall, or both
    stay. Of equal sums of gains the least spread, Σ |gainₖ − gainₗ| over pairs of
    items, wins.

    The sum is always exact. The spread is exact while no more than ``TRADES`` changes
    of one item's option can be part of an answer of that sum, and no more than
    ``STATES`` partial answers differ in their gains; beyond, it is the least met.

    >>> gain = np.array([[0, 0], [1, 1], [2, 2]])
    >>> multiple_choice(gain, np.array([[9, 9], [6, 5], [4, 4]]), 13).tolist()
    [2, 0]
    >>> multiple_choice(gain, np.array([[9, 9], [7, 6], [4, 4]]), 13).tolist()
    [1, 1]
    """
    cost = size[0] - size
    budget = int(size[0].sum()) - total
    if cost[-1].sum() <= budget:
        return np.full(gain.shape[1], gain.shape[0] - 1)
    pick, step = _relax(gain, cost, budget)
    spare = budget - int(_at(cost, pick).sum())
    trades = _trades(gain, cost, pick, step, spare)
    chosen = _most_gain(trades, step, spare)
    chosen = _least_spread(trades, step, spare, chosen, _at(gain, pick))
    pick[chosen.item] = chosen.option
    return pick


@dataclass(frozen=True, slots=True)
class _Step:
    """The move of one item that the relaxed answer makes in part only."""

    rise: int  # what it costs, more than is left
    run: int  # what it gains

    def loss(self, gain: Ints, cost: Ints) -> Ints:
        """Cost above the relaxed price of a gain, rise / run; times run, so whole."""
        return self.run * cost - self.rise * gain


@dataclass(frozen=True, slots=True)
class _Trades:
    """Ways for items to leave their options in the relaxed answer, ordered by item.

    That answer is best at the relaxed price, so no trade has a negative loss.
    """

    item: Ints
    option: Ints
    gain: Ints  # what the trade adds to both sums
    cost: Ints
    loss: Ints

    def __getitem__(self, where: Ints | Bools | slice) -> "_Trades":
        return _Trades(
            self.item[where],
            self.option[where],
            self.gain[where],
            self.cost[where],
            self.loss[where],
        )

    @property
    def starts(self) -> Ints:
        """Where each item's trades begin."""
        return np.flatnonzero(np.diff(self.item, prepend=-1))

    def by_item(self) -> Iterator[tuple[int, "_Trades"]]:
        """The trades of each item and where they begin, the least loss first."""
        starts = self.starts
        ends = np.append(starts[1:], self.item.size)
        order = np.argsort(np.minimum.reduceat(self.loss, starts), kind="stable")
        for start, end in zip(
            starts[order].tolist(), ends[order].tolist(), strict=True
        ):
            yield start, self[start:end]


def _at(table: Ints, pick: Ints) -> Ints:
    """Each item's entry for its option."""
    entries: Ints = np.take_along_axis(table, pick[None], axis=0)[0]
    return entries


def _relax(gain: Ints, cost: Ints, budget: int) -> tuple[Ints, _Step]:
    """Best options if one item might be split between two, that one rounded down."""
    item, option, run, rise = _hull(gain, cost)
    order = np.argsort(rise / run, kind="stable")
    count = int(np.searchsorted(np.cumsum(rise[order]), budget, side="right"))
    pick = np.zeros(gain.shape[1], dtype=np.int64)
    pick[item[order[:count]]] = option[order[:count]]  # of an item's, the last stays
    split = order[count]
    return pick, _Step(rise=int(rise[split]), run=int(run[split]))


def _hull(gain: Ints, cost: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Steps along each item's lower convex hull of cost over gain, from the left.

    Item, option reached, gain and cost of each step.
    """
    at = np.zeros(gain.shape[1], dtype=np.int64)
    item = np.flatnonzero(gain[-1] > gain[0])
    steps = []
    while item.size:
        here = at[item]
        run, rise = gain[:, item] - gain[here, item], cost[:, item] - cost[here, item]
        slope = np.full(run.shape, np.inf)
        np.divide(rise, run, out=slope, where=run > 0)
        at[item] = best = slope.argmin(axis=0)
        column = np.arange(item.size)
        steps.append((item, best, run[best, column], rise[best, column]))
        item = item[run[best, column] < run[-1]]
    item, option, run, rise = (
        np.concatenate(part) for part in zip(*steps, strict=True)
    )
    return item, option, run, rise


def _trades(gain: Ints, cost: Ints, pick: Ints, step: _Step, spare: int) -> _Trades:
    """Trades that can take part in an answer no worse than the best single trade.

    Losses add up, and an answer's is at most run·spare − rise·(what it gains).
    """
    apart = np.diff(gain, axis=0, prepend=-1) > 0  # each gain once
    gain, cost = gain - _at(gain, pick), cost - _at(cost, pick)
    loss = step.loss(gain, cost)
    goal = int(gain.max(initial=0, where=cost <= spare))
    gap = step.run * spare - step.rise * goal
    item, option = np.nonzero((apart & (loss <= gap) & (gain != 0)).T)
    at = option, item
    return _Trades(item, option, gain[at], cost[at], loss[at])


def _most_gain(trades: _Trades, step: _Step, spare: int) -> _Trades:
    """Trades of largest Σ gain with Σ cost ≤ spare, at most one of each item.

    Item by item, the least loss first, over all sums of (gain, cost) that no other
    beats in both; until a loss is more than a better answer could bear.
    """
    trades = _cheapest(trades)
    gain = cost = np.zeros(1, dtype=np.int64)
    history: list[tuple[int, int, Ints]] = []
    most = stages = end = 0
    for start, own in trades.by_item():
        gap = step.run * spare - step.rise * (most + 1)
        if own.loss.min() > gap:
            break
        gain = np.add.outer(gain, np.append(own.gain, 0)).ravel()
        cost = np.add.outer(cost, np.append(own.cost, 0)).ravel()
        open_ = np.flatnonzero(step.loss(gain, cost) <= gap)
        order = open_[np.lexsort((cost[open_], -gain[open_]))]
        least = np.minimum.accumulate(cost[order])
        keep = order[np.append(True, cost[order][1:] < least[:-1])]
        gain, cost = gain[keep], cost[keep]
        history.append((start, own.item.size, keep))
        state = int(np.argmax(cost <= spare))  # gains descend: the first that is paid
        if gain[state] > most:
            most, stages, end = int(gain[state]), len(history), state
    return trades[_retrace(history[:stages], end)]


def _retrace(history: list[tuple[int, int, Ints]], state: int) -> Ints:
    """Places of the trades that led to a state of the last stage."""
    places = []
    for start, size, keep in reversed(history):
        state, which = divmod(int(keep[state]), size + 1)
        if which < size:
            places.append(start + which)
    return np.array(places, dtype=np.int64)


def _cheapest(trades: _Trades) -> _Trades:
    """Enough trades of each gain for an answer of largest Σ gain.

    With w the largest |gain|, no more than 2w − 1 items need to trade: put the trades
    of an answer in an order in which their partial sums stay above −w and not above w
    (add a loser while the sum is positive, else a winner; the sum of all is under w).
    Among 2w or more, two partial sums are equal, and the trades between them gain
    nothing: undone they save their losses. And of each gain the cheapest 2w − 1 do,
    as one outside can be swapped for one of them whose item does not trade.
    """
    enough = 2 * int(np.abs(trades.gain).max(initial=0)) - 1
    order = np.lexsort((trades.loss, trades.gain))
    gain = trades.gain[order]
    rank = np.arange(order.size) - np.searchsorted(gain, gain)
    return trades[np.sort(order[rank < enough])]


def _least_spread(
    trades: _Trades, step: _Step, spare: int, chosen: _Trades, gains: Ints
) -> _Trades:
    """Of all trades with the gain of ``chosen``, those that leave the least spread."""
    goal = int(chosen.gain.sum())
    # At one gain, Σ cost ≤ spare says the same as Σ loss ≤ gap.
    gap = step.run * spare - step.rise * goal
    trades = _likeliest(trades[trades.loss <= gap], chosen)
    moving = trades.item[trades.starts]
    still, count = np.unique(np.delete(gains, moving), return_counts=True)
    ranks = 2 * np.arange(moving.size) - (moving.size - 1)

    def spread(made: _Trades) -> int:
        after = gains[moving]
        after[np.searchsorted(moving, made.item)] += made.gain
        # Pairs of which both items move, and of which one does; the others stay.
        inside, across = ranks @ np.sort(after), np.abs(after[:, None] - still) @ count
        return int(inside + across.sum())

    others = (trades[places] for places in _multisets(trades, gains, goal, gap))
    return min((chosen, *others), key=spread)


def _likeliest(trades: _Trades, chosen: _Trades) -> _Trades:
    """The chosen trades and those of least loss, ``TRADES`` in all."""
    options = int(trades.option.max(initial=0)) + 1
    names = trades.item * options + trades.option
    loss = np.where(
        np.isin(names, chosen.item * options + chosen.option), -1, trades.loss
    )
    first = np.argsort(loss, kind="stable")[: max(TRADES, chosen.item.size)]
    return trades[np.sort(first)]


def _multisets(trades: _Trades, gains: Ints, goal: int, gap: int) -> Iterator[Ints]:
    """Places of trades that gain ``goal``: of each multiset of gains, of least loss.

    A multiset of n gains is a number whose digits in base n + 1 count each of them.
    """
    ways = _ways(trades, gains)
    states: dict[int, tuple[int, int, tuple[int, ...]]] = {0: (0, 0, ())}
    for own, later in zip(ways, _reach(ways, gap), strict=True):
        grown: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        for multiset, (loss, gain, places) in states.items():
            for digit, more, further, place in own:
                lost, gained, key = loss + more, gain + further, multiset + digit
                if lost + later.get(goal - gained, gap + 1) > gap:
                    continue
                if key not in grown or lost < grown[key][0]:
                    grown[key] = lost, gained, places + place
        states = dict(nsmallest(STATES, grown.items(), key=itemgetter(1)))
    for _, _, places in states.values():
        yield np.array(places, dtype=np.int64)


def _ways(trades: _Trades, gains: Ints) -> list[list[_Way]]:
    """What each item can do, staying included."""
    after = gains[trades.item] + trades.gain
    levels = np.union1d(after, gains[trades.item]).tolist()
    digit = {gain: (trades.starts.size + 1) ** i for i, gain in enumerate(levels)}
    ways: list[list[_Way]] = []
    for start, own in trades.by_item():
        ways.append([(digit[int(gains[own.item[0]])], 0, 0, ())])
        for place in range(start, start + own.item.size):
            loss, gain = int(trades.loss[place]), int(trades.gain[place])
            ways[-1].append((digit[int(after[place])], loss, gain, (place,)))
    return ways


def _reach(ways: list[list[_Way]], gap: int) -> list[dict[int, int]]:
    """For each item, what those after it can gain, and the least loss at which."""
    later = [{0: 0}]
    for own in reversed(ways[1:]):
        grown: dict[int, int] = {}
        for gain, loss in later[-1].items():
            for _, more, further, _ in own:
                if loss + more <= grown.get(gain + further, gap):
                    grown[gain + further] = loss + more
        later.append(dict(nsmallest(STATES, grown.items(), key=itemgetter(1))))
    return later[::-1]
