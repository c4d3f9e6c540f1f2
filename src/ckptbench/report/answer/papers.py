"""The experiments of the published studies: for each, what measures it here, what is the same, what differs, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = {
    "rojas": "Rojas et al. 2020, arXiv:2012.00825",
    "deepfreeze": "Nicolae et al. 2020, DeepFreeze, doi:10.1109/CCGrid49817.2020.00-76",
    "ulfm": "Amatya et al. 2017, arXiv:1709.03316",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment that a public text on a paper describes. None of them numbers its figures or tables."""

    paper: str
    shows: str
    study: str
    """File in config/studies, without `.yaml`."""
    figures: tuple[str, ...]
    tables: tuple[str, ...] = ()
    """Where no figure shows it."""
    runs: int
    written: str
    """Bytes of all checkpoints: their number times the tensors of each, uncompressed."""
    at_once: str
    """The most of them on the disk: one run at a time, or for GPUs as many as the profile `abci` has at once."""
    needs_gpus: bool = False
    two_cores: str
    node_hours: int
    """At most: every run to the limit of the profile `abci`."""
    same: str
    other: str


EXPERIMENTS = (
    Experiment(
        paper="Rojas",
        shows="cost of checkpoints",
        study="rojas-power9",
        figures=("overhead", "stall"),
        tables=("checkpoint_cost",),
        runs=180,
        written="343 GB",
        at_once="11.7 GB",
        needs_gpus=True,
        two_cores="`config.yaml`: 12 min, 35 without AVX-512",
        node_hours=600,
        same="frameworks, ResNet-50, CIFAR-10, 64 samples a rank, 100 epochs, a checkpoint every 5, up to 32 GPUs",
        other="machine (theirs: Power9, four V100 a node), versions. Ours: ranks below 32, learning rate, weight decay, repeats, formats, evaluation",
    ),
    Experiment(
        paper="Rojas",
        shows="impact of scale",
        study="rojas-abci",
        figures=("scaling", "overhead"),
        runs=420,
        written="2.68 TB",
        at_once="64.5 GB",
        needs_gpus=True,
        two_cores="needs GPUs",
        node_hours=7680,
        same="frameworks, ResNet-50, VGG-16, 32 samples a rank, up to 256 GPUs",
        other="machine. Ours: CIFAR-10, 100 epochs, a checkpoint every 5, and what is ours above",
    ),
    Experiment(
        paper="Rojas",
        shows="file formats and sizes",
        study="rojas-sizes",
        figures=("sizes",),
        runs=26,
        written="37.9 GB",
        at_once="3.22 GB",
        two_cores="20 min, estimated",
        node_hours=52,
        same="frameworks",
        other="today's formats; few steps, small images",
    ),
    Experiment(
        paper="Rojas",
        shows="deterministic restart and its cost",
        study="determinism",
        figures=("determinism", "divergence", "restore", "determinism_cost"),
        tables=("resume_proof",),
        runs=531,
        written="69.1 GB",
        at_once="565 MB",
        two_cores="over 2 h",
        node_hours=1062,
        same="frameworks",
        other="every bit is compared; most runs train a small CNN",
    ),
    Experiment(
        paper="DeepFreeze",
        shows="duration, overhead, shared load",
        study="deepfreeze",
        figures=("strategies", "timeline"),
        runs=44,
        written="171 GB",
        at_once="3.72 GB",
        two_cores="40 min, estimated",
        node_hours=88,
        same="ResNet (here 50), CANDLE (here NT3), data parallelism",
        other="own engine (PyTorch); 1 and 2 ranks (theirs: Theta); few steps. Needs 10.2 GB of memory",
    ),
    Experiment(
        paper="Amatya",
        shows="survivors go on (ULFM)",
        study="ulfm",
        figures=("recovery", "goodput"),
        runs=48,
        written="24.4 GB",
        at_once="1.38 GB",
        two_cores="20 min",
        node_hours=96,
        same="AlexNet, GoogLeNet, ULFM of Open MPI",
        other="Chainer (theirs: Caffe), made images (ImageNet), 2 ranks",
    ),
    Experiment(
        paper="Amatya",
        shows="which parallelism needs checkpoints",
        study="parallelism",
        figures=("recovery", "goodput"),
        runs=16,
        written="1.3 MB",
        at_once="97.2 kB",
        two_cores="3 min",
        node_hours=32,
        same="question (discussed there)",
        other="FSDP2 and hybrid sharding for model and hybrid parallelism",
    ),
)
HEAD = """\
## Figures

**Which study makes which figure of a paper?** Known here are only abstracts and descriptions, none of which numbers a figure: each row is an experiment that one
describes. Compare with the papers (arXiv:2012.00825, HAL hal-02543977, arXiv:1709.03316). Studies overwrite each other's `results`: one clone per study.

    snakemake --profile local --configfile config/studies/rojas-sizes.yaml
    snakemake --profile abci --submitit-queue rt_HC --configfile config/studies/rojas-sizes.yaml    # ABCI 3.0
    snakemake --profile abci --configfile config/studies/rojas-abci.yaml                            # ABCI 3.0, with GPUs

|experiment|study|`results/figures`, *`results/tables`*|runs, bytes (at once)|two cores|ABCI 3.0, node-hours|
|---|---|---|---|---|--:|
"""
GPU_STUDIES = " and ".join(f"`{each.study}`" for each in EXPERIMENTS if each.needs_gpus)
TAIL = f"""
{GPU_STUDIES} need GPUs; in the others H200 would idle, hence `rt_HC`. No study ran on a GPU: Horovod's CUDA environments (two frameworks of five)
were resolved, never compiled or run, and that the 78,100 steps of `rojas-power9` fit in 120 minutes is unproven.

Bytes are those of uncompressed tensors. In brackets: the most on the disk at once. That is one run; of a study that needs GPUs
it is 20, as many as `--profile abci` runs at once. Node-hours at most: 120 minutes a run, none requeued (ten times are allowed).
ABCI's V100 of Rojas et al. are gone: ABCI 3.0 has eight H200 a node, TSUBAME 4.0 (`--profile tsubame4`) four H100. `config/config.yaml` (36 runs, 20.4 GB) is
the first row, smaller.
"""


def _row(each: Experiment) -> str:
    made = ", ".join(
        [*(f"`{name}`" for name in each.figures), *(f"*`{name}`*" for name in each.tables)]
    )
    cells = (
        f"{each.paper}: {each.shows}", f"`{each.study}`", made, f"{each.runs}, {each.written} ({each.at_once})", each.two_cores, f"{each.node_hours:,}",
    )  # fmt: skip
    return f"|{'|'.join(cells)}|\n"


ROWS = "".join(map(_row, EXPERIMENTS))
NOTES = "".join(f"- `{each.study}`: same {each.same}. Other: {each.other}.\n" for each in EXPERIMENTS)  # fmt: skip
SECTION = f"{HEAD}{ROWS}{TAIL}\n{NOTES}"
"""Of the page docs/findings.md. A test holds it to configs, figures, tables and the profile."""
