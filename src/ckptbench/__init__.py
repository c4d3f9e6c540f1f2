"""ckptbench: what a checkpoint costs on this machine, and so how often to take one."""

__version__ = "0.1.0"
