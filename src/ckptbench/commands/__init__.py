"""The command `ckptbench`."""
