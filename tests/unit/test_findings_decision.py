"""The sentences on the decision: the numbers of the tables, and what is projected is always said to be."""

from __future__ import annotations

import re

import pytest
from decision_tables import checked, decided

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
    assert winning.startswith("PyTorch: the highest goodput is that of deepfreeze, ulfm at every number of GPUs up to 131,072 (in ")  # fmt: skip


def test_a_winner_that_changes_with_the_gpus_is_told_in_stretches() -> None:
    tables = decided("measured")
    scale = tables["scale"]
    many = scale["gpus"] > 4000
    restart = (scale["strategy"] == "native") & (scale["recovery"] == "restart")
    scale["wins"] = (many & scale["wins"]) | (~many & restart)
    (winning,) = (each for each in sentences(tables) if "the highest goodput" in each)
    assert "native, restart up to 2,048 GPUs" in winning
    assert "deepfreeze, ulfm from 4,096 GPUs on" in winning


def test_what_was_not_measured_is_said() -> None:
    told = " ".join(sentences(decided("measured")))
    assert "No failure was measured with any setup" in told
    assert "No failure was measured" not in " ".join(sentences(decided("given")))


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
    first = alone.splitlines()[3]
    assert first in all_found
    assert all_found.index(first) < all_found.index("**What checkpoints cost**")


def test_nothing_to_decide_from_is_said() -> None:
    assert decision.NOTHING in page(decided("empty"))
    assert decision.TITLE not in findings_page(decided("empty"))
