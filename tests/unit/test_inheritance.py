"""What ranks take over from the launcher's environment."""

from __future__ import annotations

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


def test_more_variables_are_taken_over_where_they_are_named() -> None:
    more = {MORE: "MY_* https_proxy"}
    assert inherited({**TAKEN, **LEFT, **more}) == {
        **TAKEN,
        **more,
        "MY_DATA": "/data",
        "https_proxy": "proxy:3128",
    }


def test_a_secret_is_recorded_by_its_name_alone() -> None:
    environment = {
        "SLURM_JWT": "ey",
        MORE: "HF_TOKEN *_KEY",
        "HF_TOKEN": "hf",
        "AWS_API_KEY": "k",
        "PATH": "/bin",
    }
    assert recorded(environment) == {
        "AWS_API_KEY": "...",
        MORE: "HF_TOKEN *_KEY",
        "HF_TOKEN": "...",
        "PATH": "/bin",
        "SLURM_JWT": "...",
    }
