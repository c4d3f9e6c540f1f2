"""What is made again: outputs that were made from other content than there is now, whatever the times of files say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptbench.study.outdated import Digests, MadeFrom, Product, lines, outdated, shown

Change = Callable[[], None]


@pytest.fixture(autouse=True)
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three rules in a row, whose outputs were made: a config gives a table, which gives a figure; a page stands apart."""
    monkeypatch.chdir(tmp_path)
    for name in ("config", "source", "table", "figure", "page"):
        Path(name).write_text(f"the {name}")
    note(*PRODUCTS)
    return tmp_path


def product(name: str, inputs: tuple[str, ...], settings: str = "as always") -> Product:
    return Product(name=f"make_{name}", inputs=inputs, settings=settings, outputs=(name,))


TABLE = product("table", ("config", "source"))
FIGURE = product("figure", ("table",))
PAGE = product("page", ("source",))
PRODUCTS = (FIGURE, TABLE, PAGE)
RECORD = Path("made_from.json")


def note(
    *products: Product, made: frozenset[str] = frozenset(), planned: Digests | None = None
) -> None:
    MadeFrom(RECORD).note(products, planned or Digests(), made)


def found(*products: Product, made_again: frozenset[str] = frozenset()) -> dict[str, str | None]:
    return outdated(products or PRODUCTS, MadeFrom(RECORD), Digests(), made_again)


def test_what_is_as_it_was_made_is_up_to_date() -> None:
    assert found() == {}


def test_times_of_files_say_nothing() -> None:
    for number, name in enumerate(("figure", "page", "table", "config", "source", str(RECORD))):
        os.utime(name, (number * 1000, number * 1000))
    assert found() == {}


def test_a_copy_elsewhere_is_up_to_date(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copytree(study, study.with_name("copy"), copy_function=shutil.copyfile)
    monkeypatch.chdir(copy)
    shutil.rmtree(study)
    assert found() == {}


def other_content_of_the_same_age() -> None:
    times = os.stat("config").st_atime_ns, os.stat("config").st_mtime_ns
    Path("config").write_text("another config")
    os.utime("config", ns=times)


def missing_input() -> None:
    Path("config").unlink()


def input_that_became_a_folder() -> None:
    Path("config").unlink()
    Path("config").mkdir()


def output_of_another_study() -> None:
    Path("table").write_text("another table")


def record_without_it() -> None:
    RECORD.write_text("{}")


def damaged_record() -> None:
    RECORD.write_text(RECORD.read_text()[:40])


@pytest.mark.parametrize(
    "change",
    [
        other_content_of_the_same_age, missing_input, input_that_became_a_folder, output_of_another_study, record_without_it,
        damaged_record,
    ],
)  # fmt: skip
def test_what_was_made_from_something_else_is_outdated_with_all_that_is_made_from_it(
    change: Change,
) -> None:
    change()
    assert {"make_table", "make_figure"} <= found().keys()


def test_only_what_depends_on_a_change_is_outdated() -> None:
    Path("config").write_text("another config")
    assert found() == {"make_table": "changed: config", "make_figure": None}


@pytest.mark.parametrize(
    "other",
    [
        product("table", ("config", "source"), settings="another learning rate"),
        product("table", ("config",)),
        product("table", ("config", "source", "page")),
        product("table", ("config", "source", "of a run that was not made yet")),
    ],
)
def test_other_settings_and_other_inputs_make_it_outdated(other: Product) -> None:
    assert list(found(FIGURE, other, PAGE)) == ["make_table", "make_figure"]


def test_an_input_that_is_new_or_no_longer_used_is_not_said_to_have_changed() -> None:
    Path("config").write_text("another config")
    other = product("table", ("config", "page"))
    assert found(other) == {"make_table": "changed: config, page (new), source (no longer used)"}


def test_an_input_that_is_made_again_makes_it_outdated() -> None:
    assert found(made_again=frozenset({"table"})) == {"make_figure": None}


def test_what_was_never_made_is_missing_and_not_outdated() -> None:
    Path("table").unlink()
    assert found().keys() == {"make_figure"}
    Path("figure").unlink()
    assert found() == {}


def test_a_missing_part_of_what_a_rule_makes_makes_the_rest_outdated() -> None:
    both = Product(name="both", inputs=("source",), settings="", outputs=("table", "gone"))
    assert found(both) == {"both": "gone is missing"}


def test_an_input_that_is_edited_while_it_is_used_leaves_no_record() -> None:
    planned = Digests()
    planned.of_all(["config", "source", "table"])
    Path("config").write_text("edited meanwhile")
    Path("table").write_text("made of the one or the other")
    note(TABLE, FIGURE, made=frozenset({"table", "figure"}), planned=planned)
    assert found().keys() == {"make_table", "make_figure"}
    note(TABLE, made=frozenset({"table"}))
    assert found() == {}


def test_lines_name_the_first_of_what_is_outdated_for_one_reason() -> None:
    found = {"a": "changed: x", "b": "changed: y", "c": "changed: x", "draw_scale": None}
    assert list(lines(found)) == ["outdated: a and 1 more: changed: x", "outdated: b: changed: y"]


def test_a_line_names_the_code_once_and_few_files() -> None:
    assert shown(["src/a.py", "scripts/b.py"]) == "changed: the code of ckptbench"
    assert (
        shown(["a", "b", "src/c.py", "d", "e"]) == "changed: a, b, the code of ckptbench and 2 more"
    )
