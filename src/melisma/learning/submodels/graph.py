"""Following a model from its inputs to its outputs, as torch.fx traces it.

What is between layers is followed where it is certain: sums of tensors, activations,
flattening, axes in another order, tensors joined, means over other axes. What goes into
any other function stays whole, which is always right, if not as small as could be.
"""

import inspect
import math
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from melisma.errors import ConfigError
from melisma.learning.submodels.channels import (
    Channels,
    Pieces,
    in_blocks,
    joined,
    keep_whole,
)
from melisma.learning.submodels.cuts import Cuts, Value
from melisma.learning.submodels.layers import RULES, unknown_layer
from melisma.learning.submodels.submodel import Call

#: One thread at a time: patches of torch.fx undo one another.
_TRACING = threading.Lock()


class Misfit(ConfigError):
    """A cut model does not run, or values in it have other shapes than were meant."""


class Followed:
    """A model's graph, and along which axes its tensors and values may be cut.

    ``sizes``: axes stay whole whose length the model's own code asks for.
    """

    def __init__(self, model: nn.Module, call: Call, *, sizes: bool = False) -> None:
        self.graph, self._call = _traced(model, call), call
        self._model, self.cuts = model, Cuts()
        shapes = self._shapes(model)
        self._values: dict[fx.Node, Value] = {}
        for node in self.graph.nodes:
            if node in shapes:
                self._values[node] = self._follow(node, Value(shapes[node]))
            elif not _asks_sizes(node) or (sizes and not _asks_other(node)):
                self._keep(node)

    def check(self, small: nn.Module, share: float) -> None:
        """Raise Misfit unless all values of a cut model have the shapes meant."""
        shapes = self._shapes(small)
        for node, value in self._values.items():
            expected = value.cut_shape(share)
            if shapes.get(node) != expected:
                raise Misfit(
                    f"cut to a width of {share:g}, {node.name} has the shape "
                    f"{shapes.get(node)} in place of {expected}: the model's code has "
                    "numbers for sizes; use freeze, or leave submodel out"
                )

    def _shapes(self, model: nn.Module) -> dict[fx.Node, tuple[int, ...]]:
        """Return the shape of each node's tensor; of several, that of the first."""
        shapes = _Shapes(fx.GraphModule(model, self.graph))
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                shapes.run(*self._call.args, **self._call.kwargs)
        except Exception as error:  # the user's own code may raise anything
            reason = str(error).strip().splitlines()[0] if str(error) else ""
            raise Misfit(
                f"cut by width, the model does not run: {reason[:200]}; use freeze, or "
                "leave submodel out"
            ) from error
        return shapes.found

    def _follow(self, node: fx.Node, out: Value) -> Value:
        given = [self._values[n] for n in node.all_input_nodes if n in self._values]
        match node.op:
            case "get_attr":
                return self._own(_attribute(self._model, str(node.target)), out)
            case "call_module":
                layer = self._model.get_submodule(str(node.target))
                return self._layer(layer, node, out)
            case "call_function" | "call_method":
                rule = FUNCTIONS.get(node.target)
                if rule is None and node.target in _BOTH:
                    return self._both(node, out)
                found = rule(node, given, out) if rule and given else None
                if found is not None:
                    return found
                self._keep(node)
        return out

    def _own(self, tensor: Tensor, out: Value) -> Value:
        """Follow a tensor of the model's own code: its channels are along one axis."""
        if not any(tensor is one for one in _tensors(self._model)) or not out.shape:
            return out
        long = [axis for axis, size in enumerate(out.shape) if size > 1]
        axis = long[0] if len(long) == 1 else len(out.shape) - 1
        return out.cut_at(axis, self.cuts.outputs(tensor, axis))

    def _layer(self, layer: nn.Module, node: fx.Node, out: Value) -> Value:
        places = inspect.signature(layer.forward).parameters
        named = [node.kwargs.get(name) for name in places]
        given = [
            self._values[n]
            for n in (*node.args, *named)
            if isinstance(n, fx.Node) and n in self._values
        ]
        if type(layer) is nn.Flatten:
            return _reshaped(node, given, out) or out
        if rule := RULES.get(type(layer)):
            return rule(self.cuts, layer, given, out)
        if _tensors(layer):
            raise unknown_layer(layer)
        self._keep(node)
        return out

    def _keep(self, node: fx.Node) -> None:
        """Have all that goes into a node stay whole."""
        for given in node.all_input_nodes:
            if given in self._values:
                keep_whole(self._values[given].pieces)

    def _both(self, node: fx.Node, out: Value) -> Value:
        """Follow two tensors value by value, the smaller one repeated."""
        axis: int | None = None
        pieces: Pieces = None
        given = [n for n in node.all_input_nodes if n in self._values]
        for one in given:
            value = self._values[one]
            if value.pieces is not None:
                axis = value.axis - len(value.shape)
                pieces = value.pieces
        if axis is None:
            return out
        for one in given:
            value = self._values[one]
            if -axis > len(value.shape) or value.shape[axis] == 1:
                keep_whole(value.pieces)
                continue
            pieces = joined(value.along(axis), pieces)
        return out.cut_at(axis, pieces)


class _Tracer(fx.Tracer):
    """Traces in one thread: while it does, torch.fx has patched modules of all."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: Any) -> Any:
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)


def _traced(model: nn.Module, call: Call) -> fx.Graph:
    """Return the graph of a model for a call; ConfigError if it cannot be traced."""
    try:
        bound = inspect.signature(model.forward).bind(*call.args, **call.kwargs)
        given = set(bound.arguments)
        bound.apply_defaults()
        usual = {n: v for n, v in bound.arguments.items() if n not in given}
        usual = {n: v for n, v in usual.items() if v not in ((), {})}
        with _TRACING:
            return _Tracer().trace(model, usual or None)
    except Exception as error:  # the user's own code may raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"a submodel by width of {type(model).__name__}, whose layers torch.fx "
            f"cannot follow: {reason[:200]}; use freeze, or leave submodel out"
        ) from error


class _Shapes(fx.Interpreter):
    """Runs a graph, and notes the shapes of all tensors."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.found: dict[fx.Node, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        n.meta["several"] = isinstance(result, tuple | list)
        first = result[0] if n.meta["several"] and result else result
        if isinstance(first, Tensor) and n.op != "output":
            self.found[n] = tuple(first.shape)
        return result


def _asks_sizes(node: fx.Node) -> bool:
    """Whether a node asks for the lengths of a tensor's axes, or for its type."""
    return node.target in (getattr, "size", "dim")


def _asks_other(node: fx.Node) -> bool:
    """Whether it asks for the number of samples alone, or for no length."""
    if node.target == "size" and len(node.args) == 2:
        return bool(node.args[1] == 0)
    return node.target == "dim" or node.args[1:] not in (("shape",), ())


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _attribute(model: nn.Module, name: str) -> Tensor:
    owner, _, own = name.rpartition(".")
    tensor = getattr(model.get_submodule(owner), own)
    assert isinstance(tensor, Tensor)
    return tensor


#: Follows a function; None if what goes in is to stay whole.
Follow = Callable[[fx.Node, Sequence[Value], Value], Value | None]


def _same(node: fx.Node, given: Sequence[Value], out: Value) -> Value | None:
    return out.cut_at(given[0].axis, given[0].pieces)


def _pooled(node: fx.Node, given: Sequence[Value], out: Value) -> Value | None:
    is_image = len(out.shape) == len(given[0].shape) and given[0].axis == 1
    return _same(node, given, out) if is_image else None


def _reshaped(node: fx.Node, given: Sequence[Value], out: Value) -> Value | None:
    """Follow channels into an axis on which each is one entry, or a block of them.

    >>> image = Value((2, 6, 5, 5), 1, ((Channels(6), 1),))
    >>> flat = _reshaped(None, [image], Value((2, 150)))  # type: ignore[arg-type]
    >>> flat.axis, flat.cut_shape(0.5)
    (1, (2, 75))
    """
    value = given[0]
    if value.pieces is None:
        return out
    size = value.shape[value.axis]
    before = math.prod(value.shape[: value.axis])
    after = [*_products(value.shape[value.axis + 1 :])]
    for axis, length in enumerate(out.shape):
        starts_there = math.prod(out.shape[:axis]) == before
        if starts_there and length % size == 0 and length // size in after:
            return out.cut_at(axis, in_blocks(value.pieces, length // size))
    keep_whole(value.pieces)
    return None


def _products(shape: Sequence[int]) -> list[int]:
    """Return the products of the first none, one, two and so on.

    >>> _products((5, 4))
    [1, 5, 20]
    """
    found = [1]
    for length in shape:
        found.append(found[-1] * length)
    return found


def _argument(node: fx.Node, place: int, name: str, usual: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, usual)


def _permuted(node: fx.Node, given: Sequence[Value], out: Value) -> Value | None:
    dims = _argument(node, 1, "dims")
    order: list[Any] = list(dims if isinstance(dims, list | tuple) else node.args[1:])
    if given[0].pieces is None or not all(isinstance(d, int) for d in order):
        return None
    order = [d % len(order) for d in order]
    return out.cut_at(order.index(given[0].axis), given[0].pieces)


def _transposed(node: fx.Node, given: Sequence[Value], out: Value) -> Value | None:
    one, other = _argument(node, 1, "dim0"), _argument(node, 2, "dim1")
    if given[0].pieces is None or not isinstance(one, int) or type(other) is not int:
        return None
    one, other = one % len(out.shape), other % len(out.shape)
    axis = {one: other, other: one}.get(given[0].axis, given[0].axis)
    return out.cut_at(axis, given[0].pieces)


def _reduced(node: fx.Node, given: Sequence[Value], out: Value) -> Value | None:
    """Follow a mean over axes that are not cut."""
    value, dims = given[0], _argument(node, 1, "dim")
    dims = dims if isinstance(dims, list | tuple) else [dims]
    if value.pieces is None or not all(isinstance(d, int) for d in dims):
        return None
    gone = {d % len(value.shape) for d in dims}
    if value.axis in gone:
        return None
    kept = len(out.shape) == len(value.shape)
    before = 0 if kept else sum(d < value.axis for d in gone)
    return out.cut_at(value.axis - before, value.pieces)


def _together(node: fx.Node, given: Sequence[Value], out: Value) -> Value | None:
    """Follow tensors that are joined along an axis."""
    listed, dim = node.args[0], _argument(node, 1, "dim", 0)
    cut = [value for value in given if value.pieces is not None]
    alike = isinstance(listed, list | tuple) and len(listed) == len(given)
    if not alike or not isinstance(dim, int) or not cut:
        return None
    axis = dim % len(out.shape)
    if any(value.axis != axis for value in cut):
        return None  # along another one
    pieces = [v.pieces or ((Channels(v.shape[axis], whole=True), 1),) for v in given]
    return out.cut_at(axis, tuple(piece for some in pieces for piece in some))


def _item(node: fx.Node, given: Sequence[Value], out: Value) -> Value | None:
    """Follow one of several tensors, or some of one along axes that are not cut."""
    source, index = node.args[0], node.args[1]
    if isinstance(source, fx.Node) and source.meta["several"]:
        return given[0] if index == 0 else out
    index = index if isinstance(index, tuple) else (index,)
    value, gone = given[0], 0
    if value.pieces is None:
        return out
    for axis, one in enumerate(index):
        if not isinstance(one, int | slice) or (
            axis == value.axis and one != slice(None)
        ):
            return None
        gone += isinstance(one, int) and axis < value.axis
    return out.cut_at(value.axis - gone, value.pieces)


#: Of two tensors, value by value.
_BOTH: set[Any] = {
    *(operator.add, operator.sub, operator.mul, operator.truediv),
    *(operator.iadd, operator.imul, operator.isub),
    *(torch.add, torch.sub, torch.mul, torch.div),
    *("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_"),
}
FUNCTIONS: dict[Any, Follow] = {
    **dict.fromkeys(
        [
            *(F.relu, F.relu6, F.leaky_relu, F.elu, F.selu, F.gelu, F.silu, F.mish),
            *(F.softplus, F.hardswish, F.dropout, F.dropout1d, F.dropout2d),
            *(torch.relu, torch.tanh, torch.sigmoid, F.tanh, F.sigmoid, F.hardtanh),
            *("relu", "relu_", "tanh", "sigmoid", "contiguous", "clone", "float"),
            *(operator.neg, torch.abs, "abs"),
        ],
        _same,
    ),
    **dict.fromkeys(
        [
            *(F.max_pool1d, F.max_pool2d, F.avg_pool1d, F.avg_pool2d),
            *(F.adaptive_avg_pool1d, F.adaptive_avg_pool2d),
            *(F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.interpolate),
            *(torch.max_pool1d, torch.max_pool2d),
        ],
        _pooled,
    ),
    **dict.fromkeys(
        [
            *(torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze),
            *("flatten", "view", "reshape", "squeeze", "unsqueeze"),
        ],
        _reshaped,
    ),
    **dict.fromkeys([torch.permute, "permute"], _permuted),
    **dict.fromkeys([torch.transpose, "transpose"], _transposed),
    **dict.fromkeys(
        [torch.mean, torch.sum, torch.amax, "mean", "sum", "amax"], _reduced
    ),
    **dict.fromkeys([torch.cat, torch.concat], _together),
    operator.getitem: _item,
}
