"""An answer in every form in which it is printed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ckptbench.answer.quantities import duration
from ckptbench.commands.case import Choice, Known
from ckptbench.decide.model import LEAST_USEFUL

KEYS: Mapping[str, str] = {
    "gpus": "that train together",
    "failures_per_s": "of the whole job",
    "strategies": "an object for each, in the order of the text, with the keys that follow",
    "name": "of the strategy",
    "steps": "between two checkpoints, at the best interval",
    "interval_s": "the same in seconds of useful time",
    "loses": "the part of the time that is not useful",
    "..._lo": "lower end of the 95 % interval of steps, interval_s or loses; null where unknown",
    "..._hi": "upper end of it",
    "told": "whether the interval can be recommended: it is known to within a factor of ten",
    "fine_from_steps": "the shortest interval that loses at most a fifth more than the best",
    "fine_to_steps": "the longest one",
    "interval_s_if_failures_a_third": "the best interval if failures came a third as often; null where they were counted",
    "interval_s_if_failures_three_times": "the same if they came three times as often",
    "now": "the interval in use: name, steps, interval_s and loses; null where none is given",
    "saves_gpu_hours_a_day": "at the best interval, against the one in use; null where none is given",
    "remarks": "sentences on the answer",
}  # fmt: skip
"""What the keys of the JSON mean."""
SAVE_STEPS = (
    ("Transformers", "save_steps={steps}"),
    ("Lightning", "ModelCheckpoint(every_n_train_steps={steps})"),
    ("TorchTitan", "--checkpoint.interval={steps}"),
)
"""How programs for training are told the interval."""


def is_told(choice: Choice) -> bool:
    """Whether its interval can be recommended."""
    return choice.steps.tells and not helps_nothing(choice)


def helps_nothing(choice: Choice) -> bool:
    """Whether next to nothing gets done at the best interval either."""
    return choice.loses.value > 1 - LEAST_USEFUL


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The answer."""

    text: str
    gpus: int
    failures_per_s: float
    choices: tuple[Choice, ...]
    """In the order of the text."""
    remarks: tuple[str, ...]

    def save_steps(self) -> str:
        """Settings to copy, for each strategy."""
        return "".join(f"{line}\n" for choice in self.choices for line in _settings(choice))

    def json(self) -> str:
        """Text with the keys of `KEYS`."""
        content = {
            "gpus": self.gpus,
            "failures_per_s": self.failures_per_s,
            "strategies": [_content(each) for each in self.choices],
            "remarks": list(self.remarks),
        }
        return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _settings(choice: Choice) -> Iterator[str]:
    if not is_told(choice):
        yield f"{choice.name}: {'no interval helps' if helps_nothing(choice) else 'the best interval cannot be told'}"
        return
    steps = round(choice.steps.value)
    unit = "step" if steps == 1 else "steps"
    yield f"{choice.name}: every {steps:,} {unit}, {duration(choice.interval_s.value)}"
    for program, setting in SAVE_STEPS:
        yield f"  {program:<14}{setting.format(steps=steps)}"


def _content(choice: Choice) -> dict[str, Any]:
    fine_from, fine_to = choice.fine_steps or (None, None)
    rarer, oftener = choice.other_s or (None, None)
    return {
        **_at(choice),
        "told": is_told(choice),
        "fine_from_steps": fine_from,
        "fine_to_steps": fine_to,
        "interval_s_if_failures_a_third": rarer,
        "interval_s_if_failures_three_times": oftener,
        "now": None if choice.now is None else _at(choice.now),
        "saves_gpu_hours_a_day": choice.saves_gpu_hours,
    }


def _at(choice: Choice) -> dict[str, Any]:
    return {
        "name": choice.name,
        **{
            key: None if own is None else round(own)
            for key, own in _known("steps", choice.steps).items()
        },
        **_known("interval_s", choice.interval_s),
        **_known("loses", choice.loses),
    }


def _known(name: str, known: Known) -> dict[str, float | None]:
    ends = {"": known.value, "_lo": known.lo, "_hi": known.hi}
    return {f"{name}{end}": own if math.isfinite(own) else None for end, own in ends.items()}
