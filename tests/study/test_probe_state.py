"""The state of a training, as `ckptbench-probe check` reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.study.probed_training import plain, warm

pytestmark = pytest.mark.frameworks("pytorch")
LINEAR = ["0.weight", "0.bias"]
SLOTS = ["", "/step", "/exp_avg", "/exp_avg_sq"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = Path(__file__).with_name("probe_state.py")
    out = plain(tmp_path_factory.mktemp("state"), warm("pytorch", "plain"), str(script))
    content: dict[str, Any] = json.loads(out)
    return content


def test_digests_are_the_same_exactly_if_the_bits_are(seen: dict[str, Any]) -> None:
    assert [name for name, right in seen["digests"].items() if not right] == []


def test_tensors_have_the_names_of_their_model(seen: dict[str, Any]) -> None:
    """The second model has the same names as the first; the third optimizer's parameter belongs to none."""
    parameters = [*LINEAR, "1.weight", "1.bias"]
    buffers = ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert seen["names"]["of the second"] == ["1:0.weight", "1:0.bias"]
    assert seen["names"]["all"] == [
        *(name + slot for name in parameters for slot in SLOTS),
        *seen["names"]["of the second"],
        "2:0.0",
        *buffers,
    ]


def test_names_that_look_alike_leave_no_tensor_out(seen: dict[str, Any]) -> None:
    assert seen["colliding"]["names"] == seen["colliding"]["tensors"]


def test_rates_and_updates_are_those_of_the_optimizers(seen: dict[str, Any]) -> None:
    assert seen["names"]["rates"] == ["0.001", "0.5", "0.1"]
    assert seen["names"]["step"] == ["1"]


def test_a_draw_changes_the_random_state_that_it_draws_from(seen: dict[str, Any]) -> None:
    assert seen["draws"] == {"python": ["python"], "numpy": ["numpy"], "torch": ["torch"], "none": []}  # fmt: skip
