"""Background load is real."""

import threading

import numpy as np
import pytest
from tests.fleets.learners import changed, live

from melisma.fleets.served import ModelServer
from melisma.jobs.schema import TaskTable
from melisma.learner import background
from melisma.learner.background import Activity, BackgroundLoad, State
from melisma.learner.learner import Learner
from melisma.system.states import owner_state
from melisma.units import Deadline


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == background.THREAD]


def ended() -> None:
    for thread in threads():
        thread.join(10.0)
        assert not thread.is_alive()


def test_a_computing_load_multiplies_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    products = background._products()

    def counted() -> object:
        product = products()
        assert np.asarray(product).shape == (background.SIDE, background.SIDE)
        done.set()
        return product

    monkeypatch.setattr(background, "_products", lambda: counted)
    load = BackgroundLoad([State(activity=Activity.COMPUTING)])
    load.begin(60.0, lambda: None)
    assert done.wait(20.0)
    load.rest()
    ended()


def test_a_downloading_load_downloads_until_the_next_request() -> None:
    fetched = threading.Semaphore(0)
    load = BackgroundLoad([State(activity=Activity.DOWNLOADING)])
    load.begin(60.0, fetched.release)
    for _ in range(3):
        assert fetched.acquire(timeout=20.0)
    first = threads()
    load.begin(60.0, fetched.release)
    for thread in first:
        thread.join(10.0)
        assert not thread.is_alive()
    assert fetched.acquire(timeout=20.0)
    load.rest()
    ended()


def test_nothing_goes_on_for_longer_than_it_may() -> None:
    BackgroundLoad([State(activity=Activity.DOWNLOADING)]).begin(0.05, lambda: None)
    ended()
    assert not threads()


def test_states_come_as_often_as_they_are_likely() -> None:
    slow, fast = State(probability=0.25, bytes_per_s=1.0), State(probability=0.75)
    load = BackgroundLoad([slow, fast], seed=1)
    throttles = []
    for _ in range(2000):
        load.begin(1.0, lambda: None)
        throttles.append(load.throttle("t"))
    share = sum(throttle is throttles[0] for throttle in throttles) / len(throttles)
    # Binomial: a standard deviation of 0.0097.
    assert min(share, 1 - share) == pytest.approx(0.25, abs=0.04)


def test_the_load_may_change_in_between() -> None:
    # Whatever comes first, the one state is left for the other in half of all cases.
    states = [State(probability=0.5, bytes_per_s=float(rate)) for rate in (1, 2)]
    changed = 0
    for seed in range(40):
        load = BackgroundLoad(states, seed=seed, changing=1.0)
        load.begin(1e-3, lambda: None)
        first = load.throttle("t")
        ended()
        changed += load.throttle("t") is not first
    assert 5 < changed < 35


def test_a_task_may_have_a_rate_of_its_own() -> None:
    state = State(samples_per_s=100.0, task_samples_per_s={"deep": 20.0})
    waited: list[float] = []
    for task in ("deep", "other"):
        throttle = state.throttle(task)
        throttle._sleep = waited.append
        throttle.batch(10)
    assert waited == [0.5, 0.1]


@pytest.mark.slow
def test_a_live_learner_downloads_in_the_background_too(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    filler = ModelServer.filler

    def counted(self: ModelServer, task: str, size: int) -> object:
        asked.append(size)
        return filler(self, task, size)

    counted.__dict__.update(filler.__dict__)  # exposed, as it was
    monkeypatch.setattr(ModelServer, "filler", counted)
    job = changed(
        scheme="med",
        cycles=1,
        deadline=Deadline(10.0),
        tasks=(TaskTable(name="t", samples=200, shard=20, steps=1),),
    )
    busy = Learner(
        name="a", background=BackgroundLoad([State(activity=Activity.DOWNLOADING)])
    )
    live(job, tmp_path, [busy])  # type: ignore[arg-type]
    busy._device.background.rest()
    ended()
    assert asked


def test_an_owner_can_be_foreseen() -> None:
    states = [State(probability=p, bytes_per_s=1 + p) for p in (0.5, 0.3, 0.2)]
    load = BackgroundLoad(states, seed=7, owner="pi")
    gamma, found = load.probabilities, []
    for cycle in (3, 0, *range(1, 400)):  # in any order, and whatever came before
        load.begin(1.0, lambda: None, cycle=cycle)
        assert load._now == load.drawn(cycle) == owner_state(gamma, 7, "pi", cycle)
        found.append(load._now)
    shares = [found.count(state) / len(found) for state in range(3)]
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=0.08)
    assert load.seed == 7
    assert BackgroundLoad(states, seed=7).seed is None


def test_a_state_that_is_asked_for_is_entered_and_draws_nothing() -> None:
    states = [State(probability=0.5, bytes_per_s=float(rate)) for rate in (1, 2)]
    load, other = BackgroundLoad(states, changing=1.0), BackgroundLoad(states)
    for state in (1, 0, 1):
        load.begin(1.0, lambda: None, state=state)
        assert load._now == state
    assert load.drawn(0) == other.drawn(0)  # the next numbers are still the first
    ended()
