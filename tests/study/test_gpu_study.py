"""The study of a GPU on this CPU, with tiny models: its strategies, frameworks, proofs and tables."""

from __future__ import annotations

import pytest
import yaml
from checkout import Checkout
from selection import FULL
from warm.environments import warm_environments

from ckptbench.config.expansion import expand
from ckptbench.config.study import load_config
from tests.gpu_study import on_cpu

pytestmark = pytest.mark.frameworks("pytorch", "pytorch_fsdp")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    folder = tmp_path_factory.mktemp("gpu") / "checkout"
    checkout = Checkout.make(folder, environments=warm_environments())
    (folder / "gpu.yaml").write_text(yaml.safe_dump(on_cpu(whole=FULL)))
    result = checkout.run(*([] if FULL else ["results/answer.txt"]), study="gpu.yaml")
    assert result.returncode == 0, result.stdout
    return checkout


def test_every_run_is_made_in_the_order_of_the_config(done: Checkout) -> None:
    seals = done.seals()
    assert sorted(seals, key=seals.__getitem__) == [
        cell.id for cell in expand(load_config(on_cpu(whole=FULL)))
    ]
    assert (done.folder / "results" / "answer.txt").stat().st_size


def test_killed_runs_give_the_same_bits_back_and_other_runs_have_no_digests(done: Checkout) -> None:
    proofs = done.table("resume_proof")
    assert proofs["bit_equal"].tolist() == [True, True]
    assert {*proofs["framework"]} == {"pytorch", "pytorch_fsdp"}
    seen = {*done.table("digests")["run"]}
    assert seen == {run for run in done.seals() if "deterministic" in run}


def test_what_a_gpu_alone_has_is_missing_on_a_cpu(done: Checkout) -> None:
    costs = done.table("strategies")
    assert costs["overhead"].notna().all()
    assert costs[["gpu_memory_bytes", "to_host_bytes_per_s"]].isna().all(axis=None)
