"""The trainings of `examples`, how tests launch them, and what is known of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from tests.study.probed_training import EXAMPLES, Checked, checked, torchrun, warm

GPT = 867_328
"""Parameters of `examples/gpt.py`."""


@dataclass(frozen=True)
class Example:
    script: str
    environment: str
    kind: str
    """What the probe calls its saves."""
    weights: int
    """Parameters."""
    ranks: int = 1
    torchrun: bool = False
    options: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    """What starts the command."""
    steps: int = 24
    save_every: int = 4
    also_first: bool = False
    """Whether it saves after the first step too."""
    background: bool = False
    moved: str | None = None
    """Pattern of the name that a whole checkpoint is moved to; None where it is written under its own name."""
    unsafe: tuple[str, ...] = ("no sync was seen",)
    """How each warning of the summary begins, as patterns."""
    cold: bool = True
    """Whether it is measured as a user starts it: one of each environment is, and `torchrun` itself; its ranks are in the full tests."""

    @property
    def saves(self) -> list[int]:
        """Updates before each."""
        regular = range(self.save_every, self.steps + 1, self.save_every)
        return [*([1] if self.also_first else []), *regular]

    def command(self, python: str, *options: str, launcher: str | None = None) -> list[str]:
        launch = self.launch(python, launcher)
        return [*self.before, *launch, *self.lengths(), *self.options, *options]

    @property
    def kill_at(self) -> int:
        """Updates after which a check kills it, between two saves."""
        return 2 * self.save_every + 3

    def launch(self, python: str, launcher: str | None) -> list[str]:
        script = str(EXAMPLES / f"{self.script}.py")
        if self.torchrun:
            return torchrun(python, script, ranks=self.ranks, launcher=launcher)
        return [python, script]

    def lengths(self) -> list[str]:
        return ["--steps", str(self.steps), "--save-every", str(self.save_every)]


TRAINED = {
    "gpt_ddp": Example(
        "gpt_ddp", "pytorch", "torch.save", GPT, ranks=2, torchrun=True, moved=r"step-\d+\.pt"
    ),
    "gpt_fsdp": Example(
        "gpt_fsdp", "pytorch", "dcp.async_save", GPT, ranks=2, torchrun=True, background=True, moved=r"\.metadata", unsafe=(),
        cold=False,
    ),
    "hf_trainer": Example(
        "hf_trainer", "trainers", "transformers", 830_336, ranks=2, torchrun=True,
        unsafe=("no sync was seen", "Trainer takes a half-written checkpoint folder as the last one"), cold=False,
    ),
    "lightning_gpt": Example(
        "lightning_gpt", "trainers", "lightning", GPT, before=("env", "TMPDIR=/dev/shm"),
        unsafe=("no sync was seen", "6 files were moved from another device"),
    ),
    "lightning_asynchronous": Example(
        "lightning_gpt", "trainers", "lightning.async", GPT, ranks=2, options=("--devices", "2", "--asynchronous"), background=True,
        moved=r"epoch=\d+-step=\d+\.ckpt", unsafe=("no sync was seen", "[345] times the last whole checkpoint was removed"),
        cold=False,
    ),
    "keras_mlp": Example(
        "keras_mlp", "tensorflow", "keras", 64 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10,
        unsafe=("no sync was seen", "5 times the only whole checkpoint was overwritten in place \\(newest.keras\\)"),
    ),
    "jax_orbax": Example(
        "jax_orbax", "jax", "orbax", 3 * 512 * 512, steps=90, save_every=30, also_first=True, background=True, moved=r"\d+", unsafe=(),
    ),
}  # fmt: skip
"""Steps of JAX are so short that more of them pass beside a save. Lightning writes to TMPDIR, and moves the file from there."""

NUMBER = re.compile(r"\d+\.\d+|(?<=_per_second': ')\d+")
"""Of a time. Trainer prints a rate of more than a hundred without a point."""


def without_times(out: str) -> list[str]:
    """What it prints, with times of its own clock left out; its last line has the digest of the weights."""
    return [NUMBER.sub("...", line) for line in out.splitlines()]


def for_checks(name: str) -> Example:
    """No time is measured there, so that all may save as often."""
    return replace(TRAINED[name], save_every=Example.save_every)


def check_saves(example: Example, folder: Path) -> Checked:
    """Of as few steps as give two checkpoints that training goes on after."""
    few = replace(example, steps=2 * example.save_every + 2)
    return checked(folder, "saves", "--", *few.command(warm(example.environment, "check saves")))


def check_resume(example: Example, folder: Path) -> Checked:
    kill = ["--kill-at", str(example.kill_at), "--until", str(example.kill_at + 3)]
    command = example.command(warm(example.environment, "check resume"), "--folder", "{folder}")
    return checked(folder, "resume", *kill, "--", *command)
