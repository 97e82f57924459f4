"""Trains a small model by accelerate alone and writes the result to the file in argv[1]; started by `accelerate launch` or alone."""

import json
import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

ROWS, WIDTH, GLOBAL_BATCH, STEPS = 160, 8, 8, 20


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    inputs = torch.randn(ROWS, WIDTH)
    targets = inputs.sin().sum(1, keepdim=True)
    accelerator = Accelerator(cpu=len(sys.argv) > 2)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=GLOBAL_BATCH // accelerator.num_processes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(float(accelerator.gather(loss.detach().reshape(1)).mean()))
    devices = accelerator.gather_for_metrics([str(accelerator.device)], use_gather_object=True)
    weights = [p.tolist() for p in accelerator.unwrap_model(model).cpu().parameters()]
    if accelerator.is_main_process:
        result = {
            "losses": losses,
            "devices": devices,
            "type": str(accelerator.distributed_type),
            "weights": weights,
            "mixed_precision": accelerator.mixed_precision,
        }
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(result, file)
    accelerator.end_training()


if __name__ == "__main__":
    main()
