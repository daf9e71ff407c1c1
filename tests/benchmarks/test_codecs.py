"""How small, exact and fast codecs are, measured."""

import bench_codecs
import pytest
import torch
from tests.benchmarks.printed import row, run

from melisma.learning.codecs import codec_of


@pytest.mark.slow
def test_bench_codecs_has_a_row_for_each_codec() -> None:
    text = run("bench_codecs.py", "--quick")
    # Times smaller, over the ideal, error, and two speeds. Of powersgd: 573,910 values
    # by 4·(1284 + 800 + 400 + 110) + 910 that are sent.
    for name, smaller, least, most in (
        *(("fp32", 4 / 4, 0, 0), ("fp16", 2, 1e-5, 1e-2), ("bf16", 2, 1e-4, 1e-2)),
        *(("int8", 4 / 1.008, 1e-3, 0.1), ("int4", 8 / 1.016, 0.01, 1)),
        *(
            ("top-k 1 %", 78.9, 0.1, 1),
            ("top-k 25 %", 3.56, 0.1, 1),
            ("random-k", 100, 1, 20),
            ("powersgd", 50.85, 0.1, 1),
        ),
    ):
        found = row(text, f"│ {name} ")
        times, size, error, *speeds = found[-5:]
        assert times == pytest.approx(smaller, rel=0.02)
        assert 1 <= size <= 1.02
        assert least <= error <= most
        assert len(speeds) == 2
        assert min(speeds) > 0


def test_a_missed_bar_is_named() -> None:
    good = bench_codecs.Row("int8", 4.0, 1.0, 0.01, encode=1.2, decode=3.0)
    assert list(good.missed()) == []
    slow, large = good._replace(decode=0.9), good._replace(size=1.03)
    assert list(slow.missed()) == ["int8 is below 1 GB/s"]
    assert list(large.missed()) == ["int8 has 1.030 times its ideal size"]


def test_the_ideal_of_powersgd_leaves_out_what_does_not_become_smaller() -> None:
    like = {"m": torch.ones(30, 20), "thin": torch.ones(3, 3), "b": torch.ones(5)}
    # 2·(30 + 20) numbers, and 9 + 5 as they are.
    assert bench_codecs.ideal_bytes(codec_of("powersgd 2"), like) == 4 * 114
