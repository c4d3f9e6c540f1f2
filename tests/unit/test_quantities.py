"""Numbers are read as people write them, and shown so that rounding hides nothing."""

import math
import random

import pytest

from ckptbench.common.errors import ConfigError
from ckptbench.report.answer.quantities import (
    MINUTES,
    PERCENT,
    Every,
    Quantity,
    amount,
    duration,
    percent,
    plain,
    read_bandwidth,
    read_count,
    read_every,
    read_size,
    read_time,
    size,
    span,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200),
        ("90 s", 90),
        ("14 hours", 50_400),
        ("2.5s", 2.5),
        (".5 s", 0.5),
        (".5e3 s", 500),
        ("1 year", 31_557_600),
        ("250ms", 0.25),
        ("8min", 480),
        ("1h 30min", 5400),
        ("1h30m", 5400),
        ("3 days", 259_200),
        (" 1,000 h ", 3_600_000),
        ("1e3 s", 1000),
        ("2H", 7200),
        ("1 Hour 5 Min", 3900),
    ],
)
def test_a_time_is_read_in_the_units_that_people_write(text: str, seconds: float) -> None:
    assert read_time(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "2", "h", "2 huors", "2h of", "-2h", "0s", "nan s", "inf h", "2GB", "2h 5", "1,0 s", "1e400 s"]
)  # fmt: skip
def test_a_wrong_time_is_refused_in_one_line_that_says_what_is_read(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a time") as raised:
        read_time(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "use"), [("0s", "above 0"), ("1e-300 s", "above 0"), ("1.1e18 s", "smaller"), ("1e999 s", "smaller")]
)  # fmt: skip
def test_a_time_that_cannot_be_meant_is_refused(text: str, use: str) -> None:
    with pytest.raises(ConfigError, match=f"is not a time in the possible range: use .*{use}"):
        read_time(text)


def test_the_longest_and_the_shortest_time_are_read() -> None:
    assert (read_time("1e18 s"), read_time("1e-18 s")) == (1e18, 1e-18)


def test_sizes_and_bandwidths_count_in_thousands_or_in_1024() -> None:
    assert read_size("98GB") == 98e9
    assert read_size("1.5 GiB") == 1.5 * 2**30
    assert read_size("512 bytes") == 512
    assert read_size("98 gb") == 98e9
    assert read_size("98G") == 98 * 2**30, "as du -h prints it"
    assert read_bandwidth("1.6GB/s") == 1.6e9
    assert read_bandwidth("1.6 GiB/s") == 1.6 * 2**30
    assert read_bandwidth("100 Gbit/s") == 12.5e9
    assert read_bandwidth("1600MBps") == 1.6e9


@pytest.mark.parametrize("text", ["98Gb", "98gib/s", "98g", "98", "98GB/s"])
def test_a_size_that_may_mean_bits_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        read_size(text)


@pytest.mark.parametrize("text", ["1.6 GB", "1.6 Gb/s", "1.6 gb/s", "1.6"])
def test_a_bandwidth_needs_its_seconds(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a bandwidth"):
        read_bandwidth(text)


def test_an_interval_is_a_time_or_a_number_of_steps() -> None:
    assert read_every("2880 steps") == Every(steps=2880)
    assert read_every("1 step").in_steps(2.5) == 1
    assert read_every("2h").in_steps(2.5) == 2880
    assert read_every("1 s").in_steps(2.5) == 1
    for text in ("0 steps", "2.5 steps", "steps", "2880"):
        with pytest.raises(ConfigError, match=r"is no interval|is not an interval"):
            read_every(text)


def test_a_time_has_the_unit_in_which_its_number_is_read_at_a_glance() -> None:
    times = (75, 90, 91, 10_000, 11_000, 60 * 3600, 71 * 3600, 73 * 3600)
    assert [duration(each) for each in times] == ["75 s", "90 s", "1.5 min", "167 min", "3.1 h", "60 h", "71 h", "3.0 days"]  # fmt: skip


def test_times_are_said_in_the_unit_that_keeps_numbers_short() -> None:
    assert [duration(each) for each in (0.031, 12.0, 2420, 547.5, 7200, 18_000, 1e6)] == [
        "0.031 s", "12 s", "40 min", "9.1 min", "120 min", "5.0 h", "12 days",
    ]  # fmt: skip
    assert span(1200, 4860, MINUTES) == "20 - 81 min"
    assert span(228, 1320, MINUTES) == "3.8 - 22 min"


def test_plain_numbers_have_two_digits_and_lose_none_before_the_point() -> None:
    assert [plain(each) for each in (182.4, 398, 1024, 131_072, 5.68, 0.0123, 0, -0.0)] == [
        "182", "398", "1,024", "131,072", "5.7", "0.012", "0", "0",
    ]  # fmt: skip
    assert [percent(0.0568), percent(0.004), percent(1.0)] == ["5.7 %", "0.40 %", "100 %"]
    assert [size(98e9), size(1.5e12), size(999), size(1)] == ["98.0 GB", "1.50 TB", "999 bytes", "1 byte"]  # fmt: skip


def test_an_interval_stands_behind_its_number() -> None:
    assert duration(2420, 2040, 3120) == "40 min [34, 52]"
    assert percent(0.0568, 0.051, 0.064) == "5.7 % [5.1, 6.4]"
    assert amount(0.3, lo=0.04, hi=12.0) == "0.30 [0.040, 12]"
    assert percent(-0.055, -0.09, -0.02) == "-5.5 % [-9.0, -2.0]"
    assert amount(0.3, lo=-1.0, hi=12.0) == "0.3 [-1, 12]"


def test_an_interval_too_narrow_to_be_seen_is_left_out() -> None:
    assert amount(1234.56, lo=1234.5, hi=1234.6) == "1,235"
    assert amount(0.123456, lo=0.12345, hi=0.12346) == "0.1235"


def test_rounding_moves_no_number_by_more_than_a_twentieth_of_its_interval() -> None:
    drawn = random.Random(3)
    for _ in range(2000):
        value = drawn.uniform(-1, 1) * 10 ** drawn.uniform(-4, 5)
        width = abs(value) * 10 ** drawn.uniform(-2.9, 2)
        lo = value - drawn.random() * width
        text = amount(value, PERCENT, lo, lo + width)
        shown, ends = text.removesuffix("]").split(" % [")
        low, high = ends.split(", ")
        for number, exact in ((shown, value), (low, lo), (high, lo + width)):
            assert abs(float(number.replace(",", "")) - 100 * exact) <= 100 * width / 20 * (
                1 + 1e-9
            ), text


def test_an_interval_that_spans_more_than_tenfold_tells_nothing() -> None:
    assert Quantity(1.0, 1.0, 10.0).is_conclusive
    assert not Quantity(1.0, 1.0, 10.1).is_conclusive
    assert not Quantity(1.0, 0.0, 0.1).is_conclusive
    assert Quantity(1.0, math.nan, math.nan).is_conclusive


def test_a_number_of_a_table_is_said_with_its_interval() -> None:
    row = {"cost": 0.123, "cost_lo": 0.11, "cost_hi": 0.14, "alone": 0.2}
    assert Quantity.of(row, "cost").shown(PERCENT) == "12.3 % [11.0, 14.0]"
    assert Quantity.of(row, "alone").shown(PERCENT) == "20 %"
    assert Quantity.of(row, "cost").rest == Quantity(1 - 0.123, 1 - 0.14, 1 - 0.11)


def test_a_whole_number_may_have_separators() -> None:
    assert [read_count(text) for text in ("1024", "1,024")] == [1024, 1024]
