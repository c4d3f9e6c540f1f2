"""Write the fields of the settings files into config/README.md, from their models."""

from __future__ import annotations

import argparse
from pathlib import Path

from ckptbench.decide.failure_file import FailureFile
from ckptbench.decide.given import GivenCosts, GivenRecovery, GivenStorage, GivenStrategy
from ckptbench.own.config import OwnSection
from ckptbench.settings.document import with_fields
from ckptbench.study import config

MODELS = {
    model.__name__: model
    for model in (
        config.StudyConfig, config.Matrix, config.TrainingSection, config.CheckpointSection, config.Cifar10Section,
        config.SyntheticSection, config.Nt3Section, config.ListedFailure, config.LimitSection, config.DecisionSection,
        OwnSection, FailureFile, GivenCosts, GivenStrategy, GivenRecovery, GivenStorage,
    )
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="config/README.md")
    path: Path = parser.parse_args().path
    path.write_text(with_fields(path.read_text(encoding="utf-8"), MODELS), encoding="utf-8")


if __name__ == "__main__":
    main()
