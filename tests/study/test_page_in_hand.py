"""What one does with the calculator in a real Chromium: read a loss off the chart, fill it from a file, and take it away as a link, a command or on paper."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from ckptbench.cli.tables import usual
from ckptbench.cli.verbs import run
from ckptbench.decide.rates import published, read_rates
from ckptbench.decide.training_log.facts import facts_of
from ckptbench.decide.training_log.joined import read_logs
from ckptbench.decide.user_costs import read_user_costs
from ckptbench.report.answer import quantities
from ckptbench.report.page.start import payload
from tests.study.browser import Browser
from tests.study.what_if import choose, enter, enter_cost, strategies, wrong

ROOT = Path(__file__).resolve().parents[2]
COSTS = ROOT / "config" / "costs-example.yaml"
LOOKS = """const of = (each) => { const { color, fontSize, opacity } = getComputedStyle(each); return [color, fontSize, opacity].join(" "); };
return [...document.querySelectorAll("#controls :is(input:not([type=file]), select)")].map(of)"""


def test_what_is_entered_looks_entered(browser: Browser) -> None:
    """Costs of strategies as all others: in the colour of the text and 16 px, below which a phone zooms."""
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        ink = browser.run("return getComputedStyle(document.body).color")
        assert set(browser.run(LOOKS)) == {f"{ink} 16px 1"}


def test_the_names_of_lines_stand_beside_them(browser: Browser, calculator: Path) -> None:
    """Inside the chart, apart from each other. Today's interval has its name too."""
    for width in (390, 820, 1280):
        browser.shape(width, 900)
        browser.open(calculator)
        boxes = browser.run(
            """const frame = document.querySelector("#chart .role-frame .background").getBoundingClientRect();
            return [...document.querySelectorAll("#chart .labels_marks text")].map(each => { const {left, right, top, bottom} = each.getBoundingClientRect();
                return [each.textContent, left - frame.left, frame.right - right, top - frame.top, frame.bottom - bottom, left, right, top, bottom]; })"""
        )  # fmt: skip
        assert {name for name, *_ in boxes} == {"today", "blocking", "async"}
        for place, (name, *inside, left, right, top, bottom) in enumerate(boxes):
            assert min(inside) >= -1, name
            assert all(right < other[5] or other[6] < left or bottom < other[7] or other[8] < top for other in boxes[:place])  # fmt: skip
        marks = "return [...document.querySelectorAll('#chart .role-axis-label')].map(axis => [...axis.querySelectorAll('text')].filter(each => each.getAttribute('opacity') !== '0').length)"
        assert browser.run(marks) == [5, 5]


def test_a_loss_is_read_by_pointer_and_by_keys(browser: Browser, calculator: Path) -> None:
    browser.open(calculator)
    kept = browser.run("return document.getElementById('sentence').textContent")
    assert "every 9.1\u00a0min (219\u00a0steps)" in kept  # a number and its unit stand in one line
    said = browser.element("at-said")
    assert said.text == "Every 120 min (2,880 steps) loses: blocking 8.7 %, async 8.1 %."
    slider = browser.element("at")
    slider.send_keys(Keys.ARROW_LEFT)
    assert said.text != (
        before := "Every 120 min (2,880 steps) loses: blocking 8.7 %, async 8.1 %."
    )
    assert slider.get_attribute("aria-valuetext").replace("\u00a0", " ") == said.text
    assert browser.run("return view.data('read').length") == 2
    x = browser.run("return view.origin()[0] + view.scale('x')(7200)")
    chart = browser.element("chart")
    ActionChains(browser.driver).move_to_element_with_offset(chart, round(x - chart.size["width"] / 2), 0).perform()  # fmt: skip
    steps = browser.run("return view.data('at')[0].seconds / 2.5")
    assert steps == pytest.approx(2880, rel=0.02)
    lost = browser.run("return view.data('read').map(({lost}) => lost)")
    shown = browser.run("return answer(numbersOf(asked, origin)).strategies.map(({estimate}) => 1 - usefulAt(estimate, arguments[0]))", steps)  # fmt: skip
    assert lost == shown
    assert before[:8] == said.text[:8]


def assert_same_ends(shown: dict[str, Any], told: dict[str, Any], name: str) -> None:
    """Of the 95 % interval; none where the command has none."""
    for end in ("lo", "hi"):
        wanted = told[f"{name}_{end}"]
        assert shown[end] == (None if wanted is None else pytest.approx(wanted)), (name, end)


def test_the_command_that_is_copied_has_the_same_answer(
    browser: Browser, calculator: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for what_if in (
        "",
        "#from=Example%3A+8+GPUs%2C+preemptible",
        "#gpus=1,024&rate=llama3&step=2.5s&restart=1h+30min&now=500+steps&blocking=it's+all%3D61.5s&async=3s%2B90s",
        "#gpus=64&mtbf=1+day&step=2.5s&restart=9min&async=3s&state=98GB&bandwidth=1.6GB/s",
    ):
        browser.open(calculator, what_if)
        browser.element("copy-command").click()
        text = browser.run("return command(numbersOf(asked, origin))")
        browser.wait(lambda text=text: text in browser.element("copied").text)
        program, *arguments = shlex.split(text)
        assert program == "ckptbench"
        assert run([*arguments, "--json"]) == 0
        told = {each["name"]: each for each in json.loads(capsys.readouterr().out)["strategies"]}
        rows = [row for row in strategies(browser) if not str(row[0]).startswith("now: ")]
        assert {row[0] for row in rows} == {*told}
        for name, _, steps, lost, _, saved in rows:
            assert steps["value"] == told[name]["steps"]
            assert lost["value"] == pytest.approx(told[name]["loses"], rel=1e-9)
            assert_same_ends(lost, told[name], "loses")
            if saved:
                assert saved["value"] == pytest.approx(told[name]["saves_gpu_hours_a_day"])
                assert_same_ends(saved, told[name], "saves_gpu_hours_a_day")


@pytest.mark.parametrize("price", ["2.5", "$2.5", "1,000 EUR", "€0.0125"])
def test_money_is_said_as_the_command_says_it(
    browser: Browser, calculator: Path, capsys: pytest.CaptureFixture[str], price: str
) -> None:
    """Beside the GPU-hours, with and without an interval in use. A link and a print hold the price."""
    browser.open(calculator)
    assert "Money" not in browser.element("sentence").text
    for texts in ({}, {"mtbf": "1min"}, {"now": ""}):
        for name, text in ({"gpu-hour-price": price} | texts).items():
            enter(browser, name, text)
        said = browser.element("sentence").text.replace("\u00a0", " ")
        arguments = shlex.split(browser.run("return command(numbersOf(asked, origin))"))[1:]
        assert arguments[-2:] == ["--gpu-hour-price", price]
        assert run([*arguments, "--json"]) == 0
        (money,) = (each for each in json.loads(capsys.readouterr().out)["remarks"] if each.startswith("Money"))  # fmt: skip
        assert said.endswith(f" {money}")
    what_if = browser.driver.current_url.partition("#")[2]
    browser.open(calculator, f"#{what_if}")
    assert browser.element("sentence").text.replace("\u00a0", " ") == said
    printed = browser.run("return document.getElementById('printed').textContent")
    assert f"Price of a GPU-hour: {price}." in printed.replace("\u00a0", " ")
    browser.element("add").click()
    assert browser.element("sentence").text.count(" a month") == 1  # of the best one alone
    for refused in ("-2", "$0", "$2 EUR", "1,00", "free"):
        enter(browser, "gpu-hour-price", refused)
        assert wrong(browser, "gpu-hour-price").startswith("Not a price: write a number above 0")


def test_what_is_taken_away_says_what_is_the_examples(browser: Browser, calculator: Path) -> None:
    """A line above the command, which a shell skips."""
    browser.open(calculator)
    for gpus, said in (("", "Example: 7B on 256 GPUs, not your numbers"), ("64", "your GPUs; the other numbers are the example\u2019s")):  # fmt: skip
        if gpus:
            enter(browser, "gpus", gpus)
        first, second = browser.run("return toCopy(numbersOf(asked, origin))").split("\n")
        assert first == f"# '{said}'"
        assert shlex.split(first, comments=True) == []
        assert second.startswith("ckptbench decide --gpus ")
        for button in ("copy-command", "copy-link"):
            browser.element(button).click()
            browser.wait(lambda said=said: said[:20] in browser.element("copied").text)
    browser.open(calculator, "#gpus=8&mtbf=3h&step=2.5s&restart=1min&blocking=a%0A%24(rm)%27%3D60s&example=stall-1")  # fmt: skip
    first = browser.run("return toCopy(numbersOf(asked, origin))").partition("\nckptbench ")[0]
    assert first == "# 'your numbers, but the example\u2019s a $(rm)\u2019'"  # nothing that runs
    browser.open(calculator, "#gpus=8&mtbf=3h&step=2.5s&restart=1min&blocking=dcp%3D60s")
    assert browser.run("return toCopy(numbersOf(asked, origin))").startswith("ckptbench decide ")


def test_jobs_that_are_ended_are_counted(
    browser: Browser, calculator: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At their limit as the command counts them; by preemption as failures, which is said where they are entered."""
    browser.open(calculator)
    said = browser.element(browser.element("rate").get_attribute("aria-describedby"))
    assert said.text == "Preempted jobs: count preemptions as failures."  # fmt: skip
    assert 0 < said.location["y"] - browser.element("mtbf").location["y"] < 120
    enter(browser, "limit", "12h")
    assert "A job ends after 12 h: what that loses is counted." in browser.element("sentence").text
    written = browser.run("return command(numbersOf(asked, origin))")
    assert "--limit 12h" in written
    assert "limit=12h" in browser.run("return location.hash")
    assert run([*shlex.split(written)[1:], "--json"]) == 0
    for row, told in zip(strategies(browser)[1:], json.loads(capsys.readouterr().out)["strategies"], strict=True):  # fmt: skip
        assert (row[2]["value"], row[3]["value"]) == (told["steps"], pytest.approx(told["loses"]))
        assert_same_ends(row[3], told, "loses")
        assert_same_ends(row[5], told, "saves_gpu_hours_a_day")
        assert row[5]["lo"] < row[5]["value"] < row[5]["hi"], "few saves of today fit into a job"


def test_failures_with_a_warning_are_counted_as_the_command_counts_them(
    browser: Browser, calculator: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    browser.open(calculator)
    enter(browser, "warning", "80s")
    assert "the part of the failures" in wrong(browser, "announced")
    enter(browser, "announced", "80%")
    said = browser.element("sentence").text
    assert "80 % are announced 80 s before: blocking saves in time; async is too late." in said
    written = browser.run("return command(numbersOf(asked, origin))")
    assert "--warning 80s --announced 80%" in written
    assert run([*shlex.split(written)[1:], "--json"]) == 0
    for row, told in zip(strategies(browser)[1:], json.loads(capsys.readouterr().out)["strategies"], strict=True):  # fmt: skip
        assert (row[2]["value"], row[3]["value"]) == (told["steps"], pytest.approx(told["loses"]))
        ends = (told[f"fine_{end}_steps"] * 2.5 for end in ("from", "to"))
        assert row[4] == quantities.span(*ends, quantities.unit_of_time(told["fine_to_steps"] * 2.5))  # fmt: skip


def test_a_case_that_no_options_say_has_no_command(browser: Browser) -> None:
    """Slower steps beside a save were measured."""
    browser.element("copy-command").click()
    assert "for --costs" in browser.element("copied").text
    choose(browser, "from", "Example: 7B on 256 GPUs")
    enter(browser, "survived", "50 %")
    browser.element("copy-command").click()
    assert "for --costs" in browser.element("copied").text
    enter(browser, "survived", "")
    browser.driver.find_elements("css selector", ".strategy button")[0].click()
    browser.element("add").click()
    browser.run("changeStrategies(asked.strategies.with(1, {...asked.strategies[1], kind: 'blocking', then: ''}))")  # fmt: skip
    browser.element("copy-command").click()
    assert "the first blocking strategy" in browser.element("copied").text
    enter(browser, "gpus", "0")
    for name in ("copy-command", "copy-link"):
        browser.element(name).click()
        assert browser.element("copied").text == "Correct what is marked first"


def test_paper_has_the_numbers_the_date_and_the_link(browser: Browser, calculator: Path) -> None:
    """In the colours of paper, where the screen is dark too."""
    browser.open(
        calculator, "#gpus=64&mtbf=1+day&step=2.5s&restart=9min&now=&async=mine%3D3s%2B90s"
    )
    try:
        features = [{"name": "prefers-color-scheme", "value": "dark"}]
        browser.command("Emulation.setEmulatedMedia", media="print", features=features)
        text = browser.element("printed").text
        for part in ("GPUs: 64.", "The job fails every: 1 day.", "mine: stops training for 3.0 s, then written for 90 s", browser.driver.current_url):  # fmt: skip
            assert part in text
        assert browser.run("return new Date().getFullYear()") == int(text.split("Printed on ")[1][:4])  # fmt: skip
        assert not browser.element("controls").is_displayed()
        assert not browser.element("copy-link").is_displayed()
        assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"  # fmt: skip
    finally:
        browser.command("Emulation.setEmulatedMedia", media="")


# ---- files


def drop(browser: Browser, name: str, text: str) -> str:
    """As a hand does, anywhere on the page. What is said of it."""
    browser.run(
        """document.getElementById("file-said").textContent = "";
        const carried = new DataTransfer();
        carried.items.add(new File([arguments[1]], arguments[0]));
        document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: carried, bubbles: true, cancelable: true}));""",
        name,
        text,
    )
    browser.wait(lambda: browser.element("file-said").text)
    return str(browser.element("file-said").text)


FULL = """title: 'my other training'
gpus: 16
step_s: 0.75   # measured
steps_per_epoch: 200
interval: 2
strategies:
- name: two_levels
  stall_s: 2.5
  durable_s: 10
  shared_every: 6
  shared_durable_s: 90
  copied: true
- name: plain
  stall_s: {value: 60, lo: 45, hi: 80}
  durable_s: 70
recoveries:
- name: restart
  down_s: 300
"""


@pytest.fixture
def pages(written: Path, calculator: Path) -> dict[str, Path]:
    return {"study": written, "calculator": calculator}


@pytest.mark.parametrize("text", [COSTS.read_text(encoding="utf-8"), FULL])
def test_costs_that_are_dropped_are_those_that_the_command_reads(
    browser: Browser,
    pages: dict[str, Path],
    tmp_path: Path,
    text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command with this file has the same answer."""
    browser.open(pages["calculator"])
    assert drop(browser, "mine.yaml", text).startswith("Filled from mine.yaml.")
    assert wrong(
        browser, "mtbf"
    )  # which the file does not say, and the example's is not the reader's
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    made = payload(read_user_costs(path), read_rates(published()), usual(gpus=[], rate="llama3"))
    wanted = [case for case in made["cases"] if case["how"]]
    shown = browser.run("return start.cases.filter(({isDropped}) => isDropped)")
    assert len(shown) == len(wanted)
    for case, own in zip(shown, wanted, strict=True):
        pairs = [[*pair] for pair in own["pairs"] if pair[0] != "rate"]
        assert case["pairs"] == pairs
        for key in own.keys() - {"pairs", "source"}:
            assert case[key] == own[key], key
    enter(browser, "mtbf", "14h")
    assert browser.element("known").text.startswith("given at ")
    arguments = shlex.split(browser.run("return command(numbersOf(asked, origin))"))[1:]
    assert run([str(path) if each == path.name else each for each in arguments] + ["--json"]) == 0
    told = {each["name"]: each["loses"] for each in json.loads(capsys.readouterr().out)["strategies"]}  # fmt: skip
    for name, _, _, lost, *_ in strategies(browser)[1:]:
        (same,) = (loses for of, loses in told.items() if of in (name, f"{name}, restart"))
        assert lost["value"] == pytest.approx(same, rel=1e-9)
    assert len(strategies(browser)) == 3
    for page in pages.values():  # also beside a study, of which a link holds nothing then
        browser.open(page)
        drop(browser, "mine.yaml", text)
        enter(browser, "mtbf", "14h")
        what_if = browser.driver.current_url.partition("#")[2]
        browser.open(page, f"#{what_if}")
        assert browser.element("known").text == "your numbers"
        assert len(strategies(browser)) == 3
    drop(browser, "mine.yaml", text)
    browser.run("location.hash = '#gpus=8&mtbf=3h&step=2.5s&restart=1min&blocking=dcp%3D60s'")
    browser.wait(lambda: browser.element("known").text == "your numbers")
    assert [row[0] for row in strategies(browser)] == ["dcp"]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("gpus: 16", "gpus: &all 16", "line 2"),
        ("gpus: 16", "gpu: 16", "no field here has this name: use title, gpus"),
        ("gpus: 16", "", "gpus is missing"),
        ("gpus: 16", "gpus: 16\ngpus: 8", "given twice"),
        ("stall_s: 2.5", "stall_s: 2.5s", "give a number of seconds from 0"),
        ("stall_s: 2.5", "stall_s: 0x10", "give a number of seconds from 0"),
        ("stall_s: 2.5", "stall_s: 20", "durable_s: use at least stall_s"),
        ("lo: 45", "lo: 65", "give a number of seconds"),
        ("name: plain", "name: two levels", "two have one name"),
        ("shared_durable_s: 90", "shared_durable_s: 9", "shared_durable_s: give it"),
        ("interval: 2", "interval: never", "not a value that is read here"),
        ("  down_s: 300", "    down_s: 300", "not in the form"),
        ("recoveries:\n- name: restart\n  down_s: 300\n", "", "recoveries is missing"),
        ("name: plain", "name: yes", "not a value that is read here"),
        ("title: 'my other training'", "title: |\n  mine", "not a value that is read here"),
    ],
)
def test_other_costs_are_refused_by_one_line(
    browser: Browser, before: str, after: str, why: str
) -> None:
    """Which names the command. The case stays."""
    start = strategies(browser)
    assert before in FULL
    said = drop(browser, "mine.yaml", FULL.replace(before, after))
    assert said.startswith("mine.yaml: ")
    assert why in said
    assert "ckptbench decide --costs mine.yaml --html page.html" in said
    assert strategies(browser) == start


STATE: dict[str, Any] = {
    "global_step": 900, "save_steps": 450, "eval_steps": 150, "max_steps": 4000,
    "log_history": [{"step": 300, "loss": float("nan")}, {"step": 300, "eval_runtime": 30.0}, {"step": 900, "train_runtime": 1830.0}],
}  # fmt: skip


def test_a_state_of_a_trainer_says_what_the_command_takes_of_it(
    browser: Browser, calculator: Path, tmp_path: Path
) -> None:
    """Its program is given round steps that suit its evaluations. What it does not say is asked for."""
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps(STATE), encoding="utf-8")
    facts = facts_of(read_logs((path,), ())[1])
    browser.open(calculator)
    said = drop(browser, path.name, path.read_text(encoding="utf-8"))
    assert said.startswith("Filled from trainer_state.json.")
    assert facts.step is not None
    assert browser.element("step").get_attribute("value") == f"{facts.step.value:g} s" == "2 s"
    assert browser.element("now").get_attribute("value") == f"{facts.interval} steps"
    assert browser.run("return [origin.training_steps, origin.multiple_of]") == [facts.planned, facts.multiple_of]  # fmt: skip
    assert all(wrong(browser, name) for name in ("gpus", "mtbf", "restart", "strategy-0"))
    for name, text in (("gpus", "8"), ("mtbf", "2h"), ("restart", "6min")):
        enter(browser, name, text)
    enter_cost(browser, 0, "stall", "20s")
    assert browser.element("save-steps").text == "save_steps=450, as now"
    enter(browser, "now", "")
    assert browser.element("save-steps").text == "save_steps=300"
    assert browser.element("known").text == "your numbers"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("train.log", "iteration 1", "is not read here"),
        ("trainer_state.json", "{", "cannot be read as JSON"),
        ("other.json", "{}", "has no log_history"),
        ("my state.json", '{"log_history": []}', "--training-log 'my state.json'"),
    ],
)
def test_other_logs_are_for_the_command(browser: Browser, name: str, text: str, why: str) -> None:
    start = strategies(browser)
    said = drop(browser, name, text)
    assert why in said
    assert "ckptbench decide --training-log " in said
    assert strategies(browser) == start


def test_the_program_whose_log_was_read_is_named(browser: Browser, tmp_path: Path) -> None:
    """As the command does."""
    log = tmp_path / "train.log"
    lines = [f"[2026-08-01 08:{step // 60:02}:{step % 60:02}.0] iteration {step}/ 90000 | elapsed time per iteration (ms): 1000.0 |" for step in range(1, 900)]  # fmt: skip
    log.write_text("\n".join(lines), encoding="utf-8")
    page = tmp_path / "page.html"
    options = ["--training-log", str(log), "--gpus", "8", "--mtbf", "5h", "--restart", "5min", "--now", "20 steps"]  # fmt: skip
    for cost, end in ((["--blocking", "20s"], ""), (["--async", "1s+9s"], " --async-save")):
        assert run(["decide", *options, *cost, "--html", str(page)]) == 0
        browser.open(page)
        assert re.fullmatch(rf"--save-interval \d+{end}", browser.element("save-steps").text)
    enter(browser, "now", "250 steps")
    assert browser.element("save-steps").text == "--save-interval 250 --async-save, as now"
    browser.run("start.rates[1].bound = true")
    choose(browser, "rate", browser.run("return start.rates[1].title"))
    assert (
        browser.element("save-steps").text
        == "No failure was seen: no setting follows from a bound."
    )


def test_preemptions_of_a_log_strike_a_job_as_often_whatever_its_gpus(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the page that is filled with the log as in the command, also where the reader enters other GPUs. Failures come with each GPU."""
    day = "{0}|{1}|2026-03-{0:02}T00:00:00|2026-03-{0:02}T20:00:00|20:00:00|billing=9,gres/gpu=8"
    states = ["PREEMPTED", "COMPLETED", "FAILED", "PREEMPTED"] * 5
    jobs, written = tmp_path / "jobs.txt", tmp_path / "page.html"
    jobs.write_text("\n".join(["JobID|State|Start|End|Elapsed|AllocTRES", *(day.format(*each) for each in enumerate(states, 1))]))  # fmt: skip
    costs = tmp_path / "costs.yaml"
    costs.write_text(COSTS.read_text().replace("gpus: 512", "gpus: 8"))
    case = ["decide", "--costs", str(costs), "--log", str(jobs), "--count", "PREEMPTED"]
    assert run([*case, "--gpus", "64", "--html", str(written)]) == 0
    assert "5 PREEMPTED" not in (text := " ".join(capsys.readouterr().out.split()))
    assert "10 PREEMPTED: counted per job" in text
    browser.open(written)
    said = browser.element("mtbf-hint").text.replace("\u00a0", " ")
    assert said == "own; 10 PREEMPTED: counted per job, one in 40 h on any number of GPUs"
    found = []
    for gpus in ("64", "8", "4096"):
        enter(browser, "gpus", gpus)
        assert run([*case, "--gpus", gpus, "--json"]) == 0
        told = [each["loses"] for each in json.loads(capsys.readouterr().out)["strategies"] if each["name"].endswith("restart")]  # fmt: skip
        rows = [row for row in strategies(browser) if not str(row[0]).startswith("now: ")]
        assert sorted(row[3]["value"] for row in rows) == pytest.approx(sorted(told), rel=1e-6)
        found.append(min(told))
    assert found[1] < found[0] < found[2], "failures still come more often on more GPUs"
