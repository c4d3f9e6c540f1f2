# The study on one page: config -> cells -> (environment, dataset) -> runs -> tables -> figures.
from snakemake.utils import min_version

min_version("9.0")


configfile: "config/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/outdated.smk"
include: "workflow/rules/environments.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/decide.smk"
include: "workflow/rules/audit.smk"
include: "workflow/rules/figures.smk"


rule all:
    """The whole study: runs, tables, figures and the answer."""
    default_target: True
    input:
        get_all_seals(),  # a run that was removed is made again, though there are tables of it
        get_all_figures(),
        get_all_tables(),
        ANSWER,
        WHAT_IF_PAGE,
        AUDIT_PAGE,


rule environments:
    """The environments that the study needs."""
    input:
        get_all_environments(),


rule runs:
    """The runs alone, without tables and figures."""
    input:
        get_all_seals(),


onstart:
    write_study()


onsuccess:
    note_made()
    show_answer()


onerror:
    note_made()
    show_failed()
