"""`ckptbench-probe compare`: run a command with several values of its options, in blocks beside a run without checkpoints, and compare what saves cost."""
