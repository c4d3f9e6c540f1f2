"""What lives beside the model is looked for while other threads train, save and count."""

from __future__ import annotations

import pytest

from ckptbench_probe.check import beside


def test_a_dict_that_another_thread_changes_is_looked_at_again() -> None:
    looks: list[int] = []

    def look() -> str:
        looks.append(1)
        if len(looks) < 3:
            raise RuntimeError("dictionary changed size during iteration")
        return "found"

    assert beside._while_others_change(look) == "found"
    assert len(looks) == 3

    def never() -> str:
        raise RuntimeError("dictionary changed size during iteration")

    with pytest.raises(RuntimeError):
        beside._while_others_change(never)
