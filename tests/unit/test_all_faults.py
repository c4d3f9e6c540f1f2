"""Whatever a value of a file is, it is read or refused by the name of its field."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ckptbench.common.errors import CkptbenchError, ConfigError, DataError, all_of
from ckptbench.config.planning import plan_study
from ckptbench.decide.failure_files import read_failure_files
from ckptbench.decide.rates import read_rate, read_rates
from ckptbench.decide.user_costs import read_user_costs

LOG = {"title": "trial", "counts": "failures", "log": "log.csv", "gpus": 64, "from": "2004-01-01", "to": "2005-01-01"}  # fmt: skip
COSTS = {
    "title": "mine", "gpus": 8, "step_s": 0.5, "steps_per_epoch": 100, "interval": "5 steps",
    "strategies": [{"name": "save", "stall_s": 3.0, "durable_s": 4.0, "shared_every": 2, "shared_durable_s": 9.0, "bytes": 5}],
    "recoveries": [{"name": "restart", "down_s": {"value": 60.0, "lo": 50.0, "hi": 80.0}, "survived": 0.5, "pause_s": 1.0}],
}  # fmt: skip
DECISION = {"rate": "llama3", "rates": "config/failures", "gpus": [1024], "gpus_per_node": 8, "numbers": "config/costs-example.yaml"}  # fmt: skip
RATES = [
    {"title": "a", "counts": "all", "failures": 4, "days": 30.0, "gpus": 64},
    {"title": "a", "counts": "all", "mean_hours": 3.0, "gpus": 64},
    {"title": "a", "counts": "all", "mean_gpu_hours": 300.0},
]
WRONG = [-5, 0, float("nan"), float("inf"), -float("inf"), "64", True, [], {}, 10**400, "a\0b", {"value": 1}]  # fmt: skip


def test_the_files_of_all_rates_are_told_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        rate = {"title": name, "counts": "all", "mean_gpu_hours": -1, "gpus": 0}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(rate))
    with pytest.raises(ConfigError) as caught:
        read_rates(tmp_path)
    words = str(caught.value).splitlines()
    assert [line.partition(".yaml: ")[2].split()[0] for line in words] == ["gpus", "mean_gpu_hours"] * 2  # fmt: skip


def test_a_rate_that_no_file_has_is_refused_with_those_there_are(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(RATES[2]))
    with pytest.raises(
        ConfigError, match=r"decision.rate is 'c': .* no file of this name: use 'a' or 'b'"
    ):
        read_failure_files(tmp_path, "c")


def test_costs_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    strategies = [{"name": "save", "stall_s": 3, "durable_s": 1}]
    (tmp_path / "costs.yaml").write_text(yaml.safe_dump(COSTS | {"strategies": strategies}))
    with pytest.raises(ConfigError) as caught:
        read_user_costs(tmp_path / "costs.yaml")
    assert "strategies[0].durable_s is 1: durable before training goes on" in str(caught.value)


def places(content: object, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where each value lies, of lists and mappings too."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()  # fmt: skip
    return [at, *(place for key, each in inner for place in places(each, (*at, key)))]


def changed(content: Any, at: tuple[Any, ...], value: object) -> Any:
    if not at:
        return value
    copy = dict(content) if isinstance(content, dict) else list(content)
    copy[at[0]] = changed(content[at[0]], at[1:], value)
    return copy


def read_decision(content: Any, folder: Path) -> object:
    config, _ = plan_study({"decision": content}, [], folder)
    return read_failure_files(Path(config.decision.rates), config.decision.rate)


def read_costs(content: Any, folder: Path) -> object:
    (folder / "costs.yaml").write_text(yaml.safe_dump(content))
    return read_user_costs(folder / "costs.yaml")


def read_own_rate(content: Any, folder: Path) -> object:
    (folder / "own.yaml").write_text(yaml.safe_dump(content))
    return read_rate(folder / "own.yaml")


FILES = [(DECISION, read_decision), (COSTS, read_costs), *((rate, read_own_rate) for rate in RATES)]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:20])
@pytest.mark.parametrize(("content", "read"), FILES, ids=["decision", "costs", *"123"])
def test_whatever_a_value_is_it_is_read_or_refused_by_name(
    tmp_path: Path, content: dict[str, Any], read: Callable[[Any, Path], object], wrong: object
) -> None:
    taken = []
    for at in places(content)[1:]:
        try:
            read(changed(content, at, wrong), tmp_path)
        except CkptbenchError as error:
            assert str(next(part for part in at[::-1] if isinstance(part, str))) in str(error)  # noqa: PT017
        else:
            taken.append(at)
    numbers = {at for at in places(content) if type(value_of(content, at)) in (int, float)}
    if type(wrong) is not int:
        assert not numbers & set(taken), "a number that is none was taken"
    if wrong == -5:
        assert not numbers & set(taken)


def value_of(content: Any, at: tuple[Any, ...]) -> object:
    for part in at:
        content = content[part]
    return content


@pytest.mark.parametrize("name", ["log.csv", "log.yaml", "costs.yaml"])
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "log.yaml").write_text(yaml.safe_dump(LOG))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    read = read_user_costs if name == "costs.yaml" else read_rate
    with pytest.raises(CkptbenchError, match=rf"{name}: cannot be read: it is no regular file; c"):
        read(tmp_path / ("costs.yaml" if name == "costs.yaml" else "log.yaml"))


def test_errors_of_several_checks_are_one_error() -> None:
    def fails(words: str) -> int:
        raise DataError(words)

    assert all_of([lambda: 1, lambda: 2]) == [1, 2]
    with pytest.raises(DataError, match=r"^one\ntwo$"):
        all_of([lambda: fails("one"), lambda: 1, lambda: fails("two"), lambda: fails("one")])
