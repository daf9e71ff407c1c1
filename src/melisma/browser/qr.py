"""QR codes of links, drawn for a terminal: ISO/IEC 18004, bytes at level L.

The bytes and their Reed-Solomon remainders are laid out in a zigzag between the fixed
patterns, and one of eight masks is applied, that which is read most easily. Level L
(a symbol can lose 7 %) keeps the symbol small: nothing stains a screen.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from melisma.errors import ConfigError

Symbol = NDArray[np.bool_]  #: true: dark

#: By version, at level L: bytes of each block's remainder, and blocks.
BLOCKS = [
    *((7, 1), (10, 1), (15, 1), (20, 1), (26, 1), (18, 2), (20, 2), (24, 2), (30, 2)),
    *((18, 4), (20, 4), (24, 4), (26, 4), (30, 4), (22, 6), (24, 6), (28, 6), (30, 6)),
]
#: Light modules around a symbol.
QUIET = 2

MASKS: list[Callable[[Any, Any], Any]] = [  # of rows and columns
    lambda r, c: (r + c) % 2,
    lambda r, c: r % 2,
    lambda r, c: c % 3,
    lambda r, c: (r + c) % 3,
    lambda r, c: (r // 2 + c // 3) % 2,
    lambda r, c: r * c % 2 + r * c % 3,
    lambda r, c: (r * c % 2 + r * c % 3) % 2,
    lambda r, c: ((r + c) % 2 + r * c % 3) % 2,
]


def drawn(text: str) -> str:
    """Return the QR code of a text as lines of half blocks; it is dark on light.

    Light modules are full blocks: most terminals are dark, and readers that expect dark
    on light fail on the reverse less often than one would think.
    """
    light = ~np.pad(symbol(text.encode()), QUIET)
    if len(light) % 2:
        light = np.vstack([light, np.zeros(len(light), dtype=bool)])
    blocks = {(True, True): "█", (True, False): "▀", (False, True): "▄"}
    return "\n".join(
        "".join(blocks.get(pair, " ") for pair in zip(*rows, strict=True))
        for rows in zip(light[::2].tolist(), light[1::2].tolist(), strict=True)
    )


def symbol(data: bytes, mask: int | None = None) -> Symbol:
    """Return the QR code of some bytes; ConfigError if they are too many for it."""
    version = next(
        (v for v in range(1, len(BLOCKS) + 1) if len(data) <= _capacity(v)), None
    )
    if version is None:
        most = _capacity(len(BLOCKS))
        raise ConfigError(f"{len(data)} bytes in a QR code: {most} are the most")
    modules, fixed = _patterns(version)
    r, c = np.indices(modules.shape)
    bits = np.unpackbits(np.frombuffer(_codewords(data, version), np.uint8))
    for place, bit in zip(_zigzag(fixed), bits, strict=False):
        modules[place] = bit
    masked = [
        _with_format(modules ^ (~fixed & (rule(r, c) == 0)), number)
        for number, rule in enumerate(MASKS)
    ]
    return masked[mask] if mask is not None else min(masked, key=_penalty)


def _capacity(version: int) -> int:
    """Bytes of data beside mode, count and remainders."""
    remainder, blocks = BLOCKS[version - 1]
    return _total(version) - remainder * blocks - (2 if version < 10 else 3)


def _total(version: int) -> int:
    """Return the codewords of a symbol."""
    bits = (16 * version + 128) * version + 64
    if version >= 2:
        aligned = version // 7 + 2
        bits -= (25 * aligned - 10) * aligned - 55
    if version >= 7:
        bits -= 36
    return bits // 8


def _codewords(data: bytes, version: int) -> bytes:
    """Return mode, count, data and padding, with the remainders, interleaved."""
    remainder, blocks = BLOCKS[version - 1]
    size = _total(version) - remainder * blocks
    count_bits = 8 if version < 10 else 16
    head = (0b0100 << count_bits | len(data)) << 8 * len(data)
    whole = (head | int.from_bytes(data)) << 4  # the terminator
    plain = whole.to_bytes(len(data) + 1 + count_bits // 8)
    padded = (plain + b"\xec\x11" * size)[:size]
    short, longer = divmod(size, blocks)
    parts, at = [], 0
    for n in range(blocks):
        end = at + short + (n >= blocks - longer)
        parts.append(padded[at:end])
        at = end
    checks = [_remainder(part, remainder) for part in parts]
    return bytes([*_interleaved(parts), *_interleaved(checks)])


def _interleaved(parts: list[bytes]) -> Iterator[int]:
    for n in range(max(map(len, parts))):
        yield from (part[n] for part in parts if n < len(part))


def _times(a: int, b: int) -> int:
    """Multiply in GF(2⁸) modulo x⁸ + x⁴ + x³ + x² + 1."""
    product = 0
    while b:
        product ^= a * (b & 1)
        a, b = a << 1 ^ (a >> 7) * 0x11D, b >> 1
    return product


def _remainder(data: bytes, degree: int) -> bytes:
    """Return data · x^degree modulo Π (x − 2ⁱ), i < degree."""
    divisor, root = [*bytes(degree - 1), 1], 1
    for _ in range(degree):
        shifted = [*divisor[1:], 0]
        divisor = [_times(d, root) ^ s for d, s in zip(divisor, shifted, strict=True)]
        root = _times(root, 2)
    rest = [0] * degree
    for byte in data:
        factor, rest = byte ^ rest[0], [*rest[1:], 0]
        rest = [s ^ _times(d, factor) for s, d in zip(rest, divisor, strict=True)]
    return bytes(rest)


def _patterns(version: int) -> tuple[Symbol, Symbol]:
    """Return a symbol's fixed patterns, and where there are some."""
    size = 17 + 4 * version
    modules, fixed = np.zeros((2, size, size), dtype=bool)
    modules[6, ::2] = modules[::2, 6] = True
    fixed[6] = fixed[:, 6] = True
    r, c = np.indices((5, 5)) - 2
    places = _aligned(version, size)
    for x in places:
        for y in places:
            if (x, y) not in ((6, 6), (6, size - 7), (size - 7, 6)):
                box = slice(x - 2, x + 3), slice(y - 2, y + 3)
                modules[box], fixed[box] = np.maximum(abs(r), abs(c)) != 1, True
    r, c = np.indices((8, 8))
    ring = np.maximum(abs(r - 3), abs(c - 3))
    finder = (ring != 2) & (ring != 4)
    edges = slice(8), slice(-1, -9, -1)
    for rows, columns in ((0, 0), (0, 1), (1, 0)):
        box = edges[rows], edges[columns]
        modules[box], fixed[box] = finder, True
    fixed[8, :9] = fixed[:9, 8] = fixed[8, -8:] = fixed[-8:, 8] = True
    if version >= 7:
        word = _checked(version, 12, 0x1F25)
        bits = [word >> n & 1 for n in range(18)]
        modules[-11:-8, :6] = np.reshape(bits, (6, 3)).T
        modules[:6, -11:-8] = np.reshape(bits, (6, 3))
        fixed[-11:-8, :6] = fixed[:6, -11:-8] = True
    return modules, fixed


def _aligned(version: int, size: int) -> list[int]:
    """Return the centres of alignment patterns, evenly from the last one up."""
    if version == 1:
        return []
    gaps = version // 7 + 1
    step = -(-(size - 13) // (2 * gaps)) * 2
    return [6, *range(size - 7 - step * (gaps - 1), size - 6, step)]


def _zigzag(fixed: Symbol) -> Iterator[tuple[int, int]]:
    """Yield the places of data: columns by twos from the right, upwards at first."""
    size = len(fixed)
    rights = [*range(size - 1, 6, -2), *range(5, 0, -2)]
    for n, right in enumerate(rights):
        rows = range(size) if n % 2 else range(size - 1, -1, -1)
        for row in rows:
            for column in (right, right - 1):
                if not fixed[row, column]:
                    yield row, column


def _checked(value: int, degree: int, divisor: int) -> int:
    """Return a value followed by its remainder, bits of a BCH code."""
    rest = value
    for _ in range(degree):
        rest = rest << 1 ^ (rest >> (degree - 1)) * divisor
    return value << degree | rest


def _with_format(modules: Symbol, mask: int) -> Symbol:
    """Write level L and the mask, twice, and the module that is always dark."""
    word = _checked(0b01 << 3 | mask, 10, 0x537) ^ 0x5412
    bits = [word >> n & 1 for n in range(15)]
    modules[[0, 1, 2, 3, 4, 5, 7, 8], 8] = bits[:8]
    modules[8, [7, 5, 4, 3, 2, 1, 0]] = bits[8:]
    modules[8, -1:-9:-1] = bits[:8]
    modules[-7:, 8] = bits[8:]
    modules[-8, 8] = True
    return modules


def _penalty(modules: Symbol) -> int:
    """Return how hard a symbol is to read: runs, blocks, false finders, imbalance."""
    points = 0
    for lines in (modules, modules.T):
        for line in lines:
            ends = np.flatnonzero(np.diff(line)) + 1
            runs = np.diff(ends, prepend=0, append=len(line))
            points += int(np.sum(runs[runs >= 5] - 2))
        text = ["".join("01"[bit] for bit in line) for line in lines.tolist()]
        for pattern in ("10111010000", "00001011101"):
            points += 40 * sum(
                line.startswith(pattern, at) for line in text for at in range(len(line))
            )
    corner = modules[:-1, :-1]
    same = (corner == modules[1:, :-1]) & (corner == modules[:-1, 1:])
    points += 3 * int(np.sum(same & (corner == modules[1:, 1:])))
    return points + 10 * int(abs(modules.mean() * 20 - 10))
