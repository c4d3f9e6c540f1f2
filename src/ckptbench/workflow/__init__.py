"""What the rules of the workflow call: `python -m ckptbench.workflow VERB`, one module a verb."""
