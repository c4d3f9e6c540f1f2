"""The raw tables to all tables that answer the study's questions."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ckptbench.analysis.determinism_cost import determinism_cost
from ckptbench.analysis.divergence import divergence
from ckptbench.analysis.overhead import overhead
from ckptbench.analysis.proof import resume_proof
from ckptbench.analysis.provenance import provenance
from ckptbench.analysis.restore import restore
from ckptbench.analysis.scaling import checkpoint_cost, scaling
from ckptbench.analysis.sizes import sizes
from ckptbench.analysis.stall import stall
from ckptbench.analysis.training import training


def derive(raw: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The derived tables by name, from the raw ones by name."""
    costs, stalls, curves = overhead(raw), stall(raw), training(raw)
    return {
        "overhead": costs,
        "sizes": sizes(raw),
        "scaling": scaling(raw),
        "checkpoint_cost": checkpoint_cost(costs, stalls),
        "stall": stalls,
        "training": curves,
        "resume_proof": resume_proof(raw, curves),
        "divergence": divergence(raw),
        "determinism_cost": determinism_cost(raw),
        "restore": restore(raw),
        "provenance": provenance(raw),
    }
