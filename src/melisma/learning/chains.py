"""How PyTorch's layers and functions are told to an engine without PyTorch.

Arguments have PyTorch's names, sizes of windows as [height, width]. Adaptive pooling
becomes pooling by a window, and what only reshapes samples becomes one ``Reshape``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor, fx, nn

Value = int | float | bool | str | list[int]
Arguments = dict[str, Value]


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of a chain."""

    kind: str  #: PyTorch's name of it, or Reshape, Mean
    name: str  #: prefix of its parameters: "0" for "0.weight"; "" if it has none
    arguments: dict[str, Value]


class Unfit(Exception):
    """Why a layer cannot be told; its name and type are added where it is caught."""


def told_module(
    layer: nn.Module, before: Tensor, after: Tensor, name: str
) -> list[Layer]:
    """Return a module as layers, of its parameters' prefix; Unfit if it cannot be."""
    if layer._forward_hooks or layer._forward_pre_hooks:
        raise Unfit("it has hooks")
    if any(v.dtype != torch.float32 for v in layer.parameters()):
        raise Unfit("its parameters are not float32")
    return _layers(layer, before, after, name)


def _layers(
    layer: nn.Module, before: Tensor, after: Tensor, name: str = ""
) -> list[Layer]:
    if isinstance(layer, nn.Identity):
        return []
    tell = TELLING.get(type(layer))
    if tell is None:
        raise Unfit("no engine knows it")
    kind, arguments = tell(layer, before, after)
    return [Layer(kind=kind, name=name, arguments=arguments)]


Told = tuple[str, Arguments]


def _plain(*names: str) -> Callable[[Any, Tensor, Tensor], Told]:
    """Tell a layer by some of its attributes."""

    def tell(layer: Any, before: Tensor, after: Tensor) -> Told:
        return type(layer).__name__, {name: getattr(layer, name) for name in names}

    return tell


def _linear(layer: nn.Linear, before: Tensor, after: Tensor) -> Told:
    return "Linear", {
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "bias": layer.bias is not None,
    }


def _conv(layer: nn.Conv2d, before: Tensor, after: Tensor) -> Told:
    _check_images(before)
    if layer.padding_mode != "zeros":
        raise Unfit(f"it pads by {layer.padding_mode!r}")
    dilation = _pair(layer.dilation)
    kernel = _pair(layer.kernel_size)
    if layer.padding == "same":
        sums = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        if any(s % 2 for s in sums):
            raise Unfit("it pads one side by more than the other")
        padding = [s // 2 for s in sums]
    else:
        padding = [0, 0] if layer.padding == "valid" else _pair(layer.padding)
    return "Conv2d", {
        "in_channels": layer.in_channels,
        "out_channels": layer.out_channels,
        "kernel_size": kernel,
        "stride": _pair(layer.stride),
        "padding": padding,
        "dilation": dilation,
        "groups": layer.groups,
        "bias": layer.bias is not None,
    }


def _max_pool(layer: nn.MaxPool2d, before: Tensor, after: Tensor) -> Told:
    _check_images(before)
    if layer.return_indices:
        raise Unfit("it returns indices")
    return "MaxPool2d", {**_window(layer), "dilation": _pair(layer.dilation)}


def _avg_pool(layer: nn.AvgPool2d, before: Tensor, after: Tensor) -> Told:
    _check_images(before)
    if layer.divisor_override is not None:
        raise Unfit("it has a divisor of its own")
    include = layer.count_include_pad
    return "AvgPool2d", {**_window(layer), "count_include_pad": include}


def _window(layer: nn.MaxPool2d | nn.AvgPool2d) -> Arguments:
    if layer.ceil_mode:
        raise Unfit("it rounds sizes up (ceil_mode)")
    return {
        "kernel_size": _pair(layer.kernel_size),
        "stride": _pair(layer.stride),
        "padding": _pair(layer.padding),
    }


def _adaptive(kind: str) -> Callable[[Any, Tensor, Tensor], Told]:
    def tell(layer: Any, before: Tensor, after: Tensor) -> Told:
        _check_images(before)
        sizes = list(zip(before.shape[2:], after.shape[2:], strict=True))
        if any(size % parts for size, parts in sizes):
            raise Unfit(f"its windows differ: {sizes} do not divide")
        window: Value = [size // parts for size, parts in sizes]
        rest: Arguments = (
            {"dilation": [1, 1]} if kind == "MaxPool2d" else {"count_include_pad": True}
        )
        return kind, {"kernel_size": window, "stride": window, "padding": [0, 0]} | rest

    return tell


def _reshape(layer: object, before: Tensor, after: Tensor) -> Told:
    if after.shape[:1] != before.shape[:1] or after.numel() != before.numel():
        raise Unfit("samples do not stay apart")
    return "Reshape", {"shape": list(after.shape[1:])}


def _softmax(layer: nn.Softmax | nn.LogSoftmax, before: Tensor, after: Tensor) -> Told:
    if layer.dim is None:
        raise Unfit("it has no dim")
    dim = layer.dim % before.ndim
    if not dim:
        raise Unfit("it goes across samples")
    return type(layer).__name__, {"dim": dim}


def _layer_norm(layer: nn.LayerNorm, before: Tensor, after: Tensor) -> Told:
    if layer.elementwise_affine and layer.bias is None:
        raise Unfit("it has no bias")
    return "LayerNorm", {
        "normalized_shape": list(layer.normalized_shape),
        "eps": layer.eps,
        "affine": layer.elementwise_affine,
    }


def _batch_norm(layer: Any, before: Tensor, after: Tensor) -> Told:
    if layer.momentum is None:
        raise Unfit("its momentum is None: a mean over all batches")
    if not layer.track_running_stats:
        raise Unfit("it has no running statistics")
    return "BatchNorm", {
        "num_features": layer.num_features,
        "eps": layer.eps,
        "momentum": layer.momentum,
        "affine": layer.affine,
    }


def _group_norm(layer: nn.GroupNorm, before: Tensor, after: Tensor) -> Told:
    return "GroupNorm", {
        "num_groups": layer.num_groups,
        "num_channels": layer.num_channels,
        "eps": layer.eps,
        "affine": layer.affine,
    }


def _embedding(layer: nn.Embedding, before: Tensor, after: Tensor) -> Told:
    if layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse:
        raise Unfit("max_norm, scale_grad_by_freq and sparse are not supported")
    padding = layer.padding_idx
    return "Embedding", {
        "num_embeddings": layer.num_embeddings,
        "embedding_dim": layer.embedding_dim,
        "padding_idx": -1 if padding is None else padding,
    }


#: How each type of layer is told.
TELLING: Mapping[type[nn.Module], Callable[[Any, Tensor, Tensor], Told]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv,
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _avg_pool,
    nn.AdaptiveAvgPool2d: _adaptive("AvgPool2d"),
    nn.AdaptiveMaxPool2d: _adaptive("MaxPool2d"),
    nn.ReLU: _plain(),
    nn.LeakyReLU: _plain("negative_slope"),
    nn.ELU: _plain("alpha"),
    nn.Sigmoid: _plain(),
    nn.Tanh: _plain(),
    nn.GELU: _plain("approximate"),
    nn.SiLU: _plain(),
    nn.Softmax: _softmax,
    nn.LogSoftmax: _softmax,
    nn.Flatten: _reshape,
    nn.Unflatten: _reshape,
    nn.Dropout: _plain("p"),
    nn.LayerNorm: _layer_norm,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.GroupNorm: _group_norm,
    nn.Embedding: _embedding,
}
#: What messages name: layers, and what is done by functions and methods.
SUPPORTED = [*(kind.__name__ for kind in TELLING), "reshaping", "mean"]


def _made(kind: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Make the layer that a function computes, of all its arguments but the first."""

    def make(inputs: object, *arguments: Any, **named: Any) -> nn.Module:
        for name in ("inplace", "training", "_stacklevel", "dtype"):
            if named.pop(name, None) is False and name == "training":
                return nn.Identity()
        return kind(*arguments, **named)

    return make


#: Functions and methods, by name, as the layers that they are.
FUNCTIONS: Mapping[str, Callable[..., nn.Module]] = {
    "relu": _made(nn.ReLU),
    "relu_": _made(nn.ReLU),
    "leaky_relu": _made(nn.LeakyReLU),
    "elu": _made(nn.ELU),
    "sigmoid": _made(nn.Sigmoid),
    "tanh": _made(nn.Tanh),
    "gelu": _made(nn.GELU),
    "silu": _made(nn.SiLU),
    "softmax": _made(nn.Softmax),
    "log_softmax": _made(nn.LogSoftmax),
    "max_pool2d": _made(nn.MaxPool2d),
    "avg_pool2d": _made(nn.AvgPool2d),
    "adaptive_avg_pool2d": _made(nn.AdaptiveAvgPool2d),
    "dropout": _made(nn.Dropout),
}
RESHAPING = frozenset(
    ("flatten", "view", "reshape", "squeeze", "unsqueeze", "unflatten", "contiguous")
)


def told_function(n: fx.Node, before: Tensor, after: Tensor) -> list[Layer]:
    """Return what a function or method computes as layers; Unfit if it cannot be."""
    called = called_of(n)
    if called in RESHAPING:
        kind, arguments = _reshape(None, before, after)
        return [Layer(kind=kind, name="", arguments=arguments)]
    if called == "mean":
        return [Layer(kind="Mean", name="", arguments=_mean(n, before))]
    if called not in FUNCTIONS:
        raise Unfit("no engine knows it")
    if any(isinstance(a, fx.Node) for a in (*n.args[1:], *n.kwargs.values())):
        raise Unfit("its arguments are computed")
    try:
        return _layers(FUNCTIONS[called](*n.args, **n.kwargs), before, after)
    except TypeError as error:
        raise Unfit(first_line(error)) from None


def _mean(n: fx.Node, before: Tensor) -> Arguments:
    names = ("dim", "keepdim")
    given: dict[str, Any] = dict(zip(names, n.args[1:], strict=False)) | n.kwargs
    dim = given.get("dim", ())
    dims = sorted(
        d % before.ndim for d in (dim if isinstance(dim, list | tuple) else [dim])
    )
    if not dims or not dims[0] or dims != list(range(dims[0], dims[-1] + 1)):
        raise Unfit("give the mean one axis beside the samples', or neighbours")
    return {"dims": dims, "keepdim": bool(given.get("keepdim", False))}


def called_of(n: fx.Node) -> str:
    """Return the name of the function or method that a step calls."""
    target = n.target if isinstance(n.target, str) else n.target.__name__
    return target.lstrip("_")


def _check_images(before: Tensor) -> None:
    if before.ndim != 4:
        raise Unfit(f"its samples are {tuple(before.shape[1:])}, no images")


def _pair(size: Any) -> list[int]:
    return [int(s) for s in size] if isinstance(size, tuple | list) else [int(size)] * 2


def first_line(error: Exception) -> str:
    """Return the first line of what an error says."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
