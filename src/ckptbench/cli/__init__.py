"""The command `ckptbench`: its verbs, their options, and what they print."""
