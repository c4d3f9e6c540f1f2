"""The parts of a sentence."""

from __future__ import annotations

from ckptbench.answer.quantities import PERCENT
from ckptbench.answer.words import amount, every, listed


def test_a_number_of_a_table_is_said_with_its_interval() -> None:
    row = {"cost": 0.123, "cost_lo": 0.11, "cost_hi": 0.14, "alone": 0.2}
    assert amount(row, "cost", PERCENT) == "12.3 % [11.0, 14.0]"
    assert amount(row, "alone", PERCENT) == "20 %"


def test_counts_and_lists_in_words() -> None:
    assert [listed(words) for words in (["a"], ["a", "b"], ["a", "b", "c"], ["a, 1", "b"])] == ["a", "a and b", "a, b and c", "a, 1; b"]  # fmt: skip
    assert [every(number, "run") for number in (1, 2, 3)] == ["the only run", "both runs", "all 3 runs"]  # fmt: skip
