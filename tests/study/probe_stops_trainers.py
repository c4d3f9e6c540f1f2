"""Trainers whose own handlers take a signal: that of Hugging Face saves on SIGTERM, that of Lightning on SIGUSR1 under Slurm. They save in ways of their own.

python probe_stops_trainers.py FOLDER jit | hf | lightning
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

UPDATES, SAVE_EVERY, STEP_S = 1_000, 4, 0.02


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        time.sleep(STEP_S)
        return {"loss": self.layer(x).pow(2).mean()}


def hugging_face(folder: Path, *, jit: bool) -> None:
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=UPDATES, save_steps=SAVE_EVERY, save_total_limit=2, per_device_train_batch_size=4,
        use_cpu=True, report_to=[], logging_strategy="no", disable_tqdm=True, enable_jit_checkpoint=jit,
    )  # fmt: skip
    data = [{"x": torch.randn(8)} for _ in range(64)]
    newest = get_last_checkpoint(folder) if folder.exists() else None
    Trainer(Model(), arguments, train_dataset=data).train(resume_from_checkpoint=newest)


def lightning(folder: Path) -> None:
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, x: torch.Tensor, _: int) -> torch.Tensor:
            return self.model(x)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.randn(8_000, 8), batch_size=4)
    trainer = pl.Trainer(
        default_root_dir=folder, max_steps=UPDATES, accelerator="cpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), data)


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    place, how = Path(sys.argv[1]), sys.argv[2]
    if how == "lightning":
        lightning(place)
    else:
        hugging_face(place, jit=how == "jit")
