"""The whole study with every framework and the small network: from nothing to figures."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from checkout import Checkout
from selection import DRAWN, FULL
from warm.environments import warm_environments

from ckptbench.analysis.tables.registry import EVERY
from ckptbench.matrix.registry import on_any_ranks
from ckptbench.report.figures import FIGURES

TINY = "config/studies/tiny.yaml"
TABLES = ("overhead", "sizes", "scaling", "stall", "strategies", "timeline")
FRAMEWORKS = on_any_ranks()
"""Those that `all` in a config stands for."""

ONE_RANK = [] if FULL else [name for name in FRAMEWORKS if name not in ("chainer", "pytorch")]
LEFT_OUT = [{"framework": ONE_RANK, "ranks": 2}] if ONE_RANK else []
"""Two ranks of the others train in test_determinism.py. One of those that are left is started by an mpiexec."""

pytestmark = pytest.mark.frameworks(*FRAMEWORKS)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the tiny study has been run to its end.

    One run of each framework starts in its real environment, as all of a user's do; with two ranks test_resume.py does
    so, and on several nodes the tests with Slurm. The other runs fork warm processes. Each cell runs once: intervals need repeats, which `make
    test-full` has.
    """
    checkout = Checkout.make(tmp_path_factory.mktemp("study") / "checkout")
    some = checkout.folder / "config/studies/some.yaml"
    tiny = yaml.safe_load((checkout.folder / TINY).read_text())
    if not FULL:
        tiny |= {"repeats": 1, "exclude": LEFT_OUT}
        (checkout.folder / TINY).write_text(yaml.safe_dump(tiny))
    tiny["matrix"] |= {"ranks": [1], "interval": ["never"]}
    some.write_text(yaml.safe_dump({**tiny, "repeats": 1, "exclude": []}))
    cold = checkout.run("runs", study="config/studies/some.yaml")
    assert cold.returncode == 0, cold.stdout
    sealed = checkout.seals()
    assert len(sealed) == len(FRAMEWORKS)
    checkout.change_environments(warm_environments())
    result = checkout.run(cold=True)
    assert result.returncode == 0, result.stdout
    assert sealed.items() < checkout.seals().items()
    (checkout.folder / "output.txt").write_text(result.stdout)
    return checkout


def test_every_cell_ends_sealed_and_complete(done: Checkout) -> None:
    runs = done.table("runs")
    assert set(runs["run"]) == set(done.seals())
    assert set(runs["framework"]) == set(FRAMEWORKS)
    assert set(runs["ranks"]) == {1, 2}
    assert (runs["timing_valid"]).all()


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_there_as_parquet_and_csv_with_rows_of_every_framework(
    done: Checkout, table: str
) -> None:
    frame = done.table(table)
    assert set(frame["framework"]) == set(FRAMEWORKS)
    assert (done.folder / "results" / "tables" / f"{table}.csv").stat().st_size > 100


def test_every_figure_that_says_something_is_there_as_pdf_and_png_with_its_caption(
    done: Checkout,
) -> None:
    assert all(done.is_drawn(figure) for figure in DRAWN)
    figures = done.folder / "results" / "figures"
    assert {path.stem for path in figures.iterdir()} == set(DRAWN)
    assert "Measured on CPU" in " ".join((figures / "overhead.txt").read_text().split())


def test_the_decision_needs_no_training_and_says_how_often(done: Checkout) -> None:
    seals = done.seals()
    answer = done.folder / "results" / "answer.txt"
    for path in (answer, done.folder / "results/tables/advice.parquet"):
        path.unlink()
    decided = done.make_target("decide")
    assert decided.returncode == 0, decided.stdout
    assert done.seals() == seals
    assert decided.stdout.endswith(answer.read_text())
    assert done.make_target("decide").stdout.endswith(answer.read_text()), "asked again"
    assert answer.read_text().startswith("How often to checkpoint: ")
    assert done.is_drawn("advice")
    figures = done.folder / "results/figures"
    assert not list(figures.glob("scale.*")), "a projection that nobody asked for"
    advice = done.table("advice")
    assert set(advice["framework"]) == set(FRAMEWORKS)
    assert advice["goodput"].between(0, 1).all()
    assert (advice["projected"] == (advice["gpus"] > advice["ranks"])).all()


def test_both_estimates_of_overhead_are_numbers(done: Checkout) -> None:
    overhead = done.table("overhead")
    assert overhead[["paired", "in_run"]].notna().all(axis=None)
    assert overhead[["in_run_lo", "in_run_hi"]].notna().all(axis=None) == FULL, "one run has none"
    assert (overhead["in_run"] > 0).all()


def test_a_checkpoint_weighs_at_least_what_its_state_must_have(done: Checkout) -> None:
    sizes = done.table("sizes")
    assert (
        sizes["main_bytes"] >= sizes["state_model_bytes"] + sizes["state_optimizer_bytes"]
    ).all()


def test_stalls_are_at_least_the_write_and_epochs_at_least_their_stalls(done: Checkout) -> None:
    checkpoints, epochs = done.table("checkpoints"), done.table("epochs")
    writing = checkpoints[checkpoints["write_s"].notna()]
    assert (writing["stall_s"] >= writing["write_s"]).all()
    assert (writing["durable_s"] > writing["write_s"]).all()
    stalls = checkpoints.groupby(["run", "rank", "epoch"])["stall_s"].sum()
    durations = epochs.set_index(["run", "rank", "epoch"])["duration_s"]
    assert (durations.loc[stalls.index] > stalls).all()


def test_a_second_call_has_nothing_to_do(done: Checkout) -> None:
    sealed = done.seals()
    result = done.run()
    assert "Nothing to be done" in result.stdout
    assert done.seals() == sealed


def write_fewer(done: Checkout) -> None:
    """A config that overrides the study's: without the runs of PyTorch on two ranks."""
    fewer = {"exclude": [*LEFT_OUT, {"ranks": 2, "framework": "pytorch"}]}
    (done.folder / "fewer.yaml").write_text(yaml.safe_dump(fewer))


def planned_jobs(output: str) -> set[str]:
    return set(re.findall(r"^(\w+) +\d+$", output, re.MULTILINE))


def test_a_copy_trains_nothing_whatever_the_times_of_its_files(
    done: Checkout, tmp_path: Path
) -> None:
    """Copied without the times of files, and without what Snakemake noted."""
    copy = Checkout.make(tmp_path / "copy", environments=warm_environments())
    shutil.copy(done.folder / TINY, copy.folder / TINY)
    results = done.folder / "results"
    shutil.copytree(results, copy.folder / "results", copy_function=shutil.copyfile)
    for path in (copy.folder / "results/datasets").rglob("*.json"):
        path.touch()
    assert "train_cell" not in planned_jobs(copy.run("-n").stdout)


def test_other_settings_make_again_what_they_are_of(done: Checkout) -> None:
    (done.folder / "other.yaml").write_text("training: {learning_rate: 0.02}\n")
    planned = done.run("-n", study=TINY, more=["other.yaml"]).stdout
    assert re.search(rf"^train_cell +{len(done.seals())}$", planned, re.MULTILINE), planned
    assert "Params have changed" in planned

    write_fewer(done)
    planned = planned_jobs(done.run("-n", study=TINY, more=["fewer.yaml"]).stdout)
    assert {
        "collect_runs",
        "derive_tables",
        "decide",
        "write_answer",
        "write_page",
        "draw_overhead",
    } <= planned
    assert not planned & {"train_cell", "create_environment", "prepare_dataset"}


def test_runs_of_another_config_are_refused_where_nothing_notes_it(
    done: Checkout, tmp_path: Path
) -> None:
    copy = Checkout.make(tmp_path / "copy", environments=warm_environments())
    shutil.copy(done.folder / TINY, copy.folder / TINY)
    shutil.copytree(done.folder / "results", copy.folder / "results")
    (copy.folder / "other.yaml").write_text("training: {learning_rate: 0.02}\n")
    refused = copy.run(study=TINY, more=["other.yaml"])
    assert refused.returncode != 0
    assert "training.learning_rate is 0.01, the study asks for 0.02" in refused.stdout


@pytest.mark.parametrize(
    ("sources", "again", "kept"),
    [
        (
            ["report/figures/stall.py", "checkpointing/strategies/native.py"],
            {"draw_stall"},
            {
                "draw_overhead",
                "draw_advice",
                "write_answer",
                "decide",
                "collect_runs",
                "train_cell",
            },
        ),
        (["decide/formulas.py"], {"decide", "draw_advice", "write_answer"}, {"derive_tables"}),
        (["run/trace.py"], {"collect_runs", "derive_tables", "decide"}, {"train_cell"}),
    ],
)
def test_an_edit_of_the_code_makes_again_what_runs_it_and_nothing_else(
    done: Checkout,
    sources: list[str],
    again: set[str],
    kept: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = done.folder / "src"
    linked = library.readlink()
    library.unlink()
    shutil.copytree(linked, library)  # with the times of files
    monkeypatch.setenv("PYTHONPATH", str(library))
    try:
        for source in sources:
            with (library / "ckptbench" / source).open("a") as file:
                file.write("\n")
        planned = done.run("--dry-run", cold=True).stdout
    finally:
        shutil.rmtree(library)
        library.symlink_to(linked)
    jobs = planned_jobs(planned)
    assert again <= jobs, planned
    assert not kept & jobs, planned


def test_a_run_whose_folder_was_removed_is_made_again(done: Checkout, tmp_path: Path) -> None:
    runs = done.folder / "results" / "runs"
    cell = min(done.seals())
    (runs / cell).rename(tmp_path / cell)
    try:
        dry = done.run("--dry-run").stdout
    finally:
        (tmp_path / cell).rename(runs / cell)
    assert re.search(r"^train_cell +1$", dry, re.MULTILINE), dry


def test_progress_and_epochs_are_told(done: Checkout) -> None:
    assert "to do or running, among them " in (done.folder / "output.txt").read_text()
    logs = list((done.folder / "results" / "logs" / "train_cell").glob("*/rank-0.log"))
    assert len(logs) == len(done.seals())
    assert all("epoch 2 of 2: 4 steps in " in log.read_text() for log in logs)


def test_the_report_gathers_the_figures_and_begins_with_what_was_found(done: Checkout) -> None:
    result = done.run("--report", "report.html")
    assert result.returncode == 0, result.stdout
    report = (done.folder / "report.html").read_text()
    for figure in DRAWN:
        assert f"{figure}.png" in report or f"{figure}.pdf" in report
    first_page = report.partition('var workflow_desc = "')[2].partition("</script>")[0]
    parts = ("Do not quote", "<img ", "The answer of this study", "How to read this report")
    places = [first_page.index(part) for part in parts if part in first_page]
    assert len(places) >= len(parts) - 1, "what was not disturbed may be quoted"
    assert places == sorted(places)
    assert first_page.count("<img ") == len(DRAWN)
    assert "<a href" not in first_page.partition("How to read")[0]


def test_the_page_has_the_answer_and_every_figure_and_table(done: Checkout) -> None:
    page = (done.folder / "results/index.html").read_text()
    in_order = [name for name in FIGURES if name in DRAWN]
    assert re.findall(r'<figure id="(\w+)">', page) == in_order
    tables = {path.stem for path in (done.folder / "results/tables").glob("*.csv")}
    assert all(EVERY[name].title in page for name in tables)
    words = re.search(r"[0-9a-f]{8} \(config/config.yaml and config/studies/tiny.yaml\): \d+ runs; ", page)  # fmt: skip
    assert words
    assert (done.folder / "results/calculator.html").exists()


def test_a_report_of_another_config_or_without_a_page_is_refused(done: Checkout) -> None:
    write_fewer(done)
    refused = done.run("--report", "other.html", study=TINY, more=["fewer.yaml"])
    assert refused.returncode != 0
    assert re.match(
        r"results/tables is of config \w{8} \(.*, and the report is to be of config",
        refused.stdout.splitlines()[-1],
    )
    page = done.folder / "results/index.html"
    content = page.read_bytes()
    page.unlink()
    try:
        refused = done.run("--report", "other.html")
    finally:
        page.write_bytes(content)
    assert refused.returncode != 0
    assert refused.stdout.splitlines()[-1].startswith(
        "results/index.html is missing, with which a report begins"
    )
    assert not (done.folder / "other.html").exists()


def test_the_workflow_ends_with_the_answer(done: Checkout) -> None:
    answer = (done.folder / "results" / "answer.txt").read_text()
    assert answer in (done.folder / "output.txt").read_text()
    rows = [
        line
        for line in answer.splitlines()
        if re.match(r"(.*, )?[12] ranks?: saves stop for ", line)
    ]
    left_out = re.search(r"^(\d+) more rows? (?:is|are) in ", answer, re.MULTILINE)
    assert len(rows) + int(left_out[1] if left_out else 0) == 2 * len(FRAMEWORKS) - len(ONE_RANK)
    assert len(answer.splitlines()) <= 30


def test_a_changed_lock_reruns_only_the_runs_of_its_environment(done: Checkout) -> None:
    """The environment itself was made outside of this study, so that nothing notes what it was made from: its runs say so."""
    lock = done.folder / "envs" / "pytorch.txt"
    before, times = lock.read_text(), lock.stat()
    lock.write_text(before + "changed==1\n")
    cell = min(name for name in done.seals() if name.startswith("pytorch-"))
    log = done.folder / "results/logs/train_cell" / f"{cell}.log"
    try:
        planned = done.run("-n").stdout
        refused = done.run(f"results/runs/{cell}/seal.json")
    finally:
        lock.write_text(before)
        os.utime(lock, ns=(times.st_atime_ns, times.st_mtime_ns))
    trained = re.findall(r"^Job \d+: train (.*)$", planned, re.MULTILINE)
    of_pytorch = ("pytorch-", "pytorch_fsdp-")  # both run in its environment
    kept = {name for name in done.seals() if name.startswith(of_pytorch)}
    assert {*trained} == kept | {cell}  # which has lost its seal to the run that was refused
    assert refused.returncode != 0
    assert "pytorch was made from another lock than there is now" in log.read_text()
    again = done.run(f"results/runs/{cell}/seal.json")
    assert again.returncode == 0, again.stdout
    assert "it is kept" in log.read_text()


def test_a_corrupt_trace_is_named_with_its_remedy(done: Checkout, tmp_path: Path) -> None:
    run = done.folder / "results" / "runs" / sorted(done.seals())[0]
    trace = run / "trace-0.jsonl"
    content = trace.read_bytes()
    trace.write_bytes(content[:-20] + b"x" * 19 + b"\n")
    try:
        result = done.run("--forcerun", "collect_runs")
    finally:
        trace.write_bytes(content)
    assert result.returncode != 0
    assert f"{run.name}/trace-0.jsonl was changed after it was sealed" in result.stdout
    assert f"remove results/runs/{run.name} to run the cell again" in result.stdout
