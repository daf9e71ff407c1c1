"""Parts by width: they compute what the whole would without the rest of it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
from tests.learning.parts import MODELS, Attentive, Drawn, example, made, part
from torch import Tensor, nn

from melisma.errors import ConfigError, DataError
from melisma.learning import models
from melisma.learning.losses import LOSSES
from melisma.learning.parameters import Parameters, parameters_of, put, trained
from melisma.learning.submodels import Example, Part, submodel_of
from melisma.learning.submodels.cost import cost_of, measured_s, whole_of


def shapes(part: Part) -> dict[str, tuple[int, ...]]:
    return {name: tuple(map(len, at)) for name, at in part.up.items()}


def gradients(model: nn.Module, tried: Example) -> tuple[Tensor, Parameters]:
    each = tried.loss(model.train(), tried.batch)
    moving = trained(model)
    # Layers that nothing goes through have a gradient of 0.
    still = sum(0.0 * p.sum() for p in moving.values())
    found = torch.autograd.grad(each.mean() + still, list(moving.values()))
    return each, dict(zip(moving, found, strict=True))


def without_the_rest(whole: nn.Module, part: Part) -> None:
    """Let cut layers of the whole see what the part has of their inputs, and scaled."""
    for name, layer in whole.named_modules():
        if (
            not isinstance(layer, nn.Linear | nn.Conv2d)
            or getattr(layer, "groups", 1) > 1
        ):
            continue
        size = layer.weight.shape[1]
        kept = part.up[f"{name}.weight"][1]
        mask = torch.zeros(size).index_fill(0, kept, size / len(kept))
        axis = [1, -1, 1, 1] if isinstance(layer, nn.Conv2d) else [1, -1]
        layer.register_forward_pre_hook(times(mask.view(axis)))


def times(mask: Tensor) -> Callable[[nn.Module, tuple[Tensor]], tuple[Tensor]]:
    return lambda _, args: (args[0] * mask,)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("share", ["0.3", "0.5", "0.8", "1"])
def test_a_part_has_the_gradient_of_the_whole_without_the_rest(
    name: str, share: str
) -> None:
    check_gradients(made(name), example(name), share)


@pytest.mark.parametrize("seed", range(40))
def test_so_does_a_part_of_a_model_that_was_drawn(seed: int) -> None:
    torch.manual_seed(seed)
    check_gradients(Drawn(seed), example("drawn"), ["0.3", "0.5", "0.7"][seed % 3])


def check_gradients(model: nn.Module, tried: Example, share: str) -> None:
    small = submodel_of(f"width {share}").part(model, tried)
    put(small.sent(parameters_of(model)), small.model)
    losses, found = gradients(small.model, tried)
    without_the_rest(model, small)
    expected, whole = gradients(model, tried)
    torch.testing.assert_close(losses, expected)
    for key in found:
        kept = Part("", model, {key: small.up[key]}, {}, {}).sent(whole)[key]
        torch.testing.assert_close(found[key], kept, atol=1e-6, rtol=1e-4)


def test_the_widths_of_a_residual_model_are_as_counted_by_hand() -> None:
    found = shapes(part(made("residual"), "width 0.3", "residual"))
    # ⌈0.3·16⌉ = 5 would cut a group of four: two groups, so 8. ⌈0.3·20⌉ = 6 channels
    # of 9 pixels each are 54 inputs; ⌈0.3·12⌉ = 4; inputs and classes stay.
    assert found["first.weight"] == (8, 3, 3, 3)
    assert found["norm.running_mean"] == (8,)
    assert found["second.weight"] == (8, 8, 3, 3)
    assert found["groups.weight"] == (8,)
    assert found["wide.weight"] == (6, 8, 1, 1)
    assert found["each.weight"] == (6, 1, 3, 3)
    assert found["hidden.weight"] == (4, 54)
    assert found["out.weight"] == (5, 4)


def test_branches_side_by_side_are_cut_each_by_itself() -> None:
    small = part(made("joined"), "width 0.5", "joined")
    # Of 8 and 6 channels the first 4 and 3: columns 0 to 3, and 8 to 10.
    assert small.up["mix.weight"][1].tolist() == [0, 1, 2, 3, 8, 9, 10]


def test_a_channel_is_a_block_of_inputs_once_it_is_flat() -> None:
    small = part(made("flat"), "width 0.5", "flat")
    assert shapes(small)["0.weight"] == (4, 3, 2, 2)
    assert small.up["4.weight"][1].tolist() == list(range(4 * 25))


def test_heads_are_cut_whole_and_tied_tensors_stay_tied() -> None:
    model = made("attentive")
    small = part(model, "width 0.4", "attentive")
    found, narrow = shapes(small), small.model
    assert isinstance(narrow, Attentive)
    # ⌈0.4·4⌉ = 2 heads of 8, so 16 of 32; query, key and value are 32 rows apart.
    assert narrow.attention.num_heads == 2
    rows = small.up["attention.in_proj_weight"][0].tolist()
    assert rows == [*range(16), *range(32, 48), *range(64, 80)]
    assert found["encoder.layers.1.linear1.weight"] == (16, 16)
    assert found["places"] == (6, 16)
    assert found["tokens.weight"] == (11, 16)
    assert narrow.out.weight is narrow.tokens.weight
    assert "out.weight" not in found


@pytest.mark.parametrize("bias", [True, False])
def test_cut_attention_is_the_attention_of_its_heads(bias: bool) -> None:
    torch.manual_seed(3)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(5, 24)
            self.attention = nn.MultiheadAttention(24, 3, bias=bias, batch_first=True)
            self.out = nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            a = self.embed(x)
            out: Tensor = self.out(self.attention(a, a, a)[0].mean(1))
            return out

    model = Model()
    for tensor in model.parameters():
        nn.init.normal_(tensor, std=0.3)
    x = torch.randn(2, 6, 5)
    tried = Example(LOSSES["cross-entropy"], {"x": x, "y": torch.tensor([0, 1])})
    small = submodel_of("width 0.5").part(model, tried)
    # By hand, of the whole's tensors: two of three heads of 8, and inputs 3/2 times.
    state, kept, scale = model.state_dict(), 16, 24 / 16
    zero = torch.zeros(72)
    a = (x @ state["embed.weight"][:kept].T + state["embed.bias"][:kept]) * scale
    W, b = state["attention.in_proj_weight"], state.get("attention.in_proj_bias", zero)
    heads = []
    for first in (0, 8):
        q, k, v = (
            a @ W[at : at + 8, :kept].T + b[at : at + 8]
            for at in (first, 24 + first, 48 + first)
        )
        heads.append((q @ k.transpose(1, 2) / 8**0.5).softmax(-1) @ v)
    joined = torch.cat(heads, dim=-1) * scale
    joined = joined @ state["attention.out_proj.weight"][:kept, :kept].T
    joined = joined + state.get("attention.out_proj.bias", zero)[:kept]
    expected = (joined.mean(1) * scale) @ state["out.weight"][:, :kept].T
    torch.testing.assert_close(small.model(x), expected + state["out.bias"])


@pytest.mark.parametrize("name", models.MODELS)
def test_all_models_by_name_have_narrow_parts(name: str) -> None:
    model = models.build(name, seed=0)
    x = torch.rand(2, *((3, 32, 32) if name == "CifarCNN" else (1, 28, 28)))
    tried = Example(LOSSES["cross-entropy"], {"x": x, "y": torch.tensor([0, 1])})
    parts = [submodel_of(f"width {s}").part(model, tried) for s in (0.25, 0.5, 0.75)]
    sizes = [models.parameter_count(p.model) for p in parts]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] < models.parameter_count(model)
    for narrow, wide in pairwise(parts):
        for key, at in narrow.up.items():
            for few, more in zip(at, wide.up[key], strict=True):
                assert set(few.tolist()) <= set(more.tolist())


def test_what_is_taken_and_spread_is_where_it_was() -> None:
    model = made("residual")
    small, whole = part(model, "width 0.5", "residual"), parameters_of(model)
    same = small.spread(small.kept(whole), whole)
    assert all(torch.equal(same[name], whole[name]) for name in whole)
    moved = {name: t + 1 for name, t in small.kept(whole).items()}
    mask = small.mask(whole)
    for name, t in small.spread(moved, whole).items():
        torch.testing.assert_close(t - whole[name], mask[name].float())


@pytest.mark.parametrize("wrong", [None, {}, {"x": torch.ones(1)}, "width"])
def test_what_is_no_update_of_a_part_is_refused(wrong: object) -> None:
    model = made("perceptron")
    small, whole = part(model, "width 0.5", "perceptron"), parameters_of(model)
    with pytest.raises(DataError, match=r"not one of 'width 0\.5'"):
        small.check(wrong)
    with pytest.raises(DataError, match="not one of"):
        small.spread(whole, whole)


def test_a_part_keeps_what_a_model_says_of_its_sizes() -> None:
    class Sized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 8)
            self.hidden, self.out = nn.Linear(8, 10), nn.Linear(10, 5)

        def forward(self, x: Tensor) -> Tensor:
            a = self.first(x)
            n, width = a.shape
            a = a + self.second(a).view(n, 2, -1).flip(1).reshape(n, width)
            out: Tensor = self.out(self.hidden(a).relu())
            return out

    tried = Example(
        LOSSES["cross-entropy"], {"x": torch.randn(3, 6), "y": torch.zeros(3).long()}
    )
    found = shapes(submodel_of("width 0.5").part(Sized(), tried))
    # 2 × 4 numbers turned around are followed by nobody: they stay 8. 10 become 5.
    assert found["second.weight"] == (8, 8)
    assert found["hidden.weight"] == (5, 8)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.out = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.cells(x)[0][:, -1])
        return out


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.out = nn.Linear(6, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.one(x) if x.sum() > 0 else -self.one(x))
        return out


@pytest.mark.parametrize(
    ("model", "shape", "why"),
    [
        (Recurrent(), (2, 3, 6), "width of GRU"),
        (Deciding(), (2, 6), "torch.fx cannot follow"),
        (nn.Sequential(nn.Linear(6, 5)), (2, 6), "no layer can be cut"),
        (
            nn.Sequential(nn.Conv1d(6, 8, 1, groups=2), nn.Flatten(), nn.Linear(24, 5)),
            (2, 6, 3),
            "groups of channels",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(
    model: nn.Module, shape: tuple[int, ...], why: str
) -> None:
    tried = Example(
        LOSSES["cross-entropy"], {"x": torch.randn(shape), "y": torch.tensor([0, 1])}
    )
    with pytest.raises(ConfigError, match=why):
        submodel_of("width 0.5").part(model, tried)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("width", "for example 'width 0.5'"),
        ("width 0", "above 0"),
        ("width 1.5", "above 0"),
        ("width nan", "above 0"),
        ("freeze 1", "below 1"),
        ("half", "width 0.5"),
    ],
)
def test_a_submodel_that_is_none_is_named(written: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        submodel_of(written)


def test_half_a_width_takes_about_a_quarter_of_operations_and_bytes() -> None:
    torch.manual_seed(0)
    model = models.perceptron(64, 256, 256, 10)
    tried = Example(
        LOSSES["cross-entropy"], {"x": torch.randn(8, 64), "y": torch.zeros(8).long()}
    )
    small = submodel_of("width 0.5").part(model, tried)
    cost, whole = (cost_of(p, model, tried) for p in (small, whole_of(model)))
    weights = 64 * 128 + 128 * 128 + 128 * 10
    assert cost.parameters == weights + 128 + 128 + 10
    assert cost.down_bytes == cost.up_bytes == 4 * cost.parameters
    # Forward, and both gradients but that of the first layer's inputs; 2 a product.
    assert cost.operations == 2 * (3 * weights - 64 * 128)
    assert cost.step(whole) == pytest.approx(
        (3 * weights - 64 * 128) / (2 * 64 * 256 + 3 * (256 * 256 + 2560))
    )
    assert cost.fixed(whole) == cost.parameters / whole.parameters


def test_a_narrow_model_really_takes_less_time() -> None:
    model = models.perceptron(64, 1024, 1024, 10)
    tried = Example(
        LOSSES["cross-entropy"], {"x": torch.randn(64, 64), "y": torch.zeros(64).long()}
    )
    small = submodel_of("width 0.25").part(model, tried)
    assert measured_s(small.model, tried) < 0.6 * measured_s(model, tried)


def test_parts_are_made_while_other_threads_train() -> None:
    """Torch.fx patches modules of all threads while it traces one."""
    used = [made("residual").eval() for _ in range(2)]
    x = torch.randn(2, 3, 6, 6)
    expected = [model(x) for model in used]
    done, wrong = threading.Event(), list[Exception]()

    def use(k: int) -> None:
        try:
            while not done.is_set():
                assert torch.equal(used[k](x), expected[k])
        except Exception as error:
            wrong.append(error)

    def make(_: int) -> set[tuple[int, ...]]:
        small = part(made("residual"), "width 0.5", "residual")
        return {tuple(t.shape) for t in small.model.parameters()}

    threads = [threading.Thread(target=use, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    try:
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(make, range(6)))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert all(shapes == found[0] for shapes in found)
