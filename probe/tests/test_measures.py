"""What is computed from traces, against what is computed by hand."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from traces import Written, at

from ckptbench_probe import chrome
from ckptbench_probe.costs import costs, text
from ckptbench_probe.dangers import dangers
from ckptbench_probe.measures import Measures, measure
from ckptbench_probe.reading import UnreadableError, read
from ckptbench_probe.screen import screen
from ckptbench_probe.statistics import seconds


def measured(folder: Path) -> Measures:
    return measure(read(folder))


def told(folder: Path) -> str:
    run = read(folder)
    return "\n".join(screen(run, measure(run), []))


def test_stall_and_slowdown_of_an_asynchronous_save(tmp_path: Path) -> None:
    """Steps of 1 s. A save blocks 0.5 s at second 6 and goes on until 8.2; the three gaps that it touches are 1.7, 1.3 and 1 s."""
    rank = Written().updates(1, 2, 3, 4, 5, 6, 7.7, 9, 10, 11, 12)
    rank.save(6.0, 6.5, finished=8.2, after=6, kind="dcp.async_save").ended(12)
    (one,) = measured(rank.into(tmp_path)).checkpoints
    assert one.stall_s == pytest.approx(0.5)
    assert one.slowdown_s == pytest.approx(0.7 + 0.3 - 0.5)
    assert one.gaps == 2
    assert one.finished_s == pytest.approx(2.2)
    assert one.background


def test_a_save_that_failed_is_no_time_of_a_checkpoint(tmp_path: Path) -> None:
    rank = Written().updates(1, 2, 3, 4, 5).save(5.0, 5.4, after=5).updates(6.4, 7.4)
    rank.save(7.4, 9.4, after=7, path="/c/two.pt").updates(10.4, 11.4).ended(12)
    rank.events[-4]["failed"] = True
    measures = measured(rank.into(tmp_path))
    assert [one.failed for one in measures.checkpoints] == [False, True]
    assert measures.stall is not None
    assert (measures.stall.number, measures.stall.mean) == (1, pytest.approx(0.4))
    assert measures.share is not None  # training has waited for it all the same
    assert measures.share * measures.run_s == pytest.approx(0.4 + 2.0, abs=1e-3)


def test_a_gap_beside_two_saves_counts_for_the_one_that_it_begins_before(tmp_path: Path) -> None:
    """The first save is still under way when the second one begins. Their gaps are 1.5 and 1.6 s."""
    rank = Written().updates(1, 2, 3, 4, 5, 6, 7.5, 9.1, 10.1, 11.1)
    rank.save(6.0, 6.1, finished=8.5, after=6).save(7.5, 7.8, finished=8.9, after=7).ended(12)
    first, second = measured(rank.into(tmp_path)).checkpoints
    assert (first.gaps, second.gaps) == (1, 1)
    assert first.slowdown_s == pytest.approx(0.5 - 0.1)
    assert second.slowdown_s == pytest.approx(0.6 - 0.3)


def test_the_stall_is_that_of_the_slowest_rank(tmp_path: Path) -> None:
    for number, end in enumerate((6.2, 6.6, 6.4)):
        rank = Written(rank=number, ranks=3, pid=100 + number).updates(1, 2, 3, 4, 5, 6, 7.6, 8.6)
        rank.save(6.0, end, after=6, path=f"/c/rank{number}.pt").ended(9).into(tmp_path)
    measures = measured(tmp_path)
    (one,) = measures.checkpoints
    assert measures.ranks == 3
    assert one.stall_s == pytest.approx(0.6)
    assert one.slowdown_s == pytest.approx(0.0)
    assert not one.background


def test_several_files_between_two_updates_are_one_checkpoint(tmp_path: Path) -> None:
    rank = (
        Written()
        .updates(1, 2, 3, 4, 5)
        .save(5.0, 5.1, after=5, path="/c/model.pt", sizes={"float32": 8}, clean=5.4, size=10)
    )
    rank.save(
        5.1,
        5.3,
        after=5,
        path="/c/optimizer.pt",
        sizes={"float32": 16, "int64": 8},
        clean=5.9,
        size=26,
    ).updates(6.3, 7.3)
    (one,) = measured(rank.into(tmp_path)).checkpoints
    assert one.stall_s == pytest.approx(0.3)
    assert one.bytes == {"float32": 24, "int64": 8}
    assert (one.files, one.size) == (2, 36)
    assert one.clean_s == pytest.approx(0.9)


def test_a_save_on_another_thread_is_no_stall(tmp_path: Path) -> None:
    rank = Written().updates(1, 2, 3, 4, 5, 6.4, 7.4).save(5.1, 6.0, after=5, stepping=False)
    (one,) = measured(rank.into(tmp_path)).checkpoints
    assert one.stall_s == 0
    assert one.slowdown_s == pytest.approx(0.4)
    assert one.background


def test_nothing_hidden_is_said_where_no_update_follows(tmp_path: Path) -> None:
    rank = Written().updates(1, 2, 3, 4, 5).save(5.0, 5.5, after=5).ended(6)
    measures = measured(rank.into(tmp_path))
    assert measures.checkpoints[0].slowdown_s is None
    assert measures.slowdown is None
    assert measures.run_s == pytest.approx(4.5)
    assert measures.share == pytest.approx(0.5 / 4.5)


def test_the_first_gaps_and_those_beside_saves_are_no_step_time(tmp_path: Path) -> None:
    rank = Written().updates(1, 11, 16, 18, 19, 20, 23, 24).save(20.0, 22.0, after=6)
    assert measured(rank.into(tmp_path)).step_s is not None
    step = measured(tmp_path).step_s
    assert step is not None
    assert (step.median, step.most, step.number) == (pytest.approx(1.0), pytest.approx(1.0), 3)


def test_a_restart_is_another_attempt(tmp_path: Path) -> None:
    Written(pid=1).updates(1, 2, 3, 4).save(4.0, 4.1, after=4).into(tmp_path)
    second = Written(pid=2, boot="boot1", unix_ns=1_700_000_060_000_000_000)
    second.updates(1, 2, 3, 4, 5).save(4.0, 4.1, after=4).ended(6).into(tmp_path)
    measures = measured(tmp_path)
    assert (measures.attempts, measures.ranks, measures.updates, measures.killed) == (2, 1, 9, 1)
    assert [one.attempt for one in measures.checkpoints] == [0, 1]
    assert measures.interval_steps == 4


@pytest.mark.parametrize(
    ("born", "restarts", "starts"),
    [
        (0.5, 0, 1),  # it lived beside the first, whose last steps are not in its trace
        (1.5, 0, 2),
        (0.5, 1, 2),  # on another node, whose clock is behind
    ],
)
def test_a_rank_that_was_born_before_the_last_step_of_another_is_of_the_same_start(
    born: float, restarts: int, starts: int, tmp_path: Path
) -> None:
    Written(rank=0, pid=1).updates(1).into(tmp_path)
    second = Written(rank=0 if restarts else 1, pid=2, born=born, opened=2.0, restarts=restarts)
    second.updates(2, 3, 4, 5).ended(6).into(tmp_path)
    measures = measured(tmp_path)
    assert (measures.attempts, measures.ranks) == (starts, 3 - starts)


def test_ranks_that_say_no_number_are_told_apart_by_their_process(tmp_path: Path) -> None:
    for pid in (7, 8):
        Written(rank=None, pid=pid).updates(1, 2, 3, 4, 5).ended(6).into(tmp_path)
    assert measured(tmp_path).ranks == 2


def test_nodes_whose_clocks_differ_are_put_on_one(tmp_path: Path) -> None:
    """The monotonic clocks of two nodes have nothing in common: the time of day at the start of each does."""
    Written(rank=0).updates(1, 2, 3, 4, 5).save(5.0, 5.5, after=5).updates(6.5, 7.5).into(tmp_path)
    late = Written(
        rank=1, pid=200, host="node1", boot="boot1", unix_ns=1_700_000_000_000_000_000 + 10**9
    )
    late.updates(1, 2, 3, 4, 5.5).save(4.0, 4.8, after=5).into(tmp_path)
    (one,) = measured(tmp_path).checkpoints
    assert measured(tmp_path).attempts == 1
    assert one.stall_s == pytest.approx(0.8)
    assert one.finished_s == pytest.approx(0.8)


def test_accumulation_and_skipped_updates_are_told(tmp_path: Path) -> None:
    rank = Written().updates(1, 2, 3, 4, 5, backwards=20).add("skipped", updates=[1, 3])
    rank.into(tmp_path)
    assert measured(tmp_path).backwards_per_update == 4
    assert "the scaler left out 2 updates" in told(tmp_path)
    assert "4.0 backward passes a step" in told(tmp_path)


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    rank = Written().updates(1, 2, 3).into(tmp_path, torn='{"event":"save","sa')
    assert measured(rank).updates == 3


def test_a_save_that_a_kill_cut_off_counts_as_unfinished(tmp_path: Path) -> None:
    rank = Written().updates(1, 2, 3, 4, 5).save(5.0, None, after=5).into(tmp_path)
    assert measured(rank).checkpoints[0].finished_s is None
    assert "1 of 1 checkpoints were never reported as finished" in told(rank)
    assert "1 of 1 processes did not end by themselves" in told(rank)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}\n", "is not a trace of this version"),
        ('{"event":"process","format":99}\n', "is not a trace of this version"),
    ],
)
def test_a_foreign_trace_is_refused_in_one_line(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "trace-other.jsonl").write_text(content)
    with pytest.raises(UnreadableError, match=words):
        read(tmp_path)


def test_a_folder_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="is not a folder"):
        read(tmp_path / "none")


def test_nothing_seen_is_said(tmp_path: Path) -> None:
    assert told(tmp_path).startswith("no rank reported")
    Written(pid=3).save(1.0, 2.0).into(tmp_path)
    assert "1 save by processes that train nothing" in told(tmp_path)


def test_a_training_that_never_saves_is_told(tmp_path: Path) -> None:
    lines = told(Written().updates(1, 2, 3, 4, 5).ended(6).into(tmp_path)).splitlines()
    assert lines[1].startswith("checkpoints   none seen")


def test_a_training_that_saves_once_is_told(tmp_path: Path) -> None:
    rank = Written().updates(1, 2, 3, 4, 5).save(5.0, 5.5, after=5).updates(6.5).ended(7)
    assert "stall         500 ms (once)" in told(rank.into(tmp_path))


def test_a_commit_record_that_is_synced_too_early_is_told(tmp_path: Path) -> None:
    rank = (
        Written().updates(1, 2, 3, 4, 5).save(5.0, 5.5, after=5, kind="dcp.save", path="/c/step-5")
    )
    for size, final in ((0, 995), (94, 94)):
        rank.add(
            "synced",
            at_ns=rank.events[-1]["at_ns"],
            begun_ns=0,
            path="/c/step-5/.metadata.tmp",
            size=size,
        )
        rank.add(
            "moved",
            at_ns=rank.events[-1]["at_ns"] + 1,
            path="/c/step-5/.metadata",
            source="/c/step-5/.metadata.tmp",
            size=final,
        )
    assert "DCP has synced .metadata before all of it was handed to the kernel (1 times)" in told(
        rank.into(tmp_path)
    )


@pytest.mark.parametrize(("removed_at", "unsafe"), [(9.2, True), (10.5, False)])
def test_no_checkpoint_on_disk_meanwhile_is_told(
    removed_at: float, unsafe: bool, tmp_path: Path
) -> None:
    rank = (
        Written()
        .updates(1, 2, 3, 4, 5)
        .save(5.0, 5.1, after=5, path="/c/old.ckpt")
        .updates(6, 7, 8, 9)
    )
    rank.save(9.0, 9.1, finished=10.0, after=9, path="/c/new.ckpt").updates(10, 11)
    for later_ns in (0, 1000):  # a folder: as a tree, and then as an empty folder
        at_ns = at(removed_at) + later_ns
        rank.add("removed", at_ns=at_ns, path="/c/old.ckpt")
    run = read(rank.into(tmp_path))
    assert (
        any(
            line.startswith("1 times the last whole checkpoint was removed")
            for line in dangers(run, measure(run))
        )
        is unsafe
    )


def test_the_interval_of_a_slowdown_reaches_below_zero_where_its_values_do() -> None:
    """Of -2, 0 and 5 s: their mean of 1 s, give or take 4.303 times the standard deviation of 3.606 s over the root of 3."""
    known = seconds([-2.0, 0.0, 5.0])
    assert known is not None
    assert (known.lo, known.hi) == pytest.approx((1 - 8.957, 1 + 8.957), abs=0.002)


@pytest.mark.parametrize(
    ("paths", "moved", "times"),
    [
        (("/c/one.pt", "/c/one.pt", "/c/one.pt"), None, 2),
        (("/c/one.pt", "/c/two.pt", "/c/one.pt"), None, 0),
        (("/c/new.pt", "/c/new.pt", "/c/new.pt"), ("/c/new.pt", "/c/last.pt"), 0),
        (("/c/new/a.pt", "/c/new/a.pt", "/c/new/a.pt"), ("/c/new", "/c/last"), 0),
    ],
)
def test_a_last_checkpoint_that_is_overwritten_in_place_is_told(
    paths: tuple[str, ...], moved: tuple[str, str] | None, times: int, tmp_path: Path
) -> None:
    rank = Written().updates(1)
    for number, path in enumerate(paths, start=1):
        rank.save(number, number + 0.2, after=number, path=path)
        if moved is not None:
            source, target = moved
            rank.add("moved", at_ns=at(number + 0.3), path=target, source=source, size=9)
        rank.updates(number + 1)
    words = "times the only whole checkpoint was overwritten in place"
    assert (f"{times} {words}" in told(rank.into(tmp_path))) is (times > 0)
    assert (words in told(tmp_path)) is (times > 0)


def test_costs_are_means_and_a_blocking_save_pays_for_its_whole_gap(tmp_path: Path) -> None:
    """The first save allocates what the others find there: it counts only where it is alone. Nor does it matter when the kernel writes files back."""
    rank = Written().updates(1, 2, 3, 4, 5).save(5.0, 5.4, after=5).updates(6.6, 7.6, 8.6)
    alone = costs(measured(rank.ended(9).into(tmp_path / "one")))
    assert alone is not None
    assert alone.stall.mean == pytest.approx(0.6)
    rank = Written().updates(1, 2, 3, 4, 5).save(5.0, 7.4, after=5).updates(8.6, 9.6, 10.6)
    rank.save(10.6, 11.0, after=8, clean=40.0).updates(12.2, 13.2, 14.2)
    rank.save(14.2, 14.4, after=11).updates(15.6, 16.6).ended(17)
    known = costs(measured(rank.into(tmp_path / "three")))
    assert known is not None
    assert known.stall.mean == pytest.approx((0.6 + 0.4) / 2)
    assert known.durable.mean == known.stall.mean
    assert known.slowdown_s == 0
    assert known.interval_steps == 3
    assert known.down_s == pytest.approx(6.0)
    assert "title: \"a: 'b'\"" in text(known, title="a: 'b'", gpus=4)


def test_noise_on_both_sides_of_a_quiet_step_is_no_slowdown(tmp_path: Path) -> None:
    """Nor does the last save count as without slowdown, as no step follows it."""
    rank, now = Written(), 1.0
    moments, saves = [now + step for step in range(5)], []
    now = moments[-1]
    for save in range(6):
        saves.append(now + 0.1)
        for gap in (1.2 + 0.2 * (-1) ** save, 1.0, 1.0):
            moments.append(now := now + gap)
    rank.updates(*moments)
    for number, begun in enumerate([*saves[:5], now + 0.1]):
        rank.save(begun, begun + 0.1, finished=begun + 0.5, after=5 + 3 * number)
    known = costs(measured(rank.ended(now + 2).into(tmp_path)))
    assert known is not None
    assert known.slowdown_s == pytest.approx(0.1, abs=1e-5)


def test_the_chrome_trace_has_the_form_that_its_viewers_read(tmp_path: Path) -> None:
    """Trace Event Format: each phase with the fields that it needs, asynchronous pairs that match, spans of a track that do not cross."""
    rank = (
        Written().updates(1, 2, 3, 4, 5, 6.6, 7.6).save(5.0, 5.4, finished=6.2, after=5, clean=6.3)
    )
    rank.add(
        "moved", at_ns=5_000_000_000_000 + 6_250_000_000, path="/c/latest", source="/c/tmp", size=1
    )
    chrome.write(read(rank.into(tmp_path)), tmp_path / "trace.json")
    content = json.loads((tmp_path / "trace.json").read_text())
    events: list[dict[str, Any]] = content["traceEvents"]
    assert content["displayTimeUnit"] == "ms"
    assert {event["ph"] for event in events} == {"M", "X", "b", "e", "i"}
    for event in events:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["name"], str)
        assert event["ph"] == "M" or event["ts"] >= 0
    opened = {event["id"]: event["ts"] for event in events if event["ph"] == "b"}
    closed = {event["id"]: event["ts"] for event in events if event["ph"] == "e"}
    assert opened.keys() == closed.keys()
    assert all(opened[key] < closed[key] for key in opened)
    spans = sorted(
        (e["pid"], e["tid"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"
    )
    for before, after in zip(spans, spans[1:]):
        assert before[:2] != after[:2] or before[3] <= after[2] + 1e-3
    stall = next(event for event in events if event["ph"] == "X" and event["name"] == "torch.save")
    assert (stall["ts"], stall["dur"]) == (pytest.approx(4e6), pytest.approx(4e5))


def test_a_thousand_ranks_are_read_in_one_go(tmp_path: Path) -> None:
    moments = [step * 0.25 for step in range(1, 401)]
    for number in range(1024):
        rank = Written(
            rank=number,
            ranks=1024,
            pid=1000 + number,
            host=f"node{number // 8}",
            boot=f"boot{number // 8}",
        )
        rank.updates(*moments)
        rank.save(100.0, 100.0 + number / 1024, after=400, path="/c/step-400").into(tmp_path)
    begun = time.perf_counter()
    measures = measured(tmp_path)
    print(f"1,024 ranks with 400 updates each were read in {time.perf_counter() - begun:.1f} s")
    assert (measures.ranks, measures.updates, len(measures.checkpoints)) == (1024, 400, 1)
    assert measures.stall is not None
    assert measures.stall.mean == pytest.approx(1023 / 1024)


def test_bytes_that_only_the_background_part_was_given_are_those_of_the_save(
    tmp_path: Path,
) -> None:
    rank = Written().updates(1, 2).save(2.0, 2.1, finished=2.6, after=2).updates(3, 4)
    (begun,) = (event for event in rank.events if event["event"] == "save")
    rank.add("part", **{name: begun[name] for name in ("save", "start_ns", "path")})
    rank.add("part_end", save=begun["save"], end_ns=begun["start_ns"], bytes={"float32": 8}, failed=False)  # fmt: skip
    (checkpoint,) = measured(rank.into(tmp_path)).checkpoints
    assert checkpoint.bytes == {"float32": 8}


def test_every_reason_is_told_why_no_file_was_seen_written(tmp_path: Path) -> None:
    rank = Written().updates(1, 2)
    for after, state in ((2, "gone"), (3, "not yet when the process ended"), (4, "gone")):
        rank.save(after, after + 0.1, after=after).updates(after + 1)
        saves = [event["save"] for event in rank.events if event["event"] == "save"]
        rank.add("clean", save=saves[-1], at_ns=at(5), state=state, files=0, size=0, file_system="ext4", memory_bytes=0)  # fmt: skip
    run = read(rank.ended(6).into(tmp_path))
    (line,) = (line for line in screen(run, measure(run), []) if line.startswith("to storage"))
    assert line.endswith(
        "wrote the files: removed before that (2 of 3), not yet when the process ended (1 of 3)"
    )
