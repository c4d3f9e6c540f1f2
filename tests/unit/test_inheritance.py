"""What ranks take over from the launcher's environment."""

from __future__ import annotations

import os

import pytest

from ckptbench.frameworks.determinism import LIBRARIES, settle_libraries
from ckptbench.launch.inheritance import MORE, inherited, recorded

TAKEN = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "NCCL_DEBUG": "INFO",
    "OMP_PROC_BIND": "close",
    "SLURM_JOB_ID": "7",
    "SLURMD_NODENAME": "n1",
    "PE_HOSTFILE": "/sge/hosts",
}
LEFT = {
    "https_proxy": "proxy:3128",
    "NO_PROXY": "*",
    "SBATCH_ACCOUNT": "a",
    "MY_DATA": "/data",
    "PATHOLOGY": "x",
}


def test_ranks_take_over_what_libraries_and_schedulers_read_and_no_more() -> None:
    assert inherited({**TAKEN, **LEFT}) == TAKEN


def test_deterministic_mode_keeps_a_variable_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"MKL_CBWR": "AVX2"})
    settle_libraries()
    assert os.environ == {**LIBRARIES, "MKL_CBWR": "AVX2"}


def test_more_variables_are_taken_over_where_they_are_named() -> None:
    more = {MORE: "MY_* https_proxy"}
    assert inherited({**TAKEN, **LEFT, **more}) == {
        **TAKEN,
        **more,
        "MY_DATA": "/data",
        "https_proxy": "proxy:3128",
    }


SETTINGS = {
    "CUDA_VISIBLE_DEVICES": "0,1",
    "FI_PROVIDER": "efa",
    "GLOO_SOCKET_IFNAME": "ib0",
    "MKL_NUM_THREADS": "4",
    "NCCL_ALGO": "Ring",
    "OMPI_MCA_btl": "self,tcp",
    "OMP_PROC_BIND": "close",
    "PATH": "/bin",
    "PBS_JOBID": "7.server",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "UCX_TLS": "rc",
    MORE: "HF_* MY_DATA",
}
SECRETS = (
    # of the schedulers and of what starts ranks
    *("PBS_JOBCOOKIE", "OMPI_MCA_orte_precondition_transports", "PMIX_SERVER_URI", "SLURM_JWT", "SLURM_PMIXP_AUTH"),
    *("CKPTBENCH_TOKEN", "CKPTBENCH_PW", "SGE_CERT_KEY", "CRAY_AUTH_COOKIE", "I_MPI_HYDRA_AUTH"),
    # users' own that begin as a library's or a scheduler's
    *("TF_VAR_private_key", "TF_VAR_db_pass", "TF_AUTH", "NCCL_PAT", "OMP_DB_PWD", "UCX_API_KEY", "TORCH_LICENSE_KEY", "FI_PASS"),
    *("JAX_REGISTRY_COOKIE", "LD_SECRET", "PYTHONKEYRING_PASSWORD", "PBS_O_MY_SECRET", "SLURM_ENTRY_PASSPHRASE"),
    # passed on because CKPTBENCH_INHERIT says so
    *("HF_TOKEN", "HF_HUB_CREDENTIALS", "MY_DATA"),
)  # fmt: skip


def test_what_changes_a_figure_is_recorded() -> None:
    assert recorded({**SETTINGS, "HOME": "/home/me", "USER": "me"}) == SETTINGS


def test_no_value_of_a_secret_is_recorded_of_whatever_name() -> None:
    found = recorded({**SETTINGS, **dict.fromkeys(SECRETS, "hunter2")})
    assert "hunter2" not in found.values()
    assert {name: found[name] for name in SETTINGS} == SETTINGS
    assert found["UCX_API_KEY"] == "...", "but that it was there"


@pytest.mark.parametrize(
    ("value", "cut"),
    [
        ("https://me:hunter2@host/simple", "https://...@host/simple"),
        ("a,http://hunter2@host b", "a,http://...@host b"),
        ("https://me:hunter2/@host", "https://...@host"),
        ("https://host/x?user=me&access_token=hunter2&n=1", "https://host/x?user=me&access_token=...&n=1"),
        ("s3://bucket?X-Amz-Signature=hunter2", "s3://bucket?X-Amz-Signature=..."),
        ("/lib:/usr/lib@2", "/lib:/usr/lib@2"),
    ],
)  # fmt: skip
def test_users_and_keys_are_cut_from_addresses(value: str, cut: str) -> None:
    assert recorded({"PYTHONPATH": value, "NCCL_CONF_FILE": value}) == {
        "NCCL_CONF_FILE": cut,
        "PYTHONPATH": cut,
    }
