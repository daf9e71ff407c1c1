import pytest
import torch

from melisma.errors import ConfigError
from melisma.learning import devices, models
from melisma.learning.batched import engine_for
from melisma.learning.data import EMBEDDED, load
from melisma.learning.devices import multiplies_bfloat16, placed
from melisma.learning.engines import Lesson, layered
from melisma.learning.losses import numbers
from melisma.learning.parameters import parameters_of
from melisma.learning.settings import Hardware, Precision, Training

DATA, HALF = load(EMBEDDED), Hardware(precision=Precision.BF16)


def answer(monkeypatch: pytest.MonkeyPatch, has_bfloat16: bool) -> None:
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda device: has_bfloat16)


def test_bf16_is_refused_before_the_run_where_the_cpu_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch, has_bfloat16=False)
    with pytest.raises(ConfigError, match=r"bf16 on 'cpu': .* --precision fp32, or"):
        placed(DATA, models.build("TwoNN", 0), numbers, HALF)


def test_bf16_trains_layer_by_layer_where_the_cpu_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer(monkeypatch, has_bfloat16=True)
    data, model = placed(DATA, models.build("TwoNN", 0), numbers, HALF)
    lesson = Lesson(
        model,
        parameters_of(model),
        data.train,
        Training(),
        Precision.BF16,
    )
    assert engine_for(lesson) is layered


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="device 'cuda:99' cannot be used"):
        placed(DATA, models.build("TwoNN", 0), numbers, Hardware(device="cuda:99"))


def test_a_torch_without_onednn_has_no_fast_bfloat16_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not multiplies_bfloat16(torch.device("cpu"))
