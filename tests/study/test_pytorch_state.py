"""The own strategies save and load what real states of PyTorch have: small types of numbers, other orders in memory, ties."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import Found, part_of, run_scenario
from selection import RANKS

from ckptbench.matrix.registry import FRAMEWORKS

SCRIPT = Path(__file__).with_name("pytorch_state.py")
FRAMEWORK = "pytorch"
OWN = ("sharded", "async", "deepfreeze", "async by NumPy", "deepfreeze by NumPy")
KINDS = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "channels_last",
    "channels_last bfloat16",
    "tied",
)
TIED = [f"{part}/norm{number}.shift" for part in ("model", "optimizer") for number in (1, 2)]
"""Second names of tensors."""
pytestmark = pytest.mark.frameworks(FRAMEWORK)


@pytest.fixture(scope="module", params=RANKS)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    folder = tmp_path_factory.mktemp("states")
    return run_scenario(FRAMEWORK, "states", folder, ranks=request.param, script=SCRIPT)


@pytest.mark.parametrize("way", [*OWN, *FRAMEWORKS[FRAMEWORK].formats])
@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_is_loaded_as_it_was_and_safetensors_reads_it(
    found: list[Found], kind: str, way: str
) -> None:
    for rank in found:
        of_one = part_of(rank, f"{kind}/{way}")
        assert of_one["saved"].size > 10
        assert list(of_one["loaded"]) == []
        assert list(of_one["read"]) == []


@pytest.mark.parametrize("way", [*OWN, *FRAMEWORKS[FRAMEWORK].formats])
def test_a_tensor_with_two_names_is_one_again_when_it_is_loaded(
    found: list[Found], way: str
) -> None:
    for rank in found:
        of_one = part_of(rank, f"tied/{way}")
        assert list(of_one["tied"]) == TIED


@pytest.mark.parametrize("way", OWN)
def test_a_tensor_with_two_names_is_written_once(found: list[Found], way: str) -> None:
    for rank in found:
        of_one = part_of(rank, f"tied/{way}")
        assert set(of_one["saved"]) - set(of_one["once"]) == set(TIED)
