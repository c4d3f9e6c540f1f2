"""Digits without scikit-learn: how pixels are enlarged, and what is said where it is not installed."""

import sys
from pathlib import Path

import numpy as np
import pytest

from ckptbench.common.errors import DataError
from ckptbench.inputs.datasets.sources import digits, prepare


def test_every_pixel_becomes_four_by_four_in_three_channels() -> None:
    pixels = np.zeros((2, 8, 8))
    pixels[1, 2, 5], pixels[1, 7, 0] = 16, 8
    images = digits.enlarge(pixels)
    assert (images.shape, images.dtype) == ((2, 32, 32, 3), np.uint8)
    assert (images[1, 8:12, 20:24] == 255).all()
    assert (images[1, 28:32, 0:4] == 128).all()
    assert np.count_nonzero(images) == 2 * 4 * 4 * 3


def test_a_missing_scikit_learn_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(DataError, match=r"has no scikit-learn.* envs/data\.txt locks"):
        prepare("digits", tmp_path, {})
