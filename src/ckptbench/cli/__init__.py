"""The command `ckptbench`: verbs, options and printed output."""
