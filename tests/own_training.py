"""A training of plain Python, which tests measure by the probe's explicit way in: 20 steps, a file every so many."""

TRAINING = """
import sys, time
from ckptbench_probe import session

folder, every = sys.argv[1], int(sys.argv[2])
with session() as s:
    for step in range(1, 21):
        time.sleep(0.002)
        s.step()
        if step % every == 0:
            with s.checkpoint(f"{folder}/step-{step}"):
                time.sleep(0.002)
                with open(f"{folder}/step-{step}", "w") as file:
                    file.write("x" * 1000)
print("printed")
"""
"""Its arguments are the folder and the interval."""
