"""Chains of layers with parameters of their own for each learner, in batched products.

A convolution is the product of its weights with the patches that they see. All samples
of a learner are in it side by side, which keeps a GPU busy however small they are:
activations are learners × channels × samples × height × width until they are flat, and
learners × samples × units from there on.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import fold, max_pool2d, pad

from melisma.learning.parameters import Parameters


def is_chain(model: nn.Module) -> bool:
    """Whether `forward` does what ``model`` does."""
    return isinstance(model, nn.Sequential) and all(map(_is_plain, model.children()))


def _is_plain(layer: nn.Module) -> bool:
    match layer:
        case nn.Conv2d():
            plain = (layer.groups, layer.dilation) == (1, (1, 1))
            return (
                type(layer) is nn.Conv2d
                and plain
                and layer.bias is not None
                and layer.padding_mode == "zeros"
                and isinstance(layer.padding, tuple)
            )
        case nn.MaxPool2d():
            return (
                layer.stride == layer.kernel_size
                and (layer.padding, layer.dilation) == (0, 1)
                and not (layer.ceil_mode or layer.return_indices)
            )
        case nn.Flatten():
            return (layer.start_dim, layer.end_dim) == (1, -1)
        case nn.Linear():
            return type(layer) is nn.Linear and layer.bias is not None
        case _:
            return type(layer) is nn.ReLU


def forward(model: nn.Module, theta: Parameters, x: Tensor) -> Tensor:
    """Outputs, learners × samples × the shape of an output.

    ``theta`` is a stack, and ``x`` is learners × samples × the shape of a sample.
    """
    a = x.transpose(1, 2) if x.ndim > 3 else x
    for name, layer in model.named_modules(remove_duplicate=False):
        match layer:
            case nn.Conv2d():
                W, b = theta[f"{name}.weight"], theta[f"{name}.bias"]
                a = _convolved(a, W, b, layer.padding, layer.stride)
            case nn.MaxPool2d():
                pooled = max_pool2d(a.flatten(0, 2).unsqueeze(1), layer.kernel_size)
                a = pooled.view(*a.shape[:3], *pooled.shape[2:])
            case nn.ReLU():
                a = a.relu()
            case nn.Flatten() if a.ndim > 3:
                a = a.transpose(1, 2).flatten(2)
            case nn.Linear():
                W, b = theta[f"{name}.weight"], theta[f"{name}.bias"]
                rows = torch.baddbmm(
                    b.unsqueeze(1), a.flatten(1, -2), W.transpose(1, 2)
                )
                a = rows.view(*a.shape[:-1], -1)
    return a.transpose(1, 2) if a.ndim > 3 else a


def _convolved(a: Tensor, W: Tensor, b: Tensor, padding: Any, stride: Any) -> Tensor:
    """Filters × patches, for every learner."""
    kernel = W.shape[-2:]
    patches: Tensor = _Patches.apply(a, kernel, padding, stride)  # type: ignore[no-untyped-call]
    samples, height, width = patches.shape[-3:]
    columns = patches.reshape(len(W), W[0, 0].numel(), -1)
    filtered = torch.baddbmm(b.unsqueeze(2), W.flatten(2), columns)
    return filtered.view(*W.shape[:2], samples, height, width)


class _Patches(torch.autograd.Function):
    """Inputs of each filter weight: learners × channels × k × k × samples × h × w.

    Forward is one copy, backward one copy and one sum, many times as fast as torch's
    gradient of two sliding windows.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, kernel: Any, padding: Any, stride: Any) -> Tensor:
        rows, columns = padding
        a = pad(a, (columns, columns, rows, rows))
        ctx.whole, ctx.padding, ctx.stride = a.shape, padding, stride
        windows = a.unfold(3, kernel[0], stride[0]).unfold(4, kernel[1], stride[1])
        return windows.permute(0, 1, 5, 6, 2, 3, 4).contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = gradients
        k, m, samples, height, width = gradient.shape[2:]
        rows, columns = ctx.padding
        size = ctx.whole[3] - 2 * rows, ctx.whole[4] - 2 * columns
        seen = gradient.permute(0, 4, 1, 2, 3, 5, 6).reshape(
            len(gradient) * samples, -1, height * width
        )
        whole = fold(seen, size, (k, m), padding=ctx.padding, stride=ctx.stride)
        each = whole.view(len(gradient), samples, *whole.shape[1:])
        return each.transpose(1, 2), None, None, None
