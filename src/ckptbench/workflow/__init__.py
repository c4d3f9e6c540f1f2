"""Entry points of the workflow's rules: `python -m ckptbench.workflow VERB`, one module per verb."""
