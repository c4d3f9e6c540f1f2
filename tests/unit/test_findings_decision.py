"""The sentences on the decision: the numbers of the tables, and what is projected is always said to be."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from decision_tables import checked, decided

from ckptbench.decide.inputs import UNKNOWN_SLOWDOWN
from ckptbench.figures.findings import decision
from ckptbench.figures.findings.decision import duration, page, sentences
from ckptbench.figures.findings.page import page as findings_page


def test_the_first_sentence_says_how_often_here() -> None:
    tables = decided("measured")
    first = next(sentences(tables))
    advice = tables["advice"]
    row = advice[(advice["gpus"] == 2) & (advice["rate"] == "llama3") & advice["wins"]].iloc[0]
    assert first.startswith("On this machine, at 2 ranks, with PyTorch, deepfreeze, ulfm and a failure every 2.9 years (Llama 3")  # fmt: skip
    assert f"a checkpoint every {float(f'{row.best_steps:.3g}'):,.0f} steps" in first
    assert re.search(r"loses [\d.]+ % \[[\d.]+, [\d.]+\]; every epoch \(8,000 steps\) would lose", first)  # fmt: skip


def test_every_number_of_gpus_beyond_the_measured_is_said_to_be_projected() -> None:
    told = list(sentences(decided("several")))
    beyond = [each for each in told if "1,024 GPUs" in each or "131,072 GPUs, with" in each]
    assert len(beyond) == 4
    assert all(each.startswith("Projected to ") for each in beyond)
    assert decision.ASSUMED in told


def test_it_says_what_wins_from_how_many_gpus_on() -> None:
    (winning,) = (each for each in sentences(decided("measured")) if "the highest goodput" in each)
    assert winning.startswith("PyTorch: up to ")
    assert winning.count("no strategy and recovery is shown to be better than all others") == 1
    assert winning.endswith("the highest goodput is that of deepfreeze, ulfm.")


def test_a_winner_that_changes_with_the_gpus_is_told_in_stretches() -> None:
    tables = decided("measured")
    scale = tables["scale"]
    many = scale["gpus"] > 4000
    restart = (scale["strategy"] == "native") & (scale["recovery"] == "restart")
    scale["wins"] = (many & scale["wins"]) | (~many & restart)
    scale["alone"] = scale["wins"] * 1.0
    (winning,) = (each for each in sentences(tables) if "the highest goodput" in each)
    assert "up to 2,048 GPUs the highest goodput is that of native, restart" in winning
    assert "from 4,096 GPUs on the highest goodput is that of deepfreeze, ulfm" in winning


def test_a_setup_that_others_may_equal_is_not_said_to_be_the_best() -> None:
    tables = decided("measured")
    tables["scale"]["alone"] = 0.5
    (told,) = (each for each in sentences(tables) if each.startswith("PyTorch: "))
    assert told == "PyTorch: at every number of GPUs up to 131,072 no strategy and recovery is shown to be better than all others by 0.1 points."  # fmt: skip


def test_what_was_not_measured_is_said() -> None:
    told = " ".join(sentences(decided("measured")))
    assert "No restart from a version was measured with any setup" in told
    assert "No restart from a version" not in " ".join(sentences(decided("given")))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stall_s_lo": math.nan, "stall_s_hi": math.nan}, "Some costs have no interval"),
        ({"note": UNKNOWN_SLOWDOWN}, "Slower steps during a save are taken as none"),
        ({"slower": 1.25, "slower_lo": 1.1, "slower_hi": 1.4}, "a step takes 1.25 times [1.10, 1.40] as long with"),
        ({"slower": 0.9, "slower_lo": 0.5, "slower_hi": 1.6}, "This is counted, as at least 1."),
    ],
)  # fmt: skip
def test_it_says_what_to_know_of_the_costs(changes: dict[str, Any], words: str) -> None:
    known = decided("measured")
    costs = known["decision_costs"].assign(durable_s_lo=50.0, step_s_lo=2.0)
    assert words not in " ".join(sentences({**known, "decision_costs": costs}))
    told = " ".join(sentences({**known, "decision_costs": costs.assign(**changes)}))
    assert words in told


def test_a_survivable_part_is_said_where_survivors_win() -> None:
    assert any("77 % of all failures" in each for each in sentences(decided("measured")))


@pytest.mark.parametrize(("holds", "words"), [(4, "in 4 of 4 setups"), (3, "in 3 of 4 setups")])
def test_a_validation_says_how_many_hold(holds: int, words: str) -> None:
    told = list(sentences({**decided("measured"), "validation": checked(holds=holds)}))
    assert words in told[-1]


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (0.005, "18 s"),
        (0.5, "30 minutes"),
        (3.1, "3.1 hours"),
        (100.0, "4.2 days"),
        (50_000.0, "5.7 years"),
    ],
)
def test_durations_are_in_units_that_people_use(hours: float, words: str) -> None:
    assert duration(hours) == words


def test_the_page_alone_and_the_head_of_the_findings_say_the_same() -> None:
    tables = decided("measured")
    alone = page(tables)
    assert alone.startswith("How often to checkpoint\n-----")
    all_found = findings_page(tables)
    first = alone.splitlines()[5]
    assert first in all_found
    assert all_found.index(first) < all_found.index("**What checkpoints cost**")


def test_nothing_to_decide_from_is_said() -> None:
    assert decision.NOTHING in " ".join(page(decided("empty")).split())
    assert decision.TITLE not in findings_page(decided("empty"))
