# The study on one page: config -> cells -> (environment, dataset) -> runs -> tables -> figures and the answer.
from pathlib import Path

from snakemake.utils import min_version

from ckptbench.workflow.frame import end_where_full

min_version("9.0")
end_where_full(
    Path()
)  # of every line, Snakemake's own log would say in a traceback that it cannot be written


configfile: "config/config.yaml"


# One timed run at a time on a machine: a profile says how many there are.
resource_scopes:
    machine="global",


include: "workflow/rules/common.smk"
include: "workflow/rules/study.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/audit.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/trainers_common.smk"
include: "workflow/rules/trainers.smk"


keep_signatures()
if workflow.output_settings.dryrun and not ROWS:
    show_plan()


report: "workflow/report/workflow.rst"


rule all:
    """The whole study: runs, tables, figures and the answer; or, where the config asks for them, the scoreboard of trainers."""
    default_target: True
    input:
        get_scoreboard() if ROWS else get_results(),


rule runs:
    """The runs alone, without tables and figures."""
    input:
        get_all_seals(),


# A workflow that has this one as a `module:` calls `write_study()` of it in its own `onstart:`.
onstart:
    if not ROWS:
        write_study()


onsuccess:
    show_answer()
    show_scoreboard()


onerror:
    show_failed()
    draw_what_is_there()
