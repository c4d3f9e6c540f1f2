"""What ranks take over from the environment of the launcher, and so of the shell, site or scheduler that started it."""

from __future__ import annotations

import re
from collections.abc import Mapping

MORE = "CKPTBENCH_INHERIT"
"""Names more variables, separated by blanks; `*` stands for any letters."""
INHERITED = (
    # programs, files and language
    *("PATH", "HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "SHELL", "TMPDIR", "TMP", "TEMP"),
    *("TZ", "LANG", "LC_*", "XDG_*", "KRB5*"),
    # libraries, Python and memory
    *("LD_*", "PYTHON*", "MALLOC_*", "GLIBC_TUNABLES", "TCMALLOC_*"),
    # threads and numerical libraries
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "NUMEXPR_*", "DNNL_*", "ONEDNN_*"),
    # accelerators
    *("CUDA_*", "CUDNN_*", "CUBLAS_*", "NVIDIA_*", "NCCL_*", "HSA_*", "HIP_*", "ROCR_*", "ROCM_*", "MIOPEN_*"),
    # frameworks
    *("TORCH*", "PYTORCH_*", "GLOO_*", "TP_*", "TF_*", "XLA_*", "KERAS_*", "JAX_*", "CHAINER*", "CUPY_*", "HOROVOD_*"),
    # messages between ranks
    *("MPI*", "OMPI_*", "PRTE_*", "PMI*", "HYDRA_*", "I_MPI_*", "UCX_*", "FI_*", "PSM*", "CRAY*", "PALS_*"),
    # the job that this run has, without which a scheduler starts no rank
    *("SLURM*", "SRUN_*", "PBS_*", "NCPUS", "SGE_*", "JOB_*", "PE", "PE_HOSTFILE", "NSLOTS", "NHOSTS", "NQUEUES"),
    *("QUEUE", "REQUEST", "RESTARTED", "ARC", "CKPTBENCH_*"),
)  # fmt: skip
"""All else stays behind: above all a site's proxy. Ranks talk to one another alone. The gRPC of TensorFlow would ask the
proxy for them, and wait for it until the time limit."""
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|JWT|API_?KEY", re.IGNORECASE)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """What ranks take over."""
    chosen = (*INHERITED, *environment.get(MORE, "").split())
    pattern = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in chosen))
    return {name: value for name, value in environment.items() if pattern.fullmatch(name)}


def recorded(environment: Mapping[str, str]) -> dict[str, str]:
    """The same for the manifest, by name: of a secret no more than that it was there."""
    taken = inherited(environment)
    return {name: "..." if _SECRET.search(name) else taken[name] for name in sorted(taken)}
