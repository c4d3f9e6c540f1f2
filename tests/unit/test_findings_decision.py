"""The sentences on the decision: the numbers of the tables, and what is projected is always said to be."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from decision_tables import checked, decided

from ckptbench.decide.choices import Choices
from ckptbench.decide.decision import decide
from ckptbench.decide.given import read_given
from ckptbench.decide.inputs import UNKNOWN_SLOWDOWN
from ckptbench.decide.rates import read_rates
from ckptbench.decide.validate import VALIDATION
from ckptbench.figures.findings import decision
from ckptbench.figures.findings.decision import OTHER, duration, page, sentences
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
    assert OTHER in told
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


def told_of(interval: str, gpus: list[int], folder: Path, failures: int = 5) -> list[str]:
    """The sentences on costs that a user gives, with this interval in use."""
    costs = {
        "title": "trial", "gpus": 1024, "step_s": 15, "steps_per_epoch": 1000, "interval": interval,
        "strategies": [{"name": "blocking", "stall_s": 10}], "recoveries": [{"name": "restart", "down_s": 600}],
    }  # fmt: skip
    (folder / "costs.yaml").write_text(yaml.safe_dump(costs))
    (folder / "rates").mkdir()
    rate = {
        "title": "trial",
        "counts": "interruptions",
        "failures": failures,
        "days": 30.44,
        "gpus": 800,
    }
    (folder / "rates" / "trial.yaml").write_text(yaml.safe_dump(rate))
    choices = Choices(rate="trial", gpus=tuple(gpus), survivable=0.77, replacement_minutes=60.0)
    tables = decide(read_given(folder / "costs.yaml"), read_rates(folder / "rates"), choices)
    return list(sentences({**tables, "validation": VALIDATION.rows([])}))


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ("100 steps", "is within 1 % of the best. The 100 steps in use are as good."),
        ("1 step", "is within 1 % of the best. The 1 step in use loses "),
        ("9000 steps", "is within 1 % of the best. The 9,000 steps in use lose "),
    ],
)
def test_it_says_what_the_interval_in_use_loses(tmp_path: Path, interval: str, words: str) -> None:
    first = told_of(interval, [2048], tmp_path)[0]
    assert words in first
    assert first.count("in use") == 1
    assert re.search(r"(as good|loses? [\d.]+ %( \[[\d.]+, [\d.]+\])?)\.$", first)


def test_an_interval_in_use_that_is_one_epoch_is_told_once(tmp_path: Path) -> None:
    assert "in use" not in told_of("1000 steps", [2048], tmp_path)[0]


def test_a_measured_interval_is_not_said_to_be_in_use() -> None:
    assert "in use" not in " ".join(sentences(decided("measured")))


def test_where_next_to_nothing_gets_done_no_interval_is_recommended(tmp_path: Path) -> None:
    few, many = told_of("24 steps", [131072], tmp_path, failures=200)[:2]
    assert "is within 1 % of the best" in few
    assert re.search(
        r"^Projected to 131,072 GPUs, .* next to nothing gets done: even a checkpoint every \d+ steps? \(.*\), the best interval, loses 99\.\d+ %",
        many,
    )
    assert "is within 1 %" not in many
    assert "in use" not in many
    assert decision.NEXT_TO_NOTHING == 0.01
    text = (Path(__file__).resolve().parents[2] / "docs" / "decision.md").read_text(
        encoding="utf-8"
    )
    assert "best interval has a goodput below 1 %" in text
