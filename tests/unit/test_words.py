"""Numbers, sizes and lists in words."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from ckptbench.answer.words import IMAGES, PERCENT, SECONDS, Unit, amount, listed, size


@pytest.mark.parametrize(
    ("value", "lo", "hi", "shown"),
    [
        (0.1234, 0.1101, 0.1402, "12.3 % [11.0, 14.0]"),
        (0.0283, 0.0072, 0.0481, "2.8 % [0.7, 4.8]"),
        (0.002, -0.004, 0.009, "0.2 % [-0.4, 0.9]"),
        (-0.055, -0.30, 0.20, "-6 % [-30, 20]"),
        (9.182, 3.513, 21.974, "900 % [400, 2200]"),
        (0.12, math.nan, math.nan, "12 %"),
        (-0.0512, math.nan, math.nan, "-5.1 %"),
        (1.78, math.nan, math.nan, "180 %"),
        (0.0, math.nan, math.nan, "0 %"),
        (0.41, -0.95, 15.1, "40 % [-100, 1500]"),
        (-0.41, -15.1, 0.95, "-40 % [-1500, 100]"),
        (0.003, -1.0, 1.0, "0 % [-100, 100]"),
        (0.0991081, 0.0991070, 0.0991091, "9.9108 %"),
        (0.10049, 0.10036, 0.10062, "10.049 % [10.036, 10.062]"),
    ],
)
def test_a_number_has_the_digits_that_its_interval_allows(
    value: float, lo: float, hi: float, shown: str
) -> None:
    assert amount({"x": value, "x_lo": lo, "x_hi": hi}, "x", PERCENT) == shown


def test_rounding_changes_a_number_by_at_most_a_twentieth_of_its_interval() -> None:
    random = np.random.default_rng(0)
    for _ in range(5000):
        width = 10 ** random.uniform(-5, 5)
        lo = random.normal() * 10 ** random.uniform(-5, 5)
        hi = lo + width
        value = random.uniform(lo, hi)
        text = amount({"x": value, "x_lo": lo, "x_hi": hi}, "x", Unit(""))
        shown = [float(number) for number in re.findall(r"[-\d.]+", text)]
        exact = [value, lo, hi][: len(shown)]
        allowed = (hi - lo) / 20 if len(shown) == 3 else max(abs(lo), abs(hi)) * 1e-4
        assert np.abs(np.subtract(shown, exact)).max() <= allowed * (1 + 1e-9), (text, exact)


def test_an_end_above_zero_is_not_shown_as_zero() -> None:
    assert amount({"x": 0.028, "x_lo": 0.0021, "x_hi": 0.431}, "x", SECONDS) == "0.028 s [0.002, 0.431]"  # fmt: skip
    assert amount({"x": 900.0, "x_lo": 200.0, "x_hi": 4500.0}, "x", IMAGES) == "900 images/s [200, 4500]"  # fmt: skip


def test_sizes_and_lists_in_words() -> None:
    assert [size(n) for n in (188_700_000, 53_400, 2.1e9, 1, 12)] == ["189 MB", "53.4 kB", "2.10 GB", "1 byte", "12 bytes"]  # fmt: skip
    assert [listed(words) for words in (["a"], ["a", "b"], ["a", "b", "c"], ["a, 1", "b"])] == ["a", "a and b", "a, b and c", "a, 1; b"]  # fmt: skip
