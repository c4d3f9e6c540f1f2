"""Logs of trainings, made in the forms that programs print, with a truth that is known.

The forms are those of the sources: Megatron-LM's `training_log`, `save_checkpoint` and `Timers.log` (v2.0 of 2020, core 0.5 of 2024, 0.12 of 2025, main of August
2026), torchtitan's `MetricsProcessor.log` and `CheckpointManager.save` (v0.1.0, v0.2.2, main of August 2026), nanoGPT's `train.py`, tqdm's bars as
transformers' ProgressCallback prints them, and Lightning's CSVLogger with ThroughputMonitor (2.6).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from ckptbench.decide.training_log.facts import Facts, facts_of
from ckptbench.decide.training_log.reader import read_log

STEP = r"step=(?P<step>\d+) t=(?P<step_ms>[\d.]+)"
"""A pattern of lines without a form."""
QUIET = {"stall_s": 20.0, "interval": 100, "noise": 0.02}


@dataclass(kw_only=True)
class Made:
    """A training with its truth, and its clock."""

    step_s: float = 2.5
    stall_s: float = 60.0
    interval: int = 200
    steps: int = 2000
    stride: int = 10
    start_s: float = 90.0
    down_s: float = 420.0
    gpus: int = 64
    finished_s: float | None = None
    """After the start of a save, of asynchronous ones."""
    beside_s: float = 0.0
    """What the step after a save loses beside it."""
    killed_at: tuple[int, ...] = ()
    """It goes on from the save before."""
    noise: float = 0.05
    seed: int = 1
    now_s: float = field(default=datetime(2026, 8, 1, 8, tzinfo=UTC).timestamp(), init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def some(self, seconds: float) -> float:
        """Of about so long, after which it is so much later."""
        took_s = seconds * self.random.uniform(1 - self.noise, 1 + self.noise)
        self.now_s += took_s
        return took_s

    def stamp(self, form: str = "%Y-%m-%d %H:%M:%S.%f") -> str:
        return datetime.fromtimestamp(self.now_s, UTC).strftime(form)

    def titan_stamp(self) -> str:
        return self.stamp("%Y-%m-%d %H:%M:%S,%f")[:-3]

    def starts(self) -> Iterator[range]:
        """The steps of each start."""
        begin = 1
        for end in (*self.killed_at, self.steps):
            yield range(begin, end + 1)
            begin = end // self.interval * self.interval + 1

    def is_told(self, step: int) -> bool:
        return step % self.stride == 0 or step == 1

    def saves_after(self, step: int) -> bool:
        return step % self.interval == 0


def megatron(made: Made, version: str = "main") -> list[str]:
    """`version`: `main`; `core-0.12` (dates of steps alone, in seconds); `core-0.5` (no dates); `2.0` (other timers)."""
    sizes = f"{made.gpus}, data-parallel{'-' if version == '2.0' else ' '}size: {made.gpus}, tensor-model-parallel size: 1"
    lines: list[str] = []
    for nth, steps in enumerate(made.starts()):
        lines.append(f"using world size: {sizes}")
        if not nth:
            lines.append(f"[after megatron is initialized] datetime: {made.stamp()} ")
        made.some(made.down_s if nth else made.start_s)
        waits: list[tuple[float, str]] = []
        for step in steps:
            took_s = made.some(made.step_s)
            date = f"[{made.stamp()}] " if version == "main" else ""
            told = f"[{made.stamp('%Y-%m-%d %H:%M:%S')}] " if version == "core-0.12" else date
            for at_s, line in [each for each in waits if each[0] <= made.now_s]:
                lines.append(line)
                waits.remove((at_s, line))
            if made.is_told(step) or step == steps[0]:
                lines.append(
                    f" {told}iteration {step:8d}/{made.steps:8d} | consumed samples: {step * 64:12d} | elapsed time per iteration (ms): {took_s * 1000:.1f} |"
                    f" learning rate: 1.000000E-04 | global batch size:    64 | lm loss: 2.000000E+00 | loss scale: 1.0 | grad norm: 0.100 |"
                )
            if made.saves_after(step):
                lines.append(
                    f"{date}saving checkpoint at iteration {step:7d} to /ckpt in torch_dist format"
                )
                began_s, took_s = made.now_s, made.some(made.stall_s)
                date = f"[{made.stamp()}] " if version == "main" else ""
                saved = f"successfully saved checkpoint from iteration {step:7d} to /ckpt [ t 1/1, p 1/1 ]"
                if made.finished_s is None:
                    lines.append(f"  {date}{saved}")
                else:
                    lines.append(
                        f"  {date}scheduled an async checkpoint save at iteration {step:7d} to /ckpt"
                    )
                    done = datetime.fromtimestamp(began_s + made.finished_s, UTC)
                    waits.append(
                        (began_s + made.finished_s, f"  [{done:%Y-%m-%d %H:%M:%S.%f}] {saved}")
                    )
                if version == "2.0":
                    lines.append(f"time (ms) | save checkpoint: {took_s * 1000:.2f}")
                else:
                    lines += ["(min, max) time across ranks (ms):", f"    save-checkpoint ................................: ({took_s * 900:.2f}, {took_s * 1000:.2f})"]  # fmt: skip
    return lines


def torchtitan(made: Made, version: str = "main") -> list[str]:
    """`version`: `main` or `0.2` (one wording for both kinds of saves, another line on the mesh). Asynchronous where `finished_s` is given."""
    lines: list[str] = []

    def say(words: str) -> None:
        lines.append(f"[rank0]:[titan] {made.titan_stamp()} - root - INFO - {words}")

    for nth, steps in enumerate(made.starts()):
        if nth:
            made.now_s += made.down_s - made.start_s
        say("Starting job: Llama 3 8B training")
        mesh = f"{made.gpus // 2}, cp=1, tp=2, ep=1"
        say(f"Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard={mesh}" if version == "main" else f"Building 2-D device mesh with ['dp_shard', 'tp'], [{made.gpus // 2}, 2]")  # fmt: skip
        made.some(made.start_s)
        verb = "staging" if made.finished_s else "saving"
        for step in steps:
            made.some(made.step_s + made.beside_s * made.saves_after(step - 1))
            if made.is_told(step):
                say(f"\x1b[31mstep: {step:2}  \x1b[32mloss:  7.15231  \x1b[38;2;180;60;0mgrad_norm:  0.5926  \x1b[36mmemory: 49.66GiB(52.28%)  \x1b[34mtps: 5,917\x1b[39m")  # fmt: skip
            if made.saves_after(step):
                old = "Saving the checkpoint (or staging if async is enabled)."
                say(f"{verb.capitalize()} the checkpoint." if version == "main" else old)
                took_s = made.some(made.stall_s)
                say(f"Finished {verb} the checkpoint in {took_s:.2f} seconds." if version == "main" else f"Finished saving the checkpoint (or staging if async is enabled)in {took_s:.2f} seconds.")  # fmt: skip
    return lines


def nanogpt(made: Made, *, eval_s: float = 0.0, stamps: bool = False) -> list[str]:
    lines: list[str] = []

    def say(words: str) -> None:
        lines.append(f"{made.stamp('%Y-%m-%d %H:%M:%S')} {words}" if stamps else words)

    say("tokens per iteration will be: 491,520")
    iterations = [each for steps in made.starts() for each in range(steps.start - 1, steps.stop)]
    for before, iteration in pairwise([-1, *iterations]):
        if iteration <= before:
            made.some(made.down_s)
        began_s = made.now_s
        saves = made.saves_after(iteration) and iteration > 0
        if saves or iteration == 0:
            made.some(eval_s)
            say(f"step {iteration}: train loss 4.0390, val loss 4.0427")
        if saves:
            say("saving checkpoint to out")
            made.some(made.stall_s)
        made.some(made.step_s)
        if iteration % made.stride == 0:
            say(
                f"iter {iteration}: loss 4.2490, time {(made.now_s - began_s) * 1000:.2f}ms, mfu 13.85%"
            )
    return lines


def bars(made: Made, *, eval_s: float = 0.0, eval_total: int = 0) -> str:
    """As the Trainer of transformers prints them with `log_level="info"`: a bar ends in a carriage return."""
    text = ""

    def bar(step: int, total: int, since_s: float) -> str:
        passed = int(made.now_s - since_s)
        clock = f"{passed // 3600}:{passed // 60 % 60:02}:{passed % 60:02}" if passed >= 3600 else f"{passed // 60:02}:{passed % 60:02}"  # fmt: skip
        return (
            f"\r {step * 100 // total:2}%|███▉      | {step}/{total} [{clock}<4:45:21,  3.84s/it]"
        )

    began_s = made.now_s
    for before, step in pairwise([made.steps, *chain.from_iterable(made.starts())]):
        if step <= before:
            text += f"\r  0%|          | 0/{made.steps} [00:00<?, ?it/s]"
            began_s = made.now_s
        made.some(made.step_s)
        text += bar(step, made.steps, began_s)
        if made.saves_after(step):
            if eval_s:
                text += "\n***** Running Evaluation *****\n"
                since_s = made.now_s
                for batch in range(eval_total):
                    made.now_s += eval_s / eval_total
                    text += bar(batch + 1, eval_total, since_s)
                text += f"\n{{'eval_loss': 0.7, 'eval_runtime': {eval_s}, 'epoch': 0.03}}\n"
                text += bar(step, made.steps, began_s)
            text += f"\n[INFO|trainer.py:3850] {made.titan_stamp()} >> Saving model checkpoint to out/checkpoint-{step}\n"
            made.some(made.stall_s)
    return text + "\n{'train_runtime': 132.7, 'train_steps_per_second': 1.0, 'epoch': 1.0}\n"


def own_lines(made: Made, step: str = "{stamp} step {step}", save: str = "now saving", end: str = "") -> list[str]:  # fmt: skip
    """Of a program of one's own. `step`, `save` and `end`: forms of lines on a step, and before and after a save; "" for none."""
    lines: list[str] = []

    def say(form: str, **values: float) -> None:
        if form:
            clock = f"{made.now_s % 9e4 // 3600:.0f}:{made.now_s // 60 % 60:02.0f}:{made.now_s % 60:06.3f}"  # fmt: skip
            lines.append(form.format(stamp=made.stamp(), slashes=made.stamp("%Y/%m/%d %H:%M:%S.%f"), clock=clock, now_s=made.now_s, **values))  # fmt: skip

    for nth in range(1, made.steps + 1):
        took_s = made.some(made.step_s)
        say(step if made.is_told(nth) else "", step=nth, ms=1000 * took_s)
        if made.saves_after(nth):
            say(save)
            say(end, took_s=made.some(made.stall_s))
    return lines


def csv_rows(made: Made) -> list[str]:
    """`metrics.csv` with the columns of ThroughputMonitor, and rows of validation that have no time."""
    lines, began_s = ["epoch,step,train/batches,train/time,train_loss,val_loss"], made.now_s
    for step in range(1, made.steps + 1):
        made.some(made.step_s)
        if made.is_told(step):
            lines.append(f"0,{step - 1},{step},{made.now_s - began_s:.6f},0.66,")
        if made.saves_after(step):
            lines.append(f"0,{step - 1},,,,0.71")
    return lines


def written(folder: Path, content: list[str] | str | bytes, name: str = "train.log") -> Path:
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        text = content if isinstance(content, str) else "\n".join(content) + "\n"
        path.write_text(text, encoding="utf-8", newline="")
    return path


def facts(folder: Path, content: list[str] | str | bytes, *patterns: str) -> Facts:
    return facts_of(read_log(written(folder, content), patterns))


def state(**own: Any) -> str:
    history = [{"step": step, "loss": 1.0, "epoch": 0.1} for step in range(500, 4501, 500)]
    history += [{"step": 4000, "eval_loss": 0.7, "eval_runtime": 50.0}]
    end = {"step": 4500, "train_runtime": 9050.0, "train_loss": 0.5}
    return json.dumps({"global_step": 4500, "save_steps": 500, "log_history": [*history, end], **own})  # fmt: skip


def bar(name: str, total: int, step_s: float, mark: str = "", unit: str = "it/s") -> str:
    """All of a progress bar. `mark`: a line that is printed with every tenth step."""
    text = ""
    for step in range(total + 1):
        clock = f"{int(step * step_s) // 60:02}:{int(step * step_s) % 60:02}"
        text += f"\r{name}{step * 100 // total:3}%|#   | {step}/{total} [{clock}<01:00, 1.00{unit}]"
        if mark and step and step % 10 == 0:
            text += f"\n{mark}\n"
    return text + "\n"
