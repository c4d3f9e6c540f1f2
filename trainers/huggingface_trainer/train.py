"""A small GPT-2 under the Hugging Face Trainer, resumed as https://huggingface.co/docs/transformers/trainer shows.

torchrun --nproc-per-node 2 train.py --folder checkpoints
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

LENGTH = 16
UPDATES_OF_AN_EPOCH, BATCH = 12, 4


class Text(Dataset):
    def __init__(self, ranks: int) -> None:
        self.samples = UPDATES_OF_AN_EPOCH * BATCH * ranks

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (index + 3 * torch.arange(LENGTH)) % 256
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-when-stopped", action="store_true")
    options = parser.parse_args()
    set_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=128, n_layer=2, n_head=4))  # fmt: skip
    arguments = TrainingArguments(
        output_dir=str(options.folder),
        num_train_epochs=options.epochs,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        save_strategy="steps",
        save_steps=6,
        save_total_limit=2,
        enable_jit_checkpoint=options.save_when_stopped,
        use_cpu=True,
        report_to="none",
        seed=1,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Text(arguments.world_size))
    newest = get_last_checkpoint(options.folder) if options.folder.exists() else None
    trainer.train(resume_from_checkpoint=newest)


if __name__ == "__main__":
    main()
