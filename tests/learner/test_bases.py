"""Frozen parts of a model travel once, by the hash of their content."""

from pathlib import Path

import pytest
import torch
from torch import nn

from melisma.errors import DataError
from melisma.learner import bases
from melisma.learner.bases import complete, is_held
from melisma.learning.parameters import Parameters, digest, frozen_of, state_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def adapted(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    return model


class Source:
    """Counts how often frozen parameters are fetched."""

    def __init__(self, frozen: Parameters) -> None:
        self.frozen, self.fetched = frozen, 0

    def __call__(self) -> Parameters:
        self.fetched += 1
        return self.frozen


def test_who_makes_the_same_fetches_nothing() -> None:
    source = Source(frozen_of(adapted(1)))
    complete(adapted(1), digest(source.frozen), source)
    assert source.fetched == 0


def test_others_fetch_once_and_find_it_after_a_restart() -> None:
    theirs = adapted(1)
    source = Source(frozen_of(theirs))
    base = digest(source.frozen)
    assert not is_held(adapted(2), base)
    for seed in (2, 3):  # another process makes yet other parameters
        model = adapted(seed)
        before = state_of(model)
        complete(model, base, source)
        assert digest(frozen_of(model)) == base
        for name in ("1.weight", "1.bias"):  # what is trained is left alone
            assert torch.equal(state_of(model)[name], before[name])
    assert source.fetched == 1
    assert is_held(adapted(4), base)


@pytest.mark.parametrize(
    "sent",
    [
        {"0.weight": torch.zeros(4, 4), "0.bias": torch.zeros(4)},
        {},
        None,
        [],
        {"0.weight": 3},
    ],
    ids=str,
)
def test_what_has_another_hash_is_refused_and_not_kept(sent: object) -> None:
    model, base = adapted(2), digest(frozen_of(adapted(1)))
    before = state_of(model)
    with pytest.raises(DataError, match="arrived damaged"):
        complete(model, base, lambda: sent)  # type: ignore[arg-type, return-value]
    assert all(torch.equal(state_of(model)[n], v) for n, v in before.items())
    assert not is_held(model, base)


def test_parameters_of_another_model_are_refused() -> None:
    other = nn.Sequential(nn.Linear(5, 4)).requires_grad_(False)
    base = digest(frozen_of(other))
    with pytest.raises(DataError, match="not those of this task's model"):
        complete(adapted(1), base, Source(frozen_of(other)))


def test_a_file_that_rots_is_fetched_again(cache: Path) -> None:
    source = Source(frozen_of(adapted(1)))
    base = digest(source.frozen)
    complete(adapted(2), base, source)
    (file,) = cache.rglob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    model = adapted(2)
    complete(model, base, source)
    assert source.fetched == 2
    assert digest(frozen_of(model)) == base


def test_the_disk_holds_so_much_and_the_oldest_goes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [Source(frozen_of(adapted(seed))) for seed in range(3)]
    keys = [digest(source.frozen) for source in sources]
    complete(adapted(9), keys[0], sources[0])
    (file,) = cache.rglob("*.safetensors")
    monkeypatch.setattr(bases, "MOST_BYTES", 2 * file.stat().st_size)
    for source, key in zip(sources[1:], keys[1:], strict=True):
        complete(adapted(9), key, source)
    assert [is_held(adapted(9), key) for key in keys] == [False, True, True]


def test_a_disk_that_takes_nothing_stops_nobody(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "melisma").write_text("a file where the folder should be")
    model, source = adapted(2), Source(frozen_of(adapted(1)))
    complete(model, digest(source.frozen), source)
    assert digest(frozen_of(model)) == digest(source.frozen)
