"""Who is linked to whom: the topologies of the paper, and any other.

Each function returns ``Links``. Undirected graphs are linked both ways. Random ones
take a generator; the same seed gives the same links.
"""

import csv
from pathlib import Path

import networkx as nx
import numpy as np

from melisma.errors import ConfigError
from melisma.fog.links import Links
from melisma.maths.arrays import Floats, Ints


def full(devices: int, slots: int) -> Links:
    """Every device to every other."""
    source, target = np.nonzero(~np.eye(devices, dtype=bool))
    return Links.always(devices, slots, source, target)


def random_graph(
    devices: int,
    slots: int,
    density: float,
    rng: np.random.Generator,
    *,
    anew: bool = False,
) -> Links:
    """Each directed link with probability ρ = ``density``; drawn ``anew`` in each slot.

    The number of links is drawn first, then which: no n × n table is made.
    """
    _share("density", density)
    pairs = devices * (devices - 1)

    def draw() -> Ints:
        return rng.choice(pairs, rng.binomial(pairs, density), replace=False)

    if anew:
        drawn = [draw() for _ in range(slots)]
        slot = np.repeat(np.arange(slots), [pair.size for pair in drawn])
        pair = np.concatenate(drawn)
    else:
        once = draw()
        slot, pair = np.repeat(np.arange(slots), once.size), np.tile(once, slots)
    source, other = np.divmod(pair, max(devices - 1, 1))
    return Links.of(devices, slots, slot, source, other + (other >= source))


def social(
    devices: int,
    slots: int,
    rng: np.random.Generator,
    *,
    neighbours: int | None = None,
    rewired: float = 0.1,
) -> Links:
    """A small world by Watts and Strogatz: n/5 neighbours each, as in the paper.

    A ring has an even number of neighbours, so an odd one is rounded up. How many links
    are rewired is not in the paper.
    """
    _share("rewired", rewired)
    near = max(1, devices // 5) if neighbours is None else neighbours
    near = min(near + near % 2, devices - 1)
    seed = int(rng.integers(2**31))
    return from_networkx(nx.watts_strogatz_graph(devices, near, rewired, seed), slots)


def hierarchical(process_cost: Floats, slots: int, rng: np.random.Generator) -> Links:
    """The n/3 cheapest devices serve two each of the others, who send to them.

    ``process_cost`` has a number for each device. Of n = 3k + 1 or 3k + 2 the others
    that are left over have no link.
    """
    order = np.argsort(process_cost, kind="stable")
    servers = order[: order.size // 3]
    leaves = rng.permutation(order[servers.size :])[: 2 * servers.size]
    return Links.always(order.size, slots, leaves, np.repeat(servers, 2))


def scale_free(
    devices: int, slots: int, rng: np.random.Generator, *, attached: int = 2
) -> Links:
    """Preferential attachment by Barabási and Albert: few with many neighbours."""
    if not 1 <= attached < devices:
        raise ConfigError(
            f"{attached} links of a new device among {devices}: give 1 to {devices - 1}"
        )
    seed = int(rng.integers(2**31))
    return from_networkx(nx.barabasi_albert_graph(devices, attached, seed), slots)


def from_networkx(graph: "nx.Graph", slots: int) -> Links:
    """Any graph of networkx in all slots; devices are its nodes in their order."""
    number = {node: i for i, node in enumerate(graph.nodes)}
    edges = [(number[a], number[b]) for a, b in graph.edges if a != b]
    source, target = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    if not graph.is_directed():
        source, target = np.append(source, target), np.append(target, source)
    return Links.always(len(number), slots, source, target)


def intermittent(links: Links, up: float, rng: np.random.Generator) -> Links:
    """Links of which each is there in each slot with probability ``up``."""
    _share("up", up)
    there = rng.random(len(links)) < up
    return Links(
        devices=links.devices,
        slots=links.slots,
        slot=links.slot[there],
        source=links.source[there],
        target=links.target[there],
    )


def from_file(path: Path, devices: int, slots: int) -> Links:
    """Directed links of a CSV file with the columns source, target and maybe slot.

    All count from 0. With a slot the file is a trace: a link is there when it says so.
    Without one each link is there in all slots. Raises ConfigError, naming the line.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        header = [name.strip() for name in next(rows, [])]
        if header not in (["source", "target"], ["source", "target", "slot"]):
            raise ConfigError(
                f"{path}, line 1: columns {','.join(header) or 'missing'}: "
                "give source,target or source,target,slot"
            )
        ends = {"source": devices, "target": devices, "slot": slots}
        found = [
            _row(f"{path}, line {rows.line_num}", header, row, ends)
            for row in rows
            if row
        ]
    columns = np.array(found, dtype=np.int64).reshape(-1, len(header)).T
    if len(header) == 2:
        return Links.always(devices, slots, columns[0], columns[1])
    return Links.of(devices, slots, columns[2], columns[0], columns[1])


def _row(
    where: str, names: list[str], row: list[str], ends: dict[str, int]
) -> list[int]:
    """The numbers of one line."""
    if len(row) != len(names):
        raise ConfigError(f"{where}: {len(row)} values: give {len(names)}")
    numbers = []
    for name, text in zip(names, row, strict=True):
        if not text.strip().isdecimal() or int(text) >= ends[name]:
            raise ConfigError(
                f"{where}: {name} '{text}': give a number from 0 to {ends[name] - 1}"
            )
        numbers.append(int(text))
    if numbers[0] == numbers[1]:
        raise ConfigError(f"{where}: device {numbers[0]} to itself: leave it out")
    return numbers


def _share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name} of {value}: give a number from 0 to 1")
