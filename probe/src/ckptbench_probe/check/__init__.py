"""Whether what a training saves is whole, and whether it resumes as if it had not been killed.

`armed` runs in the processes of the training, where the variable CHECK of `variables` says so; in a plain `run` nothing of it is imported.
"""
