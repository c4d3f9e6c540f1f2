"""`ckptbench-probe compare`: trainings whose times are known, in blocks, with failures, kills and changes."""

from __future__ import annotations

import csv
import json
import math
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from probed import TOLD, Bench, interpreters

from ckptbench_probe.comparing.settings import expand, in_blocks
from ckptbench_probe.main import main
from ckptbench_probe.statistics import estimate, student

STEP_S = 0.1
TRUTH = {
    "plain": (0.02, 0.0, 0.0),
    "beside": (0.005, 0.0375, 0.0),
    "dear": (0.05, 0.0, 0.0),
    "evaluating": (0.02, 0.0375, 0.3),
}
"""By engine the seconds of a save: its stall, its slowdown, and an evaluation before it, which the baseline makes as well."""
TRAINING = f"""
import os, signal, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from traces import Written

folder, every, engine = sys.argv[1], int(sys.argv[2]), sys.argv[3]
while engine == "waits" and every and os.path.exists("wait"):
    time.sleep(0.02)
if every and engine == "fails":
    raise SystemExit("ValueError: no such layer\\n====")
if every and engine == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if every and engine == "removes":
    __import__("shutil").rmtree(os.environ["CKPTBENCH_PROBE_FOLDER"])
if engine in ("unseen", "removes"):
    sys.exit()
stall_s, slowdown_s, pause_s = {TRUTH!r}.get(engine, (0.02, 0.0, 0.0))
seen = os.environ["CKPTBENCH_PROBE_FOLDER"]
step_s = {STEP_S} * (1 + int(seen.rpartition("block")[2]) / 100)
steps = 4 if engine == "short" else 30 if engine == "longer" and not every else 22
every = {{"silent": 0, "saving": every or 10}}.get(engine, every)
at, moments, saves = 0.0, [], []
for step in range(1, steps + 1):
    at += step_s
    moments.append(at)
    at += pause_s if step % 5 == 0 else 0.0
    if every and step % every == 0:
        saves.append((at, step))
        at += stall_s + slowdown_s
trace = Written(run=os.environ["CKPTBENCH_PROBE_RUN"]).updates(*moments)
for begun, step in saves:
    finished = begun + stall_s + (0.03 if engine == "beside" else 0.0)
    trace.save(begun, begun + stall_s, finished=finished, after=step, clean=finished, size=8_000_000, path=f"{{folder}}/{{step}}.pt")
if engine != "lost":
    trace.ended(at + 1)
trace.into(__import__("pathlib").Path(seen))
open(os.path.join(folder, "saved"), "x").close()
"""
"""It trains nothing: it writes the trace of a training whose times are known. Each block is slower by a hundredth. Its folder must be there and empty."""


@dataclass(frozen=True)
class Compared:
    code: int
    out: str
    told: list[str]
    output: Path

    @property
    def rows(self) -> dict[str, dict[str, str]]:
        with (self.output / "compare.csv").open() as file:
            return {row["setting"]: row for row in csv.DictReader(file)}

    def line(self, start: str) -> str:
        return next(line for line in self.told if line.startswith(start))


class Comparing:
    def __init__(self, folder: Path, python: str = sys.executable, flags: str = "-I") -> None:
        self.bench = Bench(folder, python)
        self.output = folder / "compare"
        self.flags = flags
        self.bench.write("train.py", TRAINING)

    def words(self, *options: str, every: str = "5", engine: str = "plain") -> list[str]:
        probe = [self.bench.launcher, self.flags, *self.bench.probe()[2:]]
        values = ["--value", f"every={every}", "--value", f"engine={engine}"]
        command = [self.bench.launcher, "train.py", "{folder}", "{every}", "{engine}"]
        return [*probe, "compare", *values, "--baseline", "every=0", *options, "--", *command]

    def start(self, *options: str, **values: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words(*options, **values), cwd=self.bench.folder, env=self.bench.environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *options: str, **values: str) -> Compared:
        started = self.start(*options, **values)
        out, err = started.communicate(timeout=120)
        told = [line.replace(TOLD, "", 1) for line in err.splitlines()]
        return Compared(started.returncode, out, told, self.output)

    def began(self) -> dict[str, int]:
        """By name of its folder, when each run that has ended was written."""
        records = sorted(self.output.glob("runs/*/run.json"), key=lambda path: path.stat().st_mtime_ns)  # fmt: skip
        return {path.parent.name: path.stat().st_mtime_ns for path in records}


@pytest.fixture
def comparing(tmp_path: Path) -> Comparing:
    return Comparing(tmp_path)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparing, Compared]:
    """By the oldest Python that is installed, without other packages."""
    own = Comparing(tmp_path_factory.mktemp("known"), interpreters()[0], "-IS")
    return own, own.run("--json", "--mtbf", "5h", engine=",".join(TRUTH))


def number(row: dict[str, str], name: str) -> float:
    return float(row[name] or "nan")


@pytest.mark.parametrize("engine", TRUTH)
def test_known_costs_are_found(known: tuple[Comparing, Compared], engine: str) -> None:
    stall_s, slowdown_s, pause_s = TRUTH[engine]
    row = known[1].rows[f"every=5, engine={engine}"]
    assert number(row, "stall_s") == pytest.approx(stall_s, rel=1e-3)
    assert number(row, "slowdown_s") == pytest.approx(slowdown_s, rel=2e-3, abs=1e-5)
    finished_s = stall_s + (0.03 if engine == "beside" else 0.0)
    assert number(row, "finished_s") == pytest.approx(finished_s, rel=1e-3)
    usual_s = 18 * STEP_S * 1.02 + 4 * pause_s
    overhead = 4 * (stall_s + slowdown_s) / usual_s
    assert number(row, "paired") == pytest.approx(overhead, rel=1e-3)
    assert number(row, "in_run") == pytest.approx(overhead, rel=0.1 if pause_s else 1e-3)
    for name in ("paired", "in_run", "stall_s", "slowdown_s", "added_step_s"):
        low, middle, high = (number(row, name + end) for end in ("_lo", "", "_hi"))
        assert low <= middle + 1e-12 <= high + 2e-12
    assert number(row, "paired_lo") < number(row, "paired_hi")
    assert (row["runs"], row["paired_runs"], row["saves"], row["interval_steps"]) == ("3", "3", "12", "5")  # fmt: skip
    assert (row["bytes"], row["files"], row["note"]) == ("8000000", "1", "")


def test_the_table_and_json_have_a_row_for_each_setting(known: tuple[Comparing, Compared]) -> None:
    rows = known[1].rows
    assert len(rows) == 2 * len(TRUTH)
    plain = rows["every=5, engine=plain"]
    assert list(plain)[:11] == ["setting", "value_every", "value_engine", "baseline", "runs", "paired_runs", "ranks", "steps", "saves", "interval_steps", "engines"]  # fmt: skip
    assert plain["baseline"] == "baseline, engine=plain"
    assert rows["baseline, engine=plain"]["baseline"] == rows["baseline, engine=plain"]["stall_s"] == ""  # fmt: skip
    content = json.loads(known[1].out)
    assert (content["failed"], content["left_out"]) == ([], [])
    told = {one["setting"]: one for one in content["settings"]}
    assert {name: one["stall_s"] for name, one in told.items()} == {name: float(row["stall_s"]) if row["stall_s"] else None for name, row in rows.items()}  # fmt: skip


def test_the_answer_is_one_screen(known: tuple[Comparing, Compared]) -> None:
    compared = known[1]
    assert compared.code == 0
    lines = compared.told[compared.told.index(compared.line("setting ")) :]
    assert lines[0].split()[1:5] == ["overhead", "added", "per", "step"]
    beside = compared.line("every=5, engine=beside")
    assert "5.0 ms (5.0 to 5.0)" in beside
    assert "38 ms (" in beside
    assert "8.0 MB" in beside
    assert f"ckptbench decide --costs {compared.output}/costs.yaml --mtbf 5h --gpus 1 --save-steps" in "\n".join(lines)  # fmt: skip
    assert lines[-1] == f"files         compare.csv in {compared.output}; no figure: matplotlib is not installed beside ckptbench-probe"  # fmt: skip
    assert len(lines) <= 16
    costs = (compared.output / "costs.yaml").read_text()
    assert [line for line in costs.splitlines() if "name:" in line][:4] == [f'  - name: "engine={engine}"' for engine in TRUTH]  # fmt: skip


@pytest.mark.parametrize("engine", TRUTH)
def test_in_the_costs_what_a_save_in_the_foreground_hides_is_stall(known: tuple[Comparing, Compared], engine: str) -> None:  # fmt: skip
    content = (known[1].output / "costs.yaml").read_text()
    own = content.partition(f'"engine={engine}"')[2].partition("  - name:")[0]
    found = {
        name: float(value) for name, value in re.findall(r"(\w+): (?:{value: )?([\d.e-]+)", own)
    }
    stall_s, slowdown_s, _ = TRUTH[engine]
    beside_s = slowdown_s if engine == "beside" else 0.0
    assert found["slowdown_s"] == pytest.approx(beside_s, rel=2e-3, abs=1e-5)
    assert found["stall_s"] == pytest.approx(stall_s + slowdown_s - beside_s, rel=2e-3)


def test_runs_go_in_blocks_beside_their_baselines(known: tuple[Comparing, Compared]) -> None:
    names = [name.split("-")[0] + name[-1] for name in known[0].began()]
    block = [f"{what}_engine={engine}" for engine in TRUTH for what in ("baseline", "every=5")]
    assert names == [f"{one}1" for one in block] + [f"{one}2" for one in block[::-1]] + [f"{one}3" for one in block]  # fmt: skip
    assert not any((known[0].output / "checkpoints").iterdir())


def test_what_is_there_is_not_made_again_and_what_was_changed_is_told(
    comparing: Comparing,
) -> None:
    comparing.run("--repeats", "2", every="5,11")
    first = comparing.began()
    assert len(first) == 6
    assert "6 of 6 runs are done and kept" in comparing.run("--repeats", "2", every="5,11").told
    assert comparing.began() == first
    assert "0 of 3 runs" not in comparing.run("-n", "--repeats", "1", every="5,11").out
    more = comparing.run("--repeats", "3", every="5")
    assert "4 of 6 runs are done and kept" in more.told
    assert "with other values, another command or an edited script, not counted: " in "\n".join(more.told)  # fmt: skip
    assert more.line("2 runs").endswith("not counted: every=11, engine=plain")
    assert number(more.rows["every=5, engine=plain"], "runs") == 3
    (comparing.bench.folder / "train.py").write_text(TRAINING + "# edited\n")
    listed = comparing.run("-n", every="5").out.splitlines()
    assert [line.split()[:2] for line in listed[:-1]] == [["to", "run"]] * 6
    assert listed[-1] == "0 of 6 runs are done"
    assert first.items() <= comparing.began().items()


def test_failures_are_told_and_the_rest_is_answered(comparing: Comparing) -> None:
    engines = "plain,fails,killed,removes,unseen,short,lost,silent,longer,saving"
    ended = comparing.run("--repeats", "1", "--json", engine=engines)
    text = "\n".join(ended.told)
    assert ended.code == 1
    log = f"{comparing.output}/runs/every=5_engine=fails-"
    assert f"failed        every=5, engine=fails in block 1: failed: exit code 1: ValueError: no such layer (its log: {log}" in text  # fmt: skip
    assert "                | ====" in ended.told
    assert "every=5, engine=killed in block 1: failed: signal 9" in text
    assert "every=5, engine=unseen in block 1: no rank reported" in text
    assert "every=5, engine=removes in block 1: its log was removed while it ran" in text
    assert "left out      every=5, engine=short in block 1: it has 4 steps, and the first 4 do not count" in text  # fmt: skip
    assert "left out      every=5, engine=lost in block 1: a rank was killed" in text
    assert "every=5, engine=silent: the probe saw no save" in text
    assert "every=5, engine=longer: 1 of 1 baselines made different numbers of steps than their runs (30 and 22)" in text  # fmt: skip
    assert "baseline, engine=saving: the baseline saved too (up to 2 times)" in text
    assert "note          one block: no intervals" in text
    rows = ended.rows
    assert number(rows["every=5, engine=plain"], "stall_s") == pytest.approx(0.02)
    assert math.isnan(number(rows["every=5, engine=plain"], "stall_s_lo"))
    assert rows["every=5, engine=fails"]["runs"] == "0"
    assert rows["baseline, engine=fails"]["runs"] == "1"
    beside_saves, alone = (number(rows[f"every=5, engine={one}"], "in_run") for one in ("saving", "plain"))  # fmt: skip
    assert beside_saves == pytest.approx(alone), (
        "what the baseline's own saves take is no evaluation"
    )
    assert (rows["every=5, engine=longer"]["paired"], rows["every=5, engine=longer"]["overhead_from"]) == ("", "in_run")  # fmt: skip
    reasons = {one["run"]: one["reason"] for one in json.loads(ended.out)["failed"]}
    assert set(reasons) == {f"{one} in block 1" for one in ("every=5, engine=fails", "every=5, engine=killed", "every=5, engine=removes", "baseline, engine=removes", "every=5, engine=unseen", "baseline, engine=unseen")}  # fmt: skip
    assert (comparing.output / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_whose_traces_are_gone_is_left_out(comparing: Comparing) -> None:
    comparing.run("--repeats", "2")
    next(comparing.output.glob("runs/every=5*block2/trace-*")).unlink()
    ended = comparing.run("--repeats", "2")
    assert ended.code == 1
    assert ended.line("left out").startswith("left out      every=5, engine=plain in block 2: its traces are missing: remove")  # fmt: skip
    assert ended.rows["every=5, engine=plain"]["runs"] == "1"


def test_a_run_whose_traces_another_version_wrote_is_left_out(comparing: Comparing) -> None:
    comparing.run("--repeats", "2")
    (trace,) = comparing.output.glob("runs/every=5*block2/trace-*")
    trace.write_text(trace.read_text().replace('"format":', '"format":9', 1))
    ended = comparing.run("--repeats", "2", "--json")
    assert ended.code == 1
    assert ended.line("left out").endswith(f"move it out of the folder, or remove {trace.parent} to make the run again")  # fmt: skip
    assert [one["run"] for one in json.loads(ended.out)["left_out"]] == ["every=5, engine=plain in block 2"]  # fmt: skip
    assert ended.rows["every=5, engine=plain"]["runs"] == "1"


def test_a_comparison_goes_on_when_its_terminal_is_closed(comparing: Comparing) -> None:
    (comparing.bench.folder / "wait").touch()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    try:
        started = comparing.start("--repeats", "1", engine="waits")
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for(lambda: with_folder(str(comparing.output / "runs" / "every=5_engine=waits")))
    started.send_signal(signal.SIGHUP)
    (comparing.bench.folder / "wait").unlink()
    _, err = started.communicate(timeout=60)
    assert started.returncode == 0, err


def test_a_run_that_failed_is_made_again(comparing: Comparing) -> None:
    assert comparing.run("--repeats", "1", engine="fails").code == 1
    before = comparing.began()
    script = comparing.bench.folder / "train.py"
    kept = script.stat()
    assert comparing.run("--repeats", "1", engine="fails").code == 1
    after = comparing.began()
    again = {name for name, when in after.items() if when != before[name]}
    assert {name.split("-")[0] for name in again} == {"every=5_engine=fails"}
    assert script.stat().st_mtime_ns == kept.st_mtime_ns


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_comparison_that_is_ended_goes_on_where_it_was(
    comparing: Comparing, number: signal.Signals
) -> None:
    (comparing.bench.folder / "wait").touch()
    started = comparing.start("--repeats", "1", every="5", engine="plain,waits")
    mark = str(comparing.output / "runs" / "every=5_engine=waits")
    wait_for(lambda: with_folder(mark))
    refused = comparing.run("--repeats", "1", every="5", engine="plain,waits")
    assert refused.code == 2
    assert refused.told[0].startswith(f"another comparison runs in {comparing.output}: wait for it")
    started.send_signal(number)
    _, err = started.communicate(timeout=60)
    wait_for(lambda: not with_folder(mark))
    if number != signal.SIGKILL:
        assert started.returncode == 128 + number
        assert "stopped: 3 of 4 runs are done and kept; the same command continues" in err
    before = comparing.began()
    assert len(before) == 3
    (comparing.bench.folder / "wait").unlink()
    again = comparing.run("--repeats", "1", every="5", engine="plain,waits")
    assert again.code == 0
    assert "3 of 4 runs are done and kept" in again.told
    assert before.items() <= comparing.began().items()
    assert number_of_runs(again) == {"1"}


def test_what_a_killed_comparison_left_running_is_ended(comparing: Comparing) -> None:
    mark = comparing.output / "runs" / "any-block1"
    variables = comparing.bench.environment(CKPTBENCH_PROBE_FOLDER=str(mark))
    left = subprocess.Popen(["sleep", "600"], env=variables)
    wait_for(lambda: with_folder(str(mark)))
    told = comparing.run("--repeats", "1").told
    assert left.wait(10) == -signal.SIGTERM
    assert told[0] == "1 process of a comparison that was killed still ran, and was ended"


def number_of_runs(compared: Compared) -> set[str]:
    return {row["runs"] for row in compared.rows.values()}


def with_folder(start: str) -> list[str]:
    """Living processes that are measured into a folder that begins so."""
    mark = f"CKPTBENCH_PROBE_FOLDER={start}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(one.startswith(mark) for one in variables):
                found.append(entry.name)
    return found


def wait_for(condition: Any, limit_s: float = 60.0) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


GOOD = ["--value", "every=5,10", "--baseline", "every=0"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*GOOD, "--", "sh", "{folder}", "{evry}"], "{evry} in the command has no values: add --value evry=..., or correct the name"),
        ([*GOOD, "--", "sh", "{folder}"], "--value every: the command has no {every}: write it where the value goes"),
        ([*GOOD, "--", "sh", "{every}"], "the command has no {folder}, so runs would find one another's checkpoints"),
        ([*GOOD, "--"], "--value every: the command has no {every}"),
        ([*GOOD, "--", "no-such", "{folder}", "{every}"], "no-such: no such program: correct the command after --"),
        ([*GOOD, "--", "sh", "{folder}", "{every}", "--value", "a=1"], ""),
        (["--", "sh", "{folder}"], "nothing to compare: name values, as in --value interval=10,20"),
        ([*GOOD[:2], "--", "sh", "{folder}", "{every}"], "no baseline: name values with which nothing is saved"),
        ([*GOOD[:2], "--baseline", "evry=0", "--", "sh", "{folder}", "{every}"], "--baseline evry=0: no --value has the name evry: use one of every"),
        ([*GOOD[:2], "--baseline", "every=10", "--", "sh", "{folder}", "{every}"], "baseline and every=10 are the same command: leave one of the two out"),
        (["--value", "every=5,5", *GOOD[2:], "--", "sh", "{folder}", "{every}"], '--value every=5,5: "5" is there twice: remove one'),
        (["--value", "every", "--", "sh", "{folder}"], "--value every: write a name of letters, digits and _, and what it stands for"),
        (["--value", "folder=a", "--", "sh", "{folder}"], "--value folder=a: {folder} is a fresh folder for each run: use another name"),
        (["--value", "every='5", *GOOD[2:], "--", "sh", "{folder}", "{every}"], "every='5: quotes in a value must come in pairs"),
        ([*GOOD, "--folder", "/proc/none", "--", "sh", "{folder}", "{every}"], "/proc/none cannot be written to (No such file or directory)"),
    ],
)  # fmt: skip
def test_bad_words_are_told_in_one_line_before_anything_runs(
    words: list[str], told: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ckptbench_probe.harmless._SAID", set())
    with pytest.raises(SystemExit) as ended:
        main(["compare", *(["-n"] if not told else []), *words])
    assert ended.value.code == (2 if told else 0)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == bool(told)
    assert all(line.startswith(TOLD + told) for line in lines)
    assert not list(tmp_path.iterdir())


def test_one_task_of_many_is_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2"):
        main(["compare", *GOOD, "--", "sh", "{folder}", "{every}"])
    assert "start it once, with srun after --" in capfd.readouterr().err


def test_a_baseline_is_made_for_each_combination_of_the_values_that_it_leaves() -> None:
    command = ["sh", "{folder}", "{every}", "{engine}", "{flags}"]
    values = {"every": ["5"], "engine": ["a", "b"], "flags": ["", "--x '1 2'"]}
    block = expand(command, values, {"every": "0", "flags": ""})
    assert [one.label for one in block if not one.baseline] == ["baseline, engine=a", "baseline, engine=b"]  # fmt: skip
    assert block[0].words == ("sh", "{folder}", "0", "a")
    assert block[2].words == ("sh", "{folder}", "5", "a", "--x", "1 2")
    assert block[2].command(Path("/c d")) == ["sh", "/c d", "5", "a", "--x", "1 2"]
    order = in_blocks(block, 2)
    assert [one for _, one in order] == [*block, *block[::-1]]


def test_intervals_are_students() -> None:
    """Quantiles of NIST's table; an interval by hand: of 1, 2 and 3, the mean 2 and 4.303 times a deviation of 1 over the root of 3."""
    assert (student(1), student(2), student(10), student(30), student(31)) == (12.706, 4.303, 2.228, 2.042, 1.96)  # fmt: skip
    found = estimate([-1.0, 0.0, 1.0])
    assert found is not None
    assert (found.mean, found.hi) == pytest.approx((0.0, 4.303 / math.sqrt(3)))
    found = estimate([math.e, math.e**2, math.e**3])
    assert found is not None
    assert found.hi / found.mean == pytest.approx(found.mean / found.lo) or found.lo < 0
    logs = estimate([1.0, 2.0, 4.0])
    assert logs is not None
    assert math.log(logs.hi / logs.mean) == pytest.approx(4.303 * math.log(2) / math.sqrt(3))
    ratio = estimate([1.0, 3.0], [1.0, 2.0])
    assert ratio is not None
    assert ratio.mean == pytest.approx(4 / 3)
    assert estimate([]) is None
