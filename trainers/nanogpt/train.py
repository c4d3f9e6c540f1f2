"""The loop of nanoGPT's train.py (https://github.com/karpathy/nanoGPT/blob/master/train.py) around a small GPT: what it saves, and how it resumes.

torchrun --nproc-per-node 2 train.py --out_dir checkpoints [--init_from=resume]
"""

from __future__ import annotations

import argparse
import math
import os

import torch
from torch import Tensor, nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

BLOCK_SIZE, BATCH_SIZE, MAX_ITERS, EVAL_INTERVAL = 16, 4, 36, 6


class Gpt(nn.Module):
    def __init__(self, n_embd: int = 64, n_head: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, n_embd), nn.Embedding(BLOCK_SIZE, n_embd)
        self.block = nn.TransformerEncoderLayer(n_embd, n_head, 4 * n_embd, dropout, batch_first=True)  # fmt: skip
        self.lm_head = nn.Linear(n_embd, 256, bias=False)

    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(idx.shape[1])
        logits = self.lm_head(self.block(x, src_mask=mask, is_causal=True))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch(data: Tensor) -> tuple[Tensor, Tensor]:
    ix = torch.randint(len(data) - BLOCK_SIZE, (BATCH_SIZE,))
    x = torch.stack([data[i : i + BLOCK_SIZE] for i in ix])
    return x, torch.stack([data[i + 1 : i + 1 + BLOCK_SIZE] for i in ix])


def get_lr(it: int) -> float:
    if it < 4:
        return 1e-3 * (it + 1) / 5
    return 1e-4 + 0.5 * (1 + math.cos(math.pi * (it - 4) / (MAX_ITERS - 4))) * 9e-4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out_dir", required=True)
    parser.add_argument("--init_from", default="scratch")
    options = parser.parse_args()
    init_process_group("gloo")
    rank = int(os.environ["RANK"])
    os.makedirs(options.out_dir, exist_ok=True)
    torch.manual_seed(1337 + rank)
    data = (3 * torch.arange(4096) ** 2 + 7) % 251
    iter_num, model = 0, Gpt()
    path = f"{options.out_dir}/ckpt.pt"
    if options.init_from == "resume":
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint["model"])
        iter_num = checkpoint["iter_num"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    if options.init_from == "resume":
        optimizer.load_state_dict(checkpoint["optimizer"])
    ddp = DistributedDataParallel(model)
    while iter_num <= MAX_ITERS:
        for group in optimizer.param_groups:
            group["lr"] = get_lr(iter_num)
        if iter_num % EVAL_INTERVAL == 0 and iter_num > 0 and rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num}, path)  # fmt: skip
        ddp(*get_batch(data)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        iter_num += 1
    destroy_process_group()


if __name__ == "__main__":
    main()
