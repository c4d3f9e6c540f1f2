"""What ranks take over from the environment of the launcher, and so of the shell, site or scheduler that started it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
    # object stores
    *("AWS_*", "FSSPEC_*"),
    # messages between ranks
    *("MPI*", "OMPI_*", "PRTE_*", "PMI*", "HYDRA_*", "I_MPI_*", "UCX_*", "FI_*", "PSM*", "CRAY*", "PALS_*"),
    # the job that this run has, without which a scheduler starts no rank
    *("SLURM*", "SRUN_*", "PBS_*", "NCPUS", "SGE_*", "JOB_*", "PE", "PE_HOSTFILE", "NSLOTS", "NHOSTS", "NQUEUES"),
    *("QUEUE", "REQUEST", "RESTARTED", "ARC", "CKPTBENCH_*"),
)  # fmt: skip
"""All else stays behind: above all a site's proxy. Ranks talk to one another alone. The gRPC of TensorFlow would ask the
proxy for them, and wait for it until the time limit."""

RECORDED = (
    # programs, files and memory
    *("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_BIND_NOW", "TMPDIR", "LANG", "LC_ALL"),
    *("PYTHONPATH", "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONUNBUFFERED", "PYTHON_GIL"),
    *("MALLOC_*_", "MALLOC_ARENA_MAX", "MALLOC_CONF", "GLIBC_TUNABLES"),
    # threads and numerical libraries
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "NUMEXPR_*", "DNNL_*", "ONEDNN_*"),
    # accelerators
    *("CUDA_*", "CUDNN_*", "CUBLAS_*", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE", "NCCL_*"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_*", "MIOPEN_*"),
    # frameworks
    *("TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*", "GLOO_*", "TP_SOCKET_IFNAME", "XLA_*", "JAX_*", "KERAS_BACKEND"),
    *("TF_ENABLE_*", "TF_NUM_*", "TF_XLA_*", "TF_GPU_*", "TF_CUDNN_*", "TF_DETERMINISTIC_OPS", "TF_FORCE_GPU_ALLOW_GROWTH"),
    *("TF_USE_*", "CHAINER_*", "CHAINERMN_*", "CUPY_*", "HOROVOD_*"),
    # object stores
    *("AWS_ENDPOINT_URL*", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE"),
    # messages between ranks
    *("OMPI_MCA_btl*", "OMPI_MCA_pml*", "OMPI_MCA_mtl*", "OMPI_MCA_coll*", "OMPI_MCA_osc*", "OMPI_MCA_mpi_*"),
    *("MPIR_CVAR_*", "MPICH_*", "HYDRA_LAUNCHER*", "HYDRA_IFACE", "I_MPI_*", "UCX_*", "FI_*", "PSM2_*", "PSM3_*"),
    # the scheduler's job: its place and its size
    *("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_JOB_PARTITION", "SLURM_CLUSTER_NAME"),
    *("SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "SLURM_CPU_BIND", "SLURM_CPU_FREQ_REQ", "SLURM_HINT"),
    *("SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_MEM_PER_NODE", "SLURM_THREADS_PER_CORE", "SLURM_RESTART_COUNT"),
    *("PBS_JOBID", "PBS_QUEUE", "PBS_ARRAY_INDEX", "NCPUS"),
    *("JOB_ID", "SGE_TASK_ID", "SGE_BINDING", "SGE_HGR_*", "QUEUE", "PE", "NSLOTS", "NHOSTS", "RESTARTED"),
    *("CKPTBENCH_LAUNCHER_HOST", "CKPTBENCH_COPY", MORE),
)  # fmt: skip
"""What a manifest has: the names that are known to change a figure. Whatever else a site or a user sets may be a secret."""
_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|JWT|AUTH|COOKIE|(^|_)(PW|PWD|PASS|PAT)(_|$)|KEYS?(_|$)",
    re.IGNORECASE,
)
"""Names of which the value is not recorded, though a list has them: a user's own names may begin as a library's."""
_IN_ADDRESS = re.compile(
    r"(://)\S*@|([?&][^=&\s]*(?:token|key|secret|pass|auth|sig|cred)[^=&\s]*=)[^&\s]*",
    re.IGNORECASE,
)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """What ranks take over."""
    return _chosen(environment, (*INHERITED, *environment.get(MORE, "").split()))


def recorded(environment: Mapping[str, str]) -> dict[str, str]:
    """What the manifest says of it, by name. Of a secret it is no more than that it was there."""
    taken = _chosen(inherited(environment), RECORDED)
    return {name: "..." if _SECRET.search(name) else _cut(taken[name]) for name in sorted(taken)}


def _chosen(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Those with one of the names, in which `*` stands for any letters."""
    pattern = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names))
    return {name: value for name, value in environment.items() if pattern.fullmatch(name)}


def _cut(value: str) -> str:
    """Without the user, the password and the keys of addresses."""
    return _IN_ADDRESS.sub(lambda found: f"{found[1]}...@" if found[1] else f"{found[2]}...", value)
