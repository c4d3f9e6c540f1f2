"""How programs that train are told to save: the lines to paste. `report/answer/programs.py` of ckptbench and `programs.py` of ckptbench-probe are the same file.

The names are those of Transformers 5.24, Lightning 2.6, torchtitan 0.3, Megatron-LM of 2026, NeMo 3.0, DeepSpeed 0.19, Orbax 0.12 and Slurm.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MARGIN_S, ROUND_S = 30.0, 10
"""A signal is sent twice as long before the end as a stop takes, and `MARGIN_S` more, rounded up."""
NO_ASYNC = "has no asynchronous saves of its own"
NO_SIGNAL = "does not save at a signal by itself"
NEMO = "exp_manager.checkpoint_callback_params."


class Program(NamedTuple):
    """Its texts have {steps}, {minutes}, {seconds} and {keep} where numbers stand, and {kept} where `keep` does."""

    name: str
    every: str
    by_time: str = ""
    """The same, where it takes a time."""
    background: str | None = None
    """What switches asynchronous saves on, behind `every`. None: it has none."""
    blocking: str = ""
    """What switches them off, where they are the default."""
    keep: str = ""
    """How many versions stay."""
    at_signal: str = NO_SIGNAL
    """What makes it save at one."""

    @property
    def setting(self) -> str:
        """`every` without `keep`."""
        return self.every.replace("{kept}", "")


PROGRAMS = {
    "hf": Program(
        "Transformers",
        "save_steps={steps}",
        keep="save_total_limit={keep}",
        at_signal="enable_jit_checkpoint=True (from version 5)",
    ),
    "lightning": Program(
        "Lightning",
        "ModelCheckpoint(every_n_train_steps={steps}{kept})",
        by_time="ModelCheckpoint(train_time_interval=timedelta(minutes={minutes}){kept})",
        background=", Trainer(plugins=AsyncCheckpointIO())",
        keep=', save_top_k={keep}, monitor="step", mode="max"',
        at_signal="#SBATCH --signal=USR1@{seconds} in its place, and training by srun",
    ),
    "torchtitan": Program(
        "torchtitan",
        "--checkpoint.interval={steps}",
        background=" --checkpoint.async_mode=async",
        keep="--checkpoint.keep_latest_k={keep}",
    ),
    "megatron": Program(
        "Megatron-LM",
        "--save-interval {steps}",
        background=" --async-save",
        keep="it removes none: after a save remove all but the newest {keep}",
        at_signal="--exit-signal-handler",
    ),
    "nemo": Program(
        "NeMo",
        NEMO + "every_n_train_steps={steps} " + NEMO + "every_n_epochs=null",
        by_time="'+" + NEMO + "train_time_interval={{_target_:datetime.timedelta,minutes:{minutes}}}' " + NEMO + "every_n_epochs=null",
        background=" " + NEMO + "async_save=True",
        keep=NEMO + "save_top_k={keep} " + NEMO + "monitor=step " + NEMO + "mode=max",
        at_signal="exp_manager.create_preemption_callback=True, which is the default",
    ),
    "deepspeed": Program(
        "DeepSpeed",
        "if step % {steps} == 0: engine.save_checkpoint(folder), on all ranks of your loop, as it saves only when called",
        background=', with "checkpoint": {"writer": {"type": "fast", "decoupled": true}} in its configuration',
        keep="it removes none: after a save remove all but the newest {keep}",
    ),
    "orbax": Program(
        "Orbax",
        "CheckpointManagerOptions(save_decision_policy=AnySavePolicy([FixedIntervalPolicy({steps}), PreemptionCheckpointingPolicy()]){kept})",
        by_time="CheckpointManagerOptions(save_decision_policy=AnySavePolicy([ContinuousCheckpointingPolicy(minimum_interval_secs={seconds}), PreemptionCheckpointingPolicy()]){kept})",
        background=", which saves in the background by default",
        blocking=", with enable_async_checkpointing=False",
        keep=", preservation_policy=LatestN({keep})",
        at_signal="PreemptionCheckpointingPolicy(), where jax.distributed is initialized",
    ),
    "slurm": Program(
        "Slurm",
        "#SBATCH --signal=TERM@{seconds}, to all that srun starts (B:TERM: only to the script)",
    ),
}  # fmt: skip
"""By the words of `--for`."""
USUAL = ("hf", "lightning", "torchtitan", "megatron")
"""Those that are named where nobody says which."""


def signal_s(stop_s: float) -> int:
    """So long before the end a signal is to come, where a stop takes so long."""
    return math.ceil((2 * stop_s + MARGIN_S) / ROUND_S) * ROUND_S


def rows(
    tool: str,
    *,
    steps: int,
    interval_s: float,
    stop_s: float,
    is_async: bool,
    keep: int | None = None,
) -> list[tuple[str, str]]:
    """To paste, each with what it is. `stop_s`: a step and a save until it is durable. `keep`: how many whole versions stay."""
    program, before_s = PROGRAMS[tool], signal_s(stop_s)
    if tool == "slurm":
        return [(program.name, program.every.format(seconds=before_s))]
    if is_async and program.background is None:
        return [(program.name, NO_ASYNC)]
    kept = "" if keep is None else program.keep.format(keep=keep)
    numbers = {"steps": steps, "minutes": max(1, round(interval_s / 60)), "seconds": max(1, round(interval_s)), "kept": kept}  # fmt: skip
    switch = (program.background or "") if is_async else program.blocking
    found = [(program.name, program.every.format(**numbers) + switch)]
    if program.by_time:
        found.append(("or by time", program.by_time.format(**numbers) + switch))
    if kept and "{kept}" not in program.every:
        found.append(("keep", kept))
    return [*found, ("at a signal", program.at_signal.format(seconds=before_s))]
