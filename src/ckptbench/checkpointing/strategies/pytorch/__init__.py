"""Strategies that serve PyTorch alone: the engines that its users have, each in its own file."""
