"""Decide how often to checkpoint, with what, and how to recover: from the tables of a study, or from a file with costs."""

from __future__ import annotations

import argparse
import logging

from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.config.decision import DecisionSection
from ckptbench.config.identity import marking
from ckptbench.decide import COST_TABLES
from ckptbench.decide.decision import decide, left_out
from ckptbench.decide.inputs import decision_costs
from ckptbench.decide.rates import read_rates
from ckptbench.decide.user_costs import read_user_costs
from ckptbench.workflow.frame import add_shared

log = logging.getLogger("ckptbench")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--tables", "--rates", "--choices", "--numbers", "--mark")


def main(options: argparse.Namespace) -> None:
    rates = read_rates(options.rates)
    choices = DecisionSection.model_validate_json(options.choices)
    if options.numbers:
        costs = read_user_costs(options.numbers)
    else:
        costs = decision_costs(read_tables(options.tables, COST_TABLES, set_aside=True))
    for line in left_out(costs, choices):
        log.warning("%s", line)
    with marking(options.mark):
        write_tables(options.tables, decide(costs, rates, choices))
