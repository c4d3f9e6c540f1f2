"""Entry points of the workflow's rules, one module per verb."""
