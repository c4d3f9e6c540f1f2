"""Values that are right alone: some do not go together, others give too many cells."""

from __future__ import annotations

from bad_configs.remedies import Bad

THOUSAND = list(range(1, 1001))
COMBINATIONS = [
    # Values that do not go together.
    Bad(
        "checkpoints: {keep_after_run: 3}",
        "checkpoints.keep_after_run",
        "3",
        "no more are there than keep_during_run, which is 2: lower the one or raise the other",
    ),
    Bad(
        "checkpoints: {keep_during_run: 4, keep_after_run: 5}",
        "checkpoints.keep_after_run",
        "5",
        "no more are there than keep_during_run, which is 4: lower the one or raise the other",
    ),
    Bad(
        "checkpoints: {memory_folder: /dev/shm/x, node_folder: /dev/../dev/shm/x}",
        "checkpoints.node_folder",
        "'/dev/../dev/shm/x'",
        "memory_folder is the same folder, and two levels in one place are no two levels: set one of them to another",
    ),
    *(
        Bad(
            f"checkpoints: {{{name}: near}}",
            f"checkpoints.{name}",
            "'near'",
            "a folder that every node has is not below the folder of the study: write its whole path, as in /dev/shm/me",
        )
        for name in ("memory_folder", "node_folder")
    ),
    Bad(
        "matrix: {framework: pytorch, epochs: 2}\ntraining: {steps_per_epoch: 5, warmup_steps: 10}",
        "training.warmup_steps",
        "10",
        "the run pytorch-resnet50-digits-r1-b32-n2-never-rep0 has 10 steps in all, and none is left to time: "
        "lower it, or train longer",
    ),
    Bad(
        "matrix: {framework: pytorch, batch_size: 1000, interval: never, ranks: 1, epochs: 3}\n"
        "training: {warmup_steps: 3}",
        "training.warmup_steps",
        "3",
        "the run pytorch-resnet50-digits-r1-b1000-n3-never-rep0 has 3 steps in all, and none is left to time: "
        "lower it, or train longer",
    ),
    Bad(
        "exclude: [{ranks: 64}]",
        "exclude[0]",
        "{'ranks': 64}",
        "no cell matches it: correct or remove it",
    ),
    Bad(
        "matrix: {framework: pytorch, strategy: [{deepfreeze: {memory: 1, shared: 4}}, native]}\n"
        "exclude: [{strategy: deepfreeze}]",
        "exclude[0]",
        "{'strategy': 'deepfreeze'}",
        "no cell matches it: a strategy is matched with all its options, so name it as "
        "{deepfreeze: {memory: 1, shared: 4}}; correct or remove it",
    ),
    Bad(
        "matrix: {framework: tensorflow, strategy: {orbax: {compression: true}}}\n"
        "exclude: [{strategy: [orbax], ranks: 1}]",
        "exclude[0]",
        "{'strategy': ['orbax'], 'ranks': 1}",
        "no cell matches it: a strategy is matched with all its options, so name it as "
        "{orbax: {compression: true}}; correct or remove it",
    ),
    Bad(
        "exclude: [{framework: all}]",
        "exclude",
        "[{'framework': 'all'}]",
        "the matrix is empty: exclude leaves no cell; drop less",
    ),
    Bad(
        "exclude: [{}]",
        "exclude",
        "[{}]",
        "the matrix is empty: exclude leaves no cell; drop less",
    ),
    Bad(
        "matrix: {framework: pytorch, ranks: 2, faults: [none, {listed: {name: one}}]}\n"
        "failures: {one: [{step: 1, rank: 2}]}",
        "matrix.faults[1]",
        "{'listed': {'name': 'one'}}",
        "no cell of the matrix can have it: failures.one strikes rank 2, and a run with ranks: 2 has none of this number; they "
        "count from 0",
    ),
    *(
        Bad(
            "matrix: {framework: pytorch, model: small_cnn, ranks: 2, batch_size: 8, epochs: 2, interval: 1, faults: {listed: {name: late}}}\n"
            f"training: {{steps_per_epoch: 4}}\nfailures: {{late: [{{second: 1, rank: 1}}, {{step: {step}, moment: {moment}, rank: 1}}]}}",
            "failures.late[1].step",
            str(step),
            "it would never strike: the run pytorch-small_cnn-digits-r2-b8-n2-torch_save-e1-listed_name_late-rep0 has 8 steps in all. "
            f"Use at most {step - 1}, or train longer",
        )
        for step, moment in ((8, "step"), (9, "save"))
    ),
    Bad(
        "matrix: {framework: pytorch, format: [hdf5, npz]}",
        "matrix.format[1]",
        "'npz'",
        "no framework of the matrix (pytorch) writes it: use torch_save, safetensors, hdf5",
    ),
    Bad(
        "include: [{framework: tensorflow, format: npz, interval: 1}]",
        "include[0]",
        "{'framework': 'tensorflow', 'format': 'npz', 'interval': 1}",
        "tensorflow does not write npz: use hdf5, keras, tf_checkpoint",
    ),
    Bad(
        "matrix: {interval: never}\ninclude: [{format: hdf5}]",
        "include[0]",
        "{'format': 'hdf5'}",
        "it names a format and no interval to write it at: add one, as in interval: 1",
    ),
    Bad(
        "matrix: {interval: 1, history: again}\ntraining: {proof: false}",
        "training.proof",
        "false",
        "runs with history again or killed faults are there to be compared, so set it to true",
    ),
    Bad(
        "matrix: {interval: 1, cache: [warm, cold]}",
        "matrix.cache[1]",
        "'cold'",
        "no cell of the matrix can have it: omit and cache need a run that is killed for its resume proof: "
        "use faults killed_between, killed_inside, killed_thrice",
    ),
    Bad(
        "matrix: {framework: pytorch, interval: never, strategy: [native, async]}",
        "matrix.strategy[1]",
        "'async'",
        "no cell of the matrix can have it: its runs are those of other values, as none of them saves: add an interval other "
        "than never",
    ),
    # Too many cells.
    Bad(
        "matrix: {framework: pytorch}\nrepeats: 1000000000",
        "repeats",
        "1000000000",
        "the study has 4,000,000,000 cells (4 a repeat), and at most 10,000 are allowed: use fewer repeats",
    ),
    Bad(
        f"matrix: {{framework: pytorch, interval: never}}\nrepeats: 1{'0' * 100}",
        "repeats",
        f"1{'0' * 76}...",
        f"the study has {2 * 10**100:,} cells (2 a repeat), and at most 10,000 are allowed: use fewer repeats",
    ),
    Bad(
        f"matrix: {{framework: pytorch, ranks: {THOUSAND}, batch_size: {THOUSAND}, interval: 1}}",
        "matrix",
        f"{{'framework': 'pytorch', 'ranks': {THOUSAND}"[:77] + "...",
        "its lists give 1,000,000 combinations (ranks 1000 x batch_size 1000): at most 100,000 are allowed "
        "in all; shorten the lists",
    ),
    Bad(
        f"matrix: {{framework: pytorch, ranks: 1}}\ninclude: [{{epochs: {THOUSAND}, ranks: {THOUSAND}}}]",
        "include[0]",
        f"{{'epochs': {THOUSAND}"[:77] + "...",
        "its lists give 1,000,000 combinations (ranks 1000 x epochs 1000): at most 100,000 are allowed "
        "in all; shorten the lists",
    ),
    Bad(
        f"matrix: {{framework: pytorch, dataset: synthetic, batch_size: 1, ranks: {THOUSAND}, "
        "epochs: [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], interval: never}",
        "matrix",
        f"{{'framework': 'pytorch', 'dataset': 'synthetic', 'batch_size': 1, 'ranks': {THOUSAND}"[
            :77
        ]
        + "...",
        "the study has 33,000 cells (11,000 a repeat), and at most 10,000 are allowed: shorten its lists",
    ),
]
