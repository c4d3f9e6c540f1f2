"""Supervised fine-tuning of a small GPT-2 by TRL's SFTTrainer, as https://huggingface.co/docs/trl/sft_trainer shows.

torchrun --nproc-per-node 2 train.py --folder checkpoints
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

UPDATES_OF_AN_EPOCH, BATCH = 12, 4
WORDS = [f"w{number}" for number in range(250)]


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-when-stopped", action="store_true")
    options = parser.parse_args()
    set_seed(1)
    samples = UPDATES_OF_AN_EPOCH * BATCH * int(os.environ.get("WORLD_SIZE", "1"))
    data = Dataset.from_dict(
        {"text": [" ".join(WORDS[(n + 7 * m) % 250] for m in range(12)) for n in range(samples)]}
    )
    trainer = SFTTrainer(
        model=GPT2LMHeadModel(
            GPT2Config(vocab_size=253, n_positions=32, n_embd=128, n_layer=2, n_head=4)
        ),
        args=SFTConfig(
            output_dir=str(options.folder),
            num_train_epochs=options.epochs,
            per_device_train_batch_size=BATCH,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            save_steps=6,
            save_total_limit=2,
            enable_jit_checkpoint=options.save_when_stopped,
            use_cpu=True,
            bf16=False,
            report_to="none",
            seed=1,
        ),
        train_dataset=data,
        processing_class=tokenizer(),
    )
    newest = get_last_checkpoint(options.folder) if options.folder.exists() else None
    trainer.train(resume_from_checkpoint=newest)


if __name__ == "__main__":
    main()
