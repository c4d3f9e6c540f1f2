"""How the parts of a checkpoint look in every figure: greys, because colours are frameworks, told apart by hatches; waits are white."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.patches import Patch

from ckptbench.figures.kit.style import GREYS, INK


@dataclass(frozen=True, slots=True)
class Part:
    """What a part is called, and its grey and hatch."""

    name: str
    grey: str
    hatch: str = ""

    def handle(self) -> Patch:
        """Its line in a legend."""
        return Patch(facecolor=self.grey, edgecolor=INK, hatch=self.hatch, label=self.name)


CAPTURE = Part("capture", GREYS[3], "//////")
WRITE = Part("write", GREYS[1])
SYNC = Part("sync", GREYS[3], "\\\\\\\\\\\\")
CHECKSUM = Part("checksum", GREYS[4], "xxxxxx")
COMMIT = Part("commit", GREYS[5], "||||||")
RANKS_WAIT = Part("ranks wait", GREYS[5])
UPDATE_WAITS = Part("update waits", GREYS[5], "......")
SAVE_WAITS = Part("next save waits", GREYS[5], "oooo")
REMOVAL = Part("removal", GREYS[5], "------")
BLOCKED = Part("save blocks training", INK)
EVALUATION = Part("evaluation", GREYS[4], "++++")
END_WAITS = Part("end of training waits", GREYS[5], "****")
