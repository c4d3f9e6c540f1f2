"""Write the page of a study, `index.html`, from its tables and figures, and beside it the calculator, filled with its costs."""

from __future__ import annotations

import argparse
from pathlib import Path

from ckptbench.analysis.tables.registry import DECIDED, EVERY
from ckptbench.analysis.tables.store import read_tables
from ckptbench.config.decision import DecisionSection
from ckptbench.config.identity import config_of
from ckptbench.decide.rates import read_rates
from ckptbench.report.answer import DECISION, STUDY_TABLES
from ckptbench.report.page.html import page
from ckptbench.report.study_page.files import drawn_figures, stored_tables
from ckptbench.report.study_page.html import CALCULATOR, StudyPage, study_page
from ckptbench.workflow.frame import add_shared


def add_options(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--tables", "--rates", "--choices", "--given", "--output")
    figures = "figures of the study; a PNG has its caption beside it"
    parser.add_argument("figures", type=Path, nargs="*", help=figures)


def main(options: argparse.Namespace) -> None:
    names = DECISION if options.given else (*DECISION, *STUDY_TABLES)
    tables = read_tables(options.tables, names, set_aside=True)
    shown = DECIDED if options.given else EVERY  # what else lies there is of another study
    config = "" if options.given else config_of(options.tables)
    stored = stored_tables(options.tables, shown)
    drawn = drawn_figures(options.figures)
    study = StudyPage.of(tables, config, drawn, stored, str(options.tables))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(study_page(study), encoding="utf-8")
    costs, rates = tables["decision_costs"], read_rates(options.rates)
    choices = DecisionSection.model_validate_json(options.choices)
    calculator = page(None if costs.empty else costs, rates, choices)
    options.output.with_name(CALCULATOR).write_text(calculator, encoding="utf-8")
