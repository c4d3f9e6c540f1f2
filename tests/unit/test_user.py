"""A user without a name or a home folder, as in a container."""

from __future__ import annotations

import getpass
import os
import pwd
from pathlib import Path

import pytest

from ckptbench.common.user import NAMES, supply_user


@pytest.fixture
def _nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_nameless")
def test_the_number_stands_for_a_name_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(KeyError):
        getpass.getuser()
    supply_user(os.environ, tmp_path)
    assert getpass.getuser() == str(os.getuid())
    monkeypatch.delenv("USER")


@pytest.mark.usefixtures("_nameless")
def test_a_name_that_is_given_stays(tmp_path: Path) -> None:
    environment = {"LOGNAME": "ada", "HOME": str(tmp_path)}
    supply_user(environment, tmp_path / "caches")
    assert environment == {"LOGNAME": "ada", "HOME": str(tmp_path)}


@pytest.mark.parametrize("home", ["/proc", "", None, "/dev/null", "relative"])
def test_caches_are_beside_the_study_where_no_home_can_be_written(
    home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {} if home is None else {"HOME": home}
    supply_user(environment, Path("caches"))
    assert environment["XDG_CACHE_HOME"] == str(tmp_path / "caches")
    assert environment["MPLCONFIGDIR"] == str(tmp_path / "caches" / "matplotlib")
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_named_and_can_be_written_stay(tmp_path: Path) -> None:
    named = {
        "HOME": "/proc",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "MPLCONFIGDIR": str(tmp_path / "plots"),
    }
    environment = dict(named)
    supply_user(environment, tmp_path / "caches")
    assert {name: environment[name] for name in named} == named


def test_an_ordinary_user_keeps_everything(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "USER": "ada"}
    supply_user(environment, tmp_path / "caches")
    assert environment == {"HOME": str(tmp_path), "USER": "ada"}
