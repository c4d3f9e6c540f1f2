"""Costs that a user gives in a file: read as they are, and refused in one line where they are wrong."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from ckptbench.common.errors import ConfigError
from ckptbench.config.decision import DecisionSection
from ckptbench.decide.decision import left_out
from ckptbench.decide.inputs import GIVEN
from ckptbench.decide.user_costs import read_user_costs

EXAMPLE = Path(__file__).resolve().parents[2] / "config" / "costs-example.yaml"
SMALL = {
    "title": "mine",
    "gpus": 8,
    "step_s": 0.5,
    "steps_per_epoch": 100,
    "strategies": [{"name": "save", "stall_s": 3}],
    "recoveries": [{"name": "restart", "down_s": {"value": 60, "lo": 50, "hi": 80}}],
}


def written(folder: Path, **changes: object) -> Path:
    path = folder / "costs.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}), encoding="utf-8")
    return path


def test_each_strategy_has_a_row_with_each_recovery() -> None:
    costs = read_user_costs(EXAMPLE)
    for kind in ("strategy", "recovery"):
        assert costs[f"{kind}_name"].tolist() == costs[kind].tolist(), (
            "a user's name has no options"
        )
    assert len(costs) == 4
    assert set(costs["framework"]) == {GIVEN}
    assert set(costs["ranks"]) == {512}
    row = costs[(costs["strategy"] == "asynchronous") & (costs["recovery"] == "shrink")].iloc[0]
    assert (row["stall_s"], row["stall_s_lo"], row["stall_s_hi"]) == (2.0, 1.5, 3.0)
    assert (row["durable_s"], row["slowdown_s"], row["survived"]) == (90.0, 4.0, 1.0)
    assert not row["replaces"]
    assert row["interval"] == "s500"


def test_what_is_left_out_has_the_defaults_of_the_docs(tmp_path: Path) -> None:
    row = read_user_costs(written(tmp_path)).iloc[0]
    assert row["durable_s"] == row["stall_s"] == 3.0
    assert pd.isna(row["stall_s_lo"])
    assert (row["slowdown_s"], row["survived"], row["pause_s"]) == (0.0, 0.0, 0.0)
    assert row["replaces"]
    assert (row["shared_every"], row["shared_durable_s"], row["copied"]) == (1, 3.0, False)
    assert row["interval"] == "e1"
    assert "costs.yaml, not measured here" in row["source"]


def test_fewer_gpus_than_the_costs_are_of_are_left_out_with_a_line(tmp_path: Path) -> None:
    choices = DecisionSection(gpus=[4, 8, 16])
    (line,) = left_out(read_user_costs(written(tmp_path)), choices)
    assert line.startswith("decision.gpus has 4, and the costs are of 8 GPUs or more")
    assert left_out(read_user_costs(written(tmp_path)).iloc[:0], choices) == []


def test_levels_can_be_given(tmp_path: Path) -> None:
    levels = {"name": "levels", "stall_s": 0.5, "durable_s": 2, "shared_every": 20, "shared_durable_s": {"value": 90, "lo": 70, "hi": 120}, "copied": True}  # fmt: skip
    row = read_user_costs(written(tmp_path, strategies=[levels])).iloc[0]
    assert (row["shared_every"], row["copied"]) == (20, True)
    assert (row["shared_durable_s"], row["shared_durable_s_hi"]) == (90.0, 120.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step_s": "fast"}, "step_s"),
        ({"step_s": {"value": 3, "lo": 4, "hi": 5}}, "lo <= value <= hi"),
        ({"step_s": {"value": 3, "lo": 0, "hi": 5}}, "lo <= value <= hi"),
        ({"step_s": {"value": 3, "lo": 2, "hi": 10**9}}, "lo <= value <= hi"),
        ({"gpus": 0}, "gpus"),
        ({"strategies": []}, "strategies"),
        ({"strategies": [{"name": "save"}]}, "stall_s"),
        ({"strategies": [{"name": "save", "stall_s": 1, "shared_every": 0}]}, "shared_every"),
        ({"recoveries": [{"name": "x", "down_s": 3, "survived": 2}]}, "survived"),
        ({"recoveries": [{"name": "x"}]}, "recoveries[0].down_s"),
        ({"colour": "blue"}, "colour"),
        (
            {"storage": {"state_gb": 98}},
            "storage is {'state_gb': 98}: storage was removed after version 0.1: use --state, --bandwidth, --rank-bandwidth, --shared-by and --write-fixed",
        ),
        (
            {"strategies": [{"name": "save", "stall_s": 1, "asynchronous": True}]},
            "strategies[0].asynchronous is true: asynchronous was removed after version 0.1: leave it out; a save with durable_s goes on",
        ),
        ({"interval": "soon"}, "interval"),
        ({"interval": "never"}, "interval is 'never': use an interval"),
        ({"step_s": 0}, "use more than 0 seconds"),
        (
            {"strategies": [{"name": "save", "stall_s": 3, "durable_s": 2}]},
            "strategies[0].durable_s is 2: durable before",
        ),
        (
            {"strategies": [{"name": "save", "stall_s": 3, "shared_durable_s": 9}]},
            "or set shared_every",
        ),
        (
            {"strategies": [{"name": "save", "stall_s": 3, "shared_every": 5}]},
            "say in shared_durable_s",
        ),
        (
            {
                "strategies": [
                    {"name": "save", "stall_s": 3, "shared_every": 5, "shared_durable_s": 2}
                ]
            },
            "use at least durable_s",
        ),
        (
            {"strategies": [{"name": "save", "stall_s": 3}, {"name": "save", "stall_s": 1}]},
            "strategies[1].name is 'save': two have this name",
        ),
        (
            {"recoveries": [{"name": "x", "down_s": 3}, {"name": "x", "down_s": 4}]},
            "recoveries[1].name",
        ),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_file_and_field(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_user_costs(written(tmp_path, **changes))
    assert "costs.yaml" in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize("character", ["\x07", "\x85x\x7f", "\ud800", "\ue000"])
@pytest.mark.parametrize("field", ["title", "strategies", "recoveries"])
def test_a_name_that_no_reader_can_see_is_refused_in_one_line(
    field: str, character: str, tmp_path: Path
) -> None:
    name = f"a{character}b"
    named = name if field == "title" else [{**SMALL[field][0], "name": name}]  # type: ignore[index]
    path = tmp_path / "costs.yaml"
    path.write_text(yaml.safe_dump({**SMALL, field: named}, allow_unicode=False), encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        read_user_costs(path)
    assert len(str(refused.value).splitlines()) == 1
    assert field in str(refused.value)
    assert f"U+{ord(character[-1]):04X}" in str(refused.value)


@pytest.mark.parametrize(
    "name", ["学習", "שלום", "👩\u200d👩\u200d👧", "e\u0301", "a $5", "{x}", "_", "ไทย"]
)
def test_a_name_may_be_in_any_script(name: str, tmp_path: Path) -> None:
    costs = read_user_costs(
        written(tmp_path, title=f" {name}\n", strategies=[{"name": name, "stall_s": 1}])
    )
    assert (costs["model"][0], costs["strategy"][0]) == (name, name)


def test_two_names_that_figures_show_alike_are_refused(tmp_path: Path) -> None:
    both = [{"name": name, "stall_s": 1} for name in ("my save", "my_save")]
    with pytest.raises(ConfigError, match="two have this name"):
        read_user_costs(written(tmp_path, strategies=both))
