"""The forms of logs: by program, the lines that it prints, as regular expressions with named groups. A user's expressions are one form more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ckptbench.common.errors import ConfigError
from ckptbench.matrix.shown import show

GROUPS = ("step", "step_s", "step_ms", "time", "save", "save_s", "save_ms")
"""The named groups of `--log-pattern`.

`step`: its number. `step_s`, `step_ms`: how long one took. `time`: of the line. `save`: marks a line that is printed as a save begins or ends. `save_s`,
`save_ms`: how long training stood still for it.
"""
NUMBER = r"\d{1,12}(?:\.\d{1,12})?"
COUNT = r"\d{1,12}"
Line = tuple[str, re.Pattern[str]]
"""A kind of line: a part of every such line, which is found faster than its expression; and that."""
DATA = r"(?:(?:example|file|shard|doc|line|token|sample|row|record|image|page|chunk|sentence|byte)s?|[kMG]?i?B|tok|img)\b"
"""Units of progress bars that count no steps."""
EVALUATED = "Its save times include the evaluation before each save"
EXAMPLE = r"--log-pattern 'step (?P<step>\d+) took (?P<step_s>[\d.]+)'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What one program prints."""

    name: str
    lines: tuple[Line, ...]
    from_zero: bool = False
    """Whether the line of the first step says 0."""
    has_own_clock: bool = False
    """Whether its expressions tell the time of a line; else the first date and time in a line does."""
    times_last: bool = False
    """Whether the time in the line of a step is that of this step: else it may be the mean of those since the line before."""
    setting: tuple[str, str] | None = None
    """The program and how it is told the interval. None: unknown."""
    aside: str = ""
    """What else its times have in them: the beginning of a sentence."""


def _lines(*pairs: tuple[str, str]) -> tuple[Line, ...]:
    return tuple((hint, re.compile(pattern)) for hint, pattern in pairs)


MEGATRON = Form(
    name="Megatron-LM",
    setting=("Megatron-LM", "--save-interval {steps}"),
    # Since v2.0 (2020); Megatron-DeepSpeed prints the same, and a fork of it `key=value`. Step lines have a date since core 0.6 (2024), and lines
    # on saves since 0.16. Step lines come from the last rank, and
    # lines on saves from the first. The step time leaves out saves and evaluations.
    lines=_lines(
        *((hint, rf"\biteration\W+(?P<step>{COUNT})/ *(?P<planned>{COUNT})?.*\belapsed[ _]time[ _]per[ _]iteration\W*_?(?:ms\W+(?P<step_ms>{NUMBER})|s\W+(?P<step_s>{NUMBER}))") for hint in ("elapsed time per iteration", "elapsed_time_per_iteration")),
        ("saving checkpoint at iteration", rf"(?P<save>saving checkpoint) at iteration +(?P<step>{COUNT}) to "),
        ("an async checkpoint save", rf"(?P<background>scheduled an async checkpoint) save at iteration +(?P<step>{COUNT}) to "),
        ("successfully saved checkpoint", rf"(?P<finished>successfully saved checkpoint) (?:at|from) iteration +(?P<step>{COUNT}) to "),
        ("save", rf"\bsave[- ]checkpoint[ .]*: \(?(?:{NUMBER}, )?(?P<save_ms>{NUMBER})"),
        ("using world size: ", r"using world size: (?P<gpus>\d{1,7})\b"),
    ),
)  # fmt: skip
TORCHTITAN = Form(
    name="torchtitan",
    setting=("torchtitan", "--checkpoint.interval={steps}"),
    # 2024 to 2026: "(or staging if async is enabled)", without a blank before "in", until June 2026; then "saving" or "staging". A save follows the line
    # of its step.
    lines=_lines(
        ("step:", rf"(?<!validate )step: *(?P<step>{COUNT})\b[^:]{{0,40}}loss: "),
        ("total steps ", rf"total steps (?P<all>{COUNT})\b"),
        ("validate step:", r"(?P<pause>validate step:)"),
        (" the checkpoint", r"\b(?P<save>Saving|Staging) the checkpoint"),
        ("Finished ", rf"Finished (?:(?P<background>staging)|(?P<perhaps>saving .{{0,60}}staging)|saving)\b.{{0,90}}?\bin (?P<save_s>{NUMBER}) s"),
        ("in the background process", rf"Finish saving the checkpoint in the background process in (?P<finished_s>{NUMBER}) s"),
        ("device mesh with", r"device mesh with \[[^]]*\], \[(?P<gpus>[\d, ]{1,99})\]"),
        ("device mesh with", r"device mesh with parallelism: (?P<gpus>pp=[a-z_\d=, ]{1,99}?), ep="),
    ),
)  # fmt: skip
NANOGPT = Form(
    name="nanoGPT",
    setting=("nanoGPT", "--eval_interval={steps}"),
    # The time of a step reaches from the end of the one before to its own end: with the evaluation and the save between them.
    lines=_lines(
        ("iter ", rf"\biter (?P<step>{COUNT}): loss [^ ]+, time (?P<step_ms>{NUMBER})ms"),
        (" loss ", rf"(?P<pause>step) (?P<step>{COUNT}): (?:train|val) loss"),
        ("saving checkpoint to ", r"(?P<save>saving checkpoint) to "),
    ),
    from_zero=True,
    times_last=True,
    aside=EVALUATED,
)
BAR = Form(
    name="progress bars (tqdm, Hugging Face)",
    setting=("Transformers", "save_steps={steps}"),
    # tqdm: a bar ends in a carriage return, or in what some logs make of it: nothing, or #015. The Trainer names its saves only with log_level="info", in
    # the line of a bar. Evaluations have a bar of their own. accelerate says "current state".
    lines=_lines(
        ("<", rf"\b(?P<step>[1-9]\d{{0,11}})/(?P<total>{COUNT}) \[(?P<time>(?:\d{{1,6}}:)?\d\d:\d\d)<(?![^]]{{0,30}}(?:{DATA}/s|s/{DATA}))(?:[^]\r\n]{{0,200}}(?P<loss>loss))?"),
        *((hint, rf"""['"](?P<loss>{hint})['"]: """) for hint in ("loss", "train_runtime")),
        ("Total optimization steps", r"Total optimization steps = (?P<all>\d[\d,]{0,15})"),
        ("Saving ", rf"(?P<save>Saving (?:current state to |model checkpoint to [^ ]{{0,999}}checkpoint-(?:(?P<step>{COUNT})\b|\w)))"),
        ("'eval_runtime'", rf"'eval_runtime': '?(?P<pause_s>{NUMBER})"),
    ),
    has_own_clock=True,
    aside=EVALUATED,
)  # fmt: skip
FORMS = (MEGATRON, TORCHTITAN, NANOGPT, BAR)
"""In this order they are looked for: a log of the first three may have bars too."""


def own_form(patterns: Sequence[str]) -> Form:
    """The form of a user's expressions. Raises ConfigError for what is wrong with them."""
    known, found = ", ".join(GROUPS), set[str]()
    for pattern in patterns:
        try:
            names = set(re.compile(pattern).groupindex)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigError(f"--log-pattern {show(pattern)} is not a regular expression of Python: {error}; use one as in {EXAMPLE}") from None  # fmt: skip
        if not names or not names <= set(GROUPS):
            wrong = ", ".join(sorted(names - set(GROUPS))) or "no group"
            raise ConfigError(f"--log-pattern {show(pattern)} names {wrong}: use some of {known}, as in {EXAMPLE}")  # fmt: skip
        if names == {"time"}:
            raise ConfigError(f"--log-pattern {show(pattern)} names only time: add it to the expression that matches the step or save of that line")  # fmt: skip
        found |= names
    if "step" not in found:
        raise ConfigError(f"--log-pattern: no (?P<step>...) in it: add it, as in {EXAMPLE}")
    lines = _lines(*(("", pattern) for pattern in patterns))
    return Form(name="--log-pattern says", lines=lines, has_own_clock="time" in found)
