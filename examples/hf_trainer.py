"""A small GPT-2, built from a configuration and trained by the Hugging Face Trainer. It resumes from the newest checkpoint.

torchrun --nproc-per-node 2 examples/hf_trainer.py --folder checkpoints
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from digest import digest
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

LENGTH = 32


class Text(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (index + 3 * torch.arange(LENGTH)) % 256
        return {"input_ids": tokens, "labels": tokens}


class Timed(Trainer):
    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        started = time.perf_counter()
        super()._save_checkpoint(*args, **kwargs)
        if self.is_world_process_zero():
            print(
                f"step {self.state.global_step}: the save took {time.perf_counter() - started:.6f} s",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=10)
    options = parser.parse_args()
    set_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=257, n_positions=LENGTH, n_embd=128, n_layer=4, n_head=4)
    )
    arguments = TrainingArguments(
        output_dir=str(options.folder), max_steps=options.steps, save_steps=options.save_every, save_total_limit=2, per_device_train_batch_size=4,
        use_cpu=True, report_to=[], logging_strategy="no", seed=1,
    )  # fmt: skip
    trainer = Timed(model=model, args=arguments, train_dataset=Text())
    newest = get_last_checkpoint(options.folder) if options.folder.exists() else None
    trainer.train(resume_from_checkpoint=newest)
    if trainer.is_world_process_zero():
        print(f"weights {digest(p.detach() for p in model.parameters())}")


if __name__ == "__main__":
    main()
