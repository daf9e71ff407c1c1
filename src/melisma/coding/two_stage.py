"""Two stages: plain sums first, and coding only for what is late (TSDCFL).

Stage one is uncoded: some workers get disjoint blocks that cover all K partitions,
loads by speed. At T_comp those who finished have delivered exact sums of K_c of them.
Stage two codes the K − K_c partitions left. Workers who have not finished *keep their
block and carry on*: they learn their coefficients and no more. Helpers take s further
copies of what is left, loads by speed (Eq. 16: the s + 1 copies less the one that its
owner has already). Any s of the rows of stage two may be missing. Then

    Σₖ gₖ  =  Σ sums of the finished  +  Σ weights · answers of stage two

    helpers="finished"   everybody starts, and whoever is done helps (the default)
    helpers="reserved"   ``first`` workers start, the others wait to help
    helpers="ring"       the same, and their code is a ring: the paper's scheme

*The code of stage two.* ``coded="blocks"``: the owners are one group that covers what
is left once, the helpers make s more, and decoding is a path (see ``blocks``).
``coded="ring"``, the paper's: helpers' loads laid end to end, random coefficients (see
``spanning.assisted``). Both keep s; blocks are exact, and decode many patterns with
more than s missing, above all the likely one: all who were late stay late.

*Who carries on is told nothing.* The owners' coefficients are 1 in both codes, so that
the plain sum that a late worker has begun is the answer that stage two needs.

Paper: X. Wang, X. Zhong, J. Ning, H. Li, T. Yang, Y. Yang, "Two-Stage Coded Federated
Edge Learning: A Dynamic Partial Gradient Coding Perspective".

Differences from the paper:
1. Helpers are those who have finished; the paper's reserved ones are an option.
2. Stage two is a code of blocks by default. The paper's conditions T1 and T2 ask for
   any code that tolerates s; its T3, a vector on the finished, is all ones.
3. Loads of stage one follow speeds too, and are whole numbers of least makespan.
4. s is capped by the number of helpers, and by that of the late if one trusts those
   who were not; ``Rest.stragglers`` says what is left of it. Lemma 2 is wrong without
   that cap: s + 1 copies of a partition need s helpers.
5. Decoding takes the earliest moment that will do, not a fixed number of answers.
6. T1 asks that *any* s + 1 columns of A be independent, which is more than Lemma 2
   uses, and gives a late worker coefficients that differ within its block. It would
   have to be told them while it computes, and to keep one gradient for each partition.
   Here every s + 1 workers *who share a partition* have independent columns (one owner,
   s helpers), with which the owner's coefficients can be 1. All that T1 decodes is
   decoded, and whatever helpers do, the owners alone are enough.
7. T2 as printed eliminates s + 1 positions of a vector of s + 1 and keeps one: read s.
   The proof of Lemma 2 calls A, of more columns than rows, non-singular: read its
   s + 1 columns that hold a partition.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from melisma.coding import loads as share
from melisma.coding.blocks import Blocks, block_matrix, group_blocks
from melisma.coding.code import Code
from melisma.coding.spanning import assisted, ring
from melisma.errors import ConfigError
from melisma.maths.arrays import Bools, Floats, Ints

Helpers = Literal["finished", "reserved", "ring"]
Coded = Literal["blocks", "ring"]
#: Of a run: those who start are chosen, or drawn in each iteration, two in three of all
#: or as many as are given.
First = int | Literal["chosen", "random"]

COARSEST, FINEST = 16, 64  #: partitions per worker: what is left is to be shared again
KEPT = 64  #: second stages that are remembered, since few sets of workers are late
RISK = 0.05  #: that a helper in the group that is to be done first fails


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rest:
    """Stage two: a code over the partitions that are left, workers as before."""

    code: Code  #: over ``left``; workers who have no part in it have no load
    left: Ints  #: numbers of the partitions that are left
    unfinished: Ints  #: workers who carry on with their block
    helpers: Ints  #: workers who start on a new one

    @property
    def partitions(self) -> int:
        """K − K_c, how many are left."""
        return self.code.partitions

    @property
    def stragglers(self) -> int:
        """How many workers of stage two may be missing, whichever they are."""
        return self.code.stragglers

    @property
    def loads(self) -> Ints:
        """How many partitions each worker computes, those of its old block included."""
        return self.code.loads

    def work(self, worker: int) -> Ints:
        """Which partitions a worker computes, numbered as in stage one."""
        return self.left[self.code.work(worker)]

    def row(self, worker: int) -> Floats:
        """A worker's coefficients, one for each partition of ``work``."""
        return self.code.row(worker)

    def encode(self, gradients: NDArray[Any]) -> NDArray[Any]:
        """Every worker's answer of stage two, from the gradients of all partitions."""
        return self.code.encode(gradients[self.left])

    def decode(self, alive: ArrayLike) -> Floats:
        """One weight per answer of stage two; raises NotDecodable."""
        return self.code.decode(alive)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TwoStage(Blocks):
    """Stage one, in the shape of all codes, and the way to stage two.

    On its own stage one needs everybody who has a block; ``stragglers`` are those that
    stage two is to tolerate.
    """

    speeds: Floats
    helpers: Helpers
    coded: Coded
    trusting: bool
    seed: int
    _rests: dict[bytes, Rest] = field(default_factory=dict)  # of those asked for lately

    def rest(self, finished: ArrayLike) -> Rest:
        """Stage two, once it is known who has finished stage one.

        ``finished`` is a mask over workers or their numbers; not all of stage one.
        """
        done = self.mask(finished)
        key = done.tobytes()
        if key not in self._rests:
            if len(self._rests) == KEPT:
                self._rests.clear()
            self._rests[key] = self._rest(done)
        return self._rests[key]

    def _advice(self) -> str:
        return "Stage one needs all: wait for more answers, code the rest by rest()"

    def _rest(self, done: Bools) -> Rest:
        busy = self.loads > 0
        if (done & ~busy).any() or not (busy & ~done).any():
            raise ConfigError(
                f"finished are {np.flatnonzero(done).tolist()} of "
                f"{np.flatnonzero(busy).tolist()}: give some of them, but not all"
            )
        owners = np.flatnonzero(busy & ~done)
        owners = owners[np.argsort(self.start[owners])]
        helpers = np.flatnonzero(~busy | done if self.helpers == "finished" else ~busy)
        left = np.concatenate([np.arange(self.start[w], self.stop[w]) for w in owners])
        make = self._blocks if self.coded == "blocks" else self._ring
        return Rest(
            code=make(owners, helpers),
            left=left,
            unfinished=np.sort(owners),
            helpers=helpers,
        )

    def _tolerated(self, owners: Ints, helpers: Ints) -> int:
        wanted = min(self.stragglers, owners.size) if self.trusting else self.stragglers
        return min(wanted, helpers.size)

    def _blocks(self, owners: Ints, helpers: Ints) -> Code:
        sizes = (self.stop - self.start)[owners]
        s = self._tolerated(owners, helpers)
        start = np.zeros(self.workers, dtype=np.int64)
        stop = np.zeros(self.workers, dtype=np.int64)
        stop[owners] = np.cumsum(sizes)
        start[owners] = stop[owners] - sizes
        if s:
            v = self.speeds[helpers]
            start[helpers], stop[helpers] = group_blocks(
                v, share.groups(v, _shares(s)), int(sizes.sum())
            )
        return Blocks.of(start, stop, int(sizes.sum()), s)

    def _ring(self, owners: Ints, helpers: Ints) -> Code:
        sizes = (self.stop - self.start)[owners]
        K, s = int(sizes.sum()), self._tolerated(owners, helpers)
        copies = np.zeros((K, 0), dtype=np.int64)
        if s:
            copies = helpers[ring(share.loads(self.speeds[helpers], s * K, K), K)]
        rng = np.random.default_rng(self.seed)
        return assisted(np.repeat(owners, sizes), copies, self.workers, rng)


def two_stage(
    *,
    workers: int,
    stragglers: int,
    seed: int = 0,
    speeds: ArrayLike | None = None,
    partitions: int | None = None,
    helpers: Helpers = "finished",
    coded: Coded | None = None,
    trusting: bool = False,
    first: int | Sequence[int] | None = None,
) -> TwoStage:
    """Return stage one.

    ``first`` are those who start: how many of them, drawn at random, or their numbers.
    All by default, but two in three where helpers wait; then stage two is ``coded`` as
    a ring by default, as in the paper. ``trusting``: whoever was on time will not
    straggle later, so that no more than the late are to be tolerated. It is the better
    way where s is predicted, and may be too large.
    """
    v = share.checked(workers, stragglers, speeds, partitions)
    coded = coded or ("blocks" if helpers == "finished" else "ring")
    if helpers not in get_args(Helpers) or coded not in get_args(Coded):
        raise ConfigError(
            f"helpers is '{helpers}' and coded '{coded}': give 'finished', 'reserved' "
            "or 'ring', and 'blocks' or 'ring'"
        )
    if helpers == "ring" and coded != "ring":
        raise ConfigError(f"helpers in a ring and coded '{coded}': leave coded out")
    starting = _starting(workers, helpers, first, np.random.default_rng(seed))
    order = starting[np.argsort(-v[starting], kind="stable")]

    def time(K: int) -> float:
        return share.makespan(v[order], share.loads(v[order], K, K))

    K = partitions
    if K is None:
        K = share.fewest(time, COARSEST * workers, FINEST * workers)
    start, stop = group_blocks(v, [order], K)
    return TwoStage(
        matrix=block_matrix(start, stop, K),
        stragglers=stragglers,
        start=start,
        stop=stop,
        speeds=v,
        helpers=helpers,
        coded=coded,
        trusting=trusting,
        seed=seed,
    )


def _shares(s: int) -> Floats:
    """Parts of the helpers' speed for the s groups that cover what is left.

    The first has the part φ and is done in 1 / φ. With probability RISK it is not, and
    one of the others is, in (s − 1) / (1 − φ). The mean is least where
    φ : (1 − φ) = √(1 − RISK) : √(RISK·(s − 1)).
    """
    spare = np.sqrt(RISK * (s - 1))
    shares = np.full(s, spare / max(s - 1, 1))
    shares[0] = np.sqrt(1.0 - RISK)
    return shares


def _starting(
    workers: int,
    helpers: str,
    first: int | Sequence[int] | None,
    rng: np.random.Generator,
) -> Ints:
    """Numbers of the workers of stage one."""
    most = workers if helpers == "finished" else workers - 1
    if first is None:
        first = workers if helpers == "finished" else max(2 * workers // 3, 1)
    if isinstance(first, Sequence):
        chosen = np.unique(np.asarray(first))
    else:
        chosen = rng.permutation(workers)[: max(first, 0)]
    known = np.isin(chosen, np.arange(workers)).all()
    if not 1 <= chosen.size <= most or not known:
        raise ConfigError(
            f"first is {first} of {workers} workers: 1 to {most} of them can start"
        )
    return np.sort(chosen.astype(np.int64))
