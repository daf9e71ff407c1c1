"""How layers are cut: what each takes in, what it gives, and which tensors it has.

    Linear, Conv          rows are its outputs, columns its inputs
    BatchNorm, GroupNorm, LayerNorm, Embedding
                          as wide as what they take or give
    MultiheadAttention    whole heads; as many of them as of its inputs and outputs
    TransformerEncoder    its layers, and the hidden units of each

A layer is known by its exact type, since one of its own may compute anything. A layer
of another type is refused if it has tensors; what goes into one that has none stays
whole.
"""

from collections.abc import Callable, Sequence

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from melisma.errors import ConfigError
from melisma.learning.submodels.channels import Pieces, keep_whole, places
from melisma.learning.submodels.cuts import Cuts, Value

#: Follows a layer from its inputs to its output, of which the shape is known.
Rule = Callable[[Cuts, nn.Module, Sequence[Value], Value], Value]


class ScaledLinear(nn.Linear):
    """A linear layer of which inputs were cut: the others count so much more."""

    scale: float

    def forward(self, input):  # type: ignore[no-untyped-def]
        """Return what the whole layer would, if inputs were all alike."""
        return super().forward(input * self.scale)


class ScaledConv1d(nn.Conv1d):
    """The same of a convolution."""

    scale: float

    def forward(self, input):  # type: ignore[no-untyped-def]
        """Return what the whole layer would, if inputs were all alike."""
        return super().forward(input * self.scale)


class ScaledConv2d(nn.Conv2d):
    """The same of a convolution."""

    scale: float

    def forward(self, input):  # type: ignore[no-untyped-def]
        """Return what the whole layer would, if inputs were all alike."""
        return super().forward(input * self.scale)


class ScaledAttention(nn.MultiheadAttention):
    """The same of attention: of what goes into heads, and of heads that are joined."""

    scale: float

    def forward(self, query, key, value, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Return what all heads would give, if all were alike, and their weights."""
        asked = query * self.scale
        keys = asked if key is query else key * self.scale
        values = keys if value is key else value * self.scale
        given, weights = super().forward(asked, keys, values, *args, **kwargs)
        bias = 0.0 if self.out_proj.bias is None else self.out_proj.bias
        return (given - bias) * self.scale + bias, weights


_SCALED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: ScaledLinear,
    nn.Conv1d: ScaledConv1d,
    nn.Conv2d: ScaledConv2d,
    nn.MultiheadAttention: ScaledAttention,
}


def _linear(cuts: Cuts, layer: nn.Module, given: Sequence[Value], out: Value) -> Value:
    assert isinstance(layer, nn.Linear)
    return out.cut_at(-1, _product(cuts, layer, given[0].along(-1)))


def _product(cuts: Cuts, layer: nn.Linear, inputs: Pieces) -> Pieces:
    cuts.takes(layer, inputs)
    cuts.bind(layer.weight, 1, inputs)
    outputs = cuts.outputs(layer.weight, 0)
    cuts.bind(layer.bias, 0, outputs)
    return outputs


def _conv(cuts: Cuts, layer: nn.Module, given: Sequence[Value], out: Value) -> Value:
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    axis = len(out.shape) - len(layer.kernel_size) - 1
    inputs = given[0].along(axis)
    if layer.groups == 1:
        cuts.takes(layer, inputs)
        cuts.bind(layer.weight, 1, inputs)
        outputs = cuts.outputs(layer.weight, 0)
    elif layer.groups == layer.in_channels == layer.out_channels:
        outputs = inputs  # each channel by itself
        cuts.bind(layer.weight, 0, outputs)
    else:
        raise ConfigError(
            f"{layer} has groups of channels, which cannot be cut: use groups = 1, or "
            "as many as channels"
        )
    cuts.bind(layer.bias, 0, outputs)
    return out.cut_at(axis, outputs)


def _batch_norm(
    cuts: Cuts, layer: nn.Module, given: Sequence[Value], out: Value
) -> Value:
    assert isinstance(layer, _BatchNorm)
    pieces = given[0].along(1)
    cuts.takes(layer, pieces)
    for tensor in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
        cuts.bind(tensor, 0, pieces)
    return out.cut_at(1, pieces)


def _group_norm(
    cuts: Cuts, layer: nn.Module, given: Sequence[Value], out: Value
) -> Value:
    assert isinstance(layer, nn.GroupNorm)
    pieces = given[0].along(1)
    if layer.num_groups > 1:
        size = layer.num_channels // layer.num_groups
        if pieces is not None and (len(pieces) > 1 or pieces[0][1] > 1):
            keep_whole(pieces)
        for channels, _ in pieces or ():
            channels.keep_blocks(size)
    cuts.takes(layer, pieces)
    cuts.bind(layer.weight, 0, pieces)
    cuts.bind(layer.bias, 0, pieces)
    return out.cut_at(1, pieces)


def _layer_norm(
    cuts: Cuts, layer: nn.Module, given: Sequence[Value], out: Value
) -> Value:
    assert isinstance(layer, nn.LayerNorm)
    axis = len(out.shape) - 1
    if len(layer.normalized_shape) > 1:
        keep_whole(given[0].pieces)
        return out
    pieces = given[0].along(axis)
    _normed(cuts, layer, pieces)
    return out.cut_at(axis, pieces)


def _normed(cuts: Cuts, layer: nn.LayerNorm, pieces: Pieces) -> None:
    cuts.takes(layer, pieces)
    cuts.bind(layer.weight, 0, pieces)
    cuts.bind(layer.bias, 0, pieces)


def _embedding(
    cuts: Cuts, layer: nn.Module, given: Sequence[Value], out: Value
) -> Value:
    assert isinstance(layer, nn.Embedding)
    cuts.bind(layer.weight, 0, None)
    return out.cut_at(-1, cuts.outputs(layer.weight, 1))


def _attention(
    cuts: Cuts, layer: nn.Module, given: Sequence[Value], out: Value
) -> Value:
    assert isinstance(layer, nn.MultiheadAttention)
    # Masks come after query, key and value.
    pieces = given[0].along(-1)
    for other in given[1:3]:
        if other is not given[0]:
            cuts.takes(layer, pieces)
            pieces = other.along(-1)
    return out.cut_at(-1, _attended(cuts, layer, pieces))


def _attended(cuts: Cuts, layer: nn.MultiheadAttention, pieces: Pieces) -> Pieces:
    """Cut heads: as torch has it, they are together as wide as what goes in and out."""
    if layer.in_proj_weight is None or layer.bias_k is not None:
        raise ConfigError(
            "attention with keys of another width or a bias of its own cannot be cut: "
            "leave kdim, vdim and add_bias_kv out"
        )
    if pieces is not None and (len(pieces) > 1 or pieces[0][1] > 1):
        keep_whole(pieces)
    for channels, _ in pieces or ():
        channels.keep_blocks(layer.head_dim)
    cuts.takes(layer, pieces)
    three = pieces and pieces * 3  # query, key and value
    cuts.bind(layer.in_proj_weight, 0, three)
    cuts.bind(layer.in_proj_weight, 1, pieces)
    cuts.bind(layer.in_proj_bias, 0, three)
    cuts.bind(layer.out_proj.weight, 0, pieces)
    cuts.bind(layer.out_proj.weight, 1, pieces)
    cuts.bind(layer.out_proj.bias, 0, pieces)
    return pieces


def _encoder_layer(
    cuts: Cuts, layer: nn.Module, given: Sequence[Value], out: Value
) -> Value:
    assert isinstance(layer, nn.TransformerEncoderLayer)
    pieces = given[0].along(-1)
    _encoded(cuts, layer, pieces)
    return out.cut_at(-1, pieces)


def _encoded(cuts: Cuts, layer: nn.TransformerEncoderLayer, pieces: Pieces) -> None:
    _attended(cuts, layer.self_attn, pieces)
    hidden = _product(cuts, layer.linear1, pieces)
    cuts.takes(layer.linear2, hidden)
    cuts.bind(layer.linear2.weight, 1, hidden)
    cuts.bind(layer.linear2.weight, 0, pieces)
    cuts.bind(layer.linear2.bias, 0, pieces)
    for norm in (layer.norm1, layer.norm2):
        _normed(cuts, norm, pieces)


def _encoder(cuts: Cuts, layer: nn.Module, given: Sequence[Value], out: Value) -> Value:
    assert isinstance(layer, nn.TransformerEncoder)
    pieces = given[0].along(-1)
    for part in layer.layers:
        if type(part) is not nn.TransformerEncoderLayer:
            raise unknown_layer(part)
        _encoded(cuts, part, pieces)
    if layer.norm is not None:
        if type(layer.norm) is not nn.LayerNorm:
            raise unknown_layer(layer.norm)
        _normed(cuts, layer.norm, pieces)
    return out.cut_at(-1, pieces)


def _same(cuts: Cuts, layer: nn.Module, given: Sequence[Value], out: Value) -> Value:
    """Value by value, or along axes that are not cut."""
    return out.cut_at(given[0].axis, given[0].pieces)


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv1d: _conv,
    nn.Conv2d: _conv,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    nn.Embedding: _embedding,
    nn.MultiheadAttention: _attention,
    nn.TransformerEncoderLayer: _encoder_layer,
    nn.TransformerEncoder: _encoder,
}
_VALUE_BY_VALUE = (
    "ReLU ReLU6 LeakyReLU ELU CELU SELU GELU SiLU Mish Softplus Softsign Tanh Sigmoid "
    "Hardtanh Hardswish Hardsigmoid LogSigmoid Threshold Tanhshrink Softshrink "
    "Hardshrink Identity Dropout Dropout1d Dropout2d AlphaDropout FeatureAlphaDropout"
)
_ALONG_IMAGES = (
    "MaxPool1d MaxPool2d AvgPool1d AvgPool2d AdaptiveAvgPool1d AdaptiveAvgPool2d "
    "AdaptiveMaxPool1d AdaptiveMaxPool2d LPPool1d LPPool2d Upsample ZeroPad2d"
)
for _name in _VALUE_BY_VALUE.split():
    RULES[getattr(nn, _name)] = _same


def _pooled(cuts: Cuts, layer: nn.Module, given: Sequence[Value], out: Value) -> Value:
    """Along the last axes, one for each of the layer's: channels are before them."""
    spatial = 1 if type(layer).__name__.endswith("1d") else 2
    if type(layer) is nn.Upsample:
        spatial = len(out.shape) - 2
    axis = len(out.shape) - spatial - 1
    return out.cut_at(axis, given[0].along(axis))


for _name in _ALONG_IMAGES.split():
    RULES[getattr(nn, _name)] = _pooled


def unknown_layer(layer: nn.Module) -> ConfigError:
    """Return the error to raise for a layer that cannot be cut."""
    known = sorted(kind.__name__ for kind in RULES if kind.__name__ not in _PLAIN)
    return ConfigError(
        f"a submodel by width of {type(layer).__name__}: only {', '.join(known)} and "
        "layers without parameters can be cut; use freeze, or leave submodel out"
    )


_PLAIN = {*_VALUE_BY_VALUE.split(), *_ALONG_IMAGES.split()}


def refit(layer: nn.Module, inputs: Pieces, share: float) -> None:
    """Have a layer whose tensors were cut say and do what it now is."""
    size = sum(channels.size * block for channels, block in inputs or ())
    kept = len(places(inputs, size, share))
    match layer:
        case nn.Linear():
            layer.out_features, layer.in_features = layer.weight.shape
        case nn.Conv1d() | nn.Conv2d():
            layer.out_channels = len(layer.weight)
            if layer.groups > 1:
                layer.groups = layer.out_channels
            layer.in_channels = layer.weight.shape[1] * layer.groups
        case nn.Embedding():
            layer.embedding_dim = layer.weight.shape[1]
        case _BatchNorm() if inputs:
            layer.num_features = kept
        case nn.GroupNorm() if inputs:
            if layer.num_groups > 1:
                layer.num_groups = layer.num_groups * kept // layer.num_channels
            layer.num_channels = kept
        case nn.LayerNorm() if inputs:
            layer.normalized_shape = (kept,)
        case nn.MultiheadAttention() if inputs:
            layer.num_heads = kept // layer.head_dim
            layer.embed_dim = layer.kdim = layer.vdim = kept
            layer.out_proj.in_features = layer.out_proj.out_features = kept
    if type(layer) in _SCALED and kept < size:
        # The layer stays where and what it is, but for its forward.
        layer.__class__ = _SCALED[type(layer)]
        layer.scale = size / kept  # type: ignore[assignment]
