"""QR codes, held against the symbols of another encoder (segno 1.6.6, level L)."""

import hashlib

import numpy as np
import pytest

from melisma.browser.qr import BLOCKS, QUIET, drawn, symbol
from melisma.errors import ConfigError

SYMBOL = """
#######.####..#######
#.....#.#.....#.....#
#.###.#...#.#.#.###.#
#.###.#...#...#.###.#
#.###.#.#..#..#.###.#
#.....#.##.#..#.....#
#######.#.#.#.#######
........#..#.........
###..##.###..####..##
##..#...#...#...##..#
#..##.#.#.#.#####.#.#
#..#...###.###.#.#.#.
###...##.#.###.###...
........#######.###.#
#######...#.#.#.###.#
#.....#.##.#.#.#.#.#.
#.###.#....#.#...#.##
#.###.#..##.##..#.##.
#.###.#.#.#.#.#.#.###
#.....#.#....#.###...
#######.#....#.##...#
"""
#: By version, bytes that fill it and mask: the first half of the modules' SHA-256.
KNOWN = {
    (1, 17, 1): "cc9b5481c010bccd482b9255d463c50c",
    (2, 32, 2): "75b53ac789ffd1f43ae8324c12002db9",
    (3, 53, 3): "051acb788ccd5e1a3593fbd5142f5945",
    (4, 78, 4): "3f0c777941f2cbcf02d9fe81177949ef",
    (5, 106, 5): "4f46d650fc17aaa0898979261058aea2",
    (6, 134, 6): "7728dd7d0cec38ec8165bf332279b4d7",
    (7, 154, 7): "5a2b9d77f63cfd4cdc9b1f22dcfa0961",
    (8, 192, 0): "85bd3583c0f4661bf13184304a00b3a9",
    (9, 230, 1): "91f233f64045a22f28f38db7603c100e",
    (10, 271, 2): "1ff9777d8a6c2a444b5b26f973d48e07",
    (11, 321, 3): "a8c631f86a4a9a19cd52004cff768bd3",
    (12, 367, 4): "54b93baa332afb480c03a1ce482412a0",
    (13, 425, 5): "11926d64211501ea6de435f95d9b29a3",
    (14, 458, 6): "090b4414063300e2c86d4b6b050421af",
    (15, 520, 7): "8dfecce8f3a82ca1819bee801c28210f",
    (16, 586, 0): "b4506506306bf84fddfcd005689af389",
    (17, 644, 1): "a411687136c0c93c10f08dc7efcb8559",
    (18, 718, 2): "f4939158061fb5a7e8251baa5afe1371",
}


def modules(picture: str) -> list[list[bool]]:
    return [[module == "#" for module in row] for row in picture.split()]


def test_a_small_symbol_is_that_of_another_encoder() -> None:
    assert symbol(b"melisma melisma m", mask=1).tolist() == modules(SYMBOL)


@pytest.mark.parametrize(("version", "size", "mask"), KNOWN)
def test_full_symbols_of_every_version_are_those_of_another_encoder(
    version: int, size: int, mask: int
) -> None:
    found = symbol((b"melisma " * 100)[:size], mask)
    assert len(found) == 17 + 4 * version
    digest = hashlib.sha256(found.astype(np.uint8).tobytes()).hexdigest()
    assert digest.startswith(KNOWN[version, size, mask])


def test_the_mask_chosen_is_one_of_the_eight() -> None:
    found = symbol(b"https://192.168.1.20:8765/join")
    masked = [symbol(b"https://192.168.1.20:8765/join", mask) for mask in range(8)]
    assert any((found == one).all() for one in masked)


def test_more_than_fits_is_refused() -> None:
    most = max(size for _, size, _ in KNOWN)
    assert len(symbol(bytes(most))) == 17 + 4 * len(BLOCKS)
    with pytest.raises(ConfigError, match=f"{most + 1} bytes .* {most} are the most"):
        symbol(bytes(most + 1))


def test_half_blocks_are_the_symbol_with_its_quiet_zone() -> None:
    upper, lower = {"█", "▀"}, {"█", "▄"}
    lines = drawn("https://127.0.0.1:8765/join").splitlines()
    light = [[c in half for c in line] for line in lines for half in (upper, lower)]
    expected = np.pad(symbol(b"https://127.0.0.1:8765/join"), QUIET)
    assert (~np.array(light))[: len(expected)].tolist() == expected.tolist()
