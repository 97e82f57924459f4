"""The training example of transformers' "AWS Trainium" page: `Trainer` with `bf16=True, torch_compile=True` on the device `neuron`.

Fine-tunes a model on the last chapters of the novel in `data/`, which the demo model was not trained on. Every example is padded
to one length, so that forward and backward are compiled once. One process; about a minute with the demo model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import torch
import train_tiny
from corpus import read_text, split_text
from neuron_report import compiled_graphs, line, require_neuron
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)


class StepReport(TrainerCallback):
    """Prints loss and time of steps, and how many graphs the backend had compiled after each."""

    def __init__(self) -> None:
        self.start = 0.0
        self.times: list[float] = []
        self.graphs: list[int] = []
        self.printed = 0

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Start the watch."""
        self.start = time.perf_counter()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop the watch."""
        torch.neuron.synchronize()
        self.times.append(time.perf_counter() - self.start)
        self.graphs.append(compiled_graphs())

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, float] | None = None, **kwargs: Any
    ) -> None:
        """Print a line: means over the steps since the last one."""
        if logs and "loss" in logs:
            steps = self.times[self.printed :]
            self.printed = len(self.times)
            print(
                f"  step {state.global_step:>3}/{state.max_steps}  loss {float(logs['loss']):.3f}  "
                f"{sum(steps) / len(steps) * 1e3:7.1f} ms a step  {self.graphs[-1]} graphs",
                flush=True,
            )


def run(model_id: str, steps: int, batch: int, length: int, output: str) -> None:
    """Fine-tune `model_id` for `steps` steps on batches of `batch` paragraphs, each padded or cut to `length` tokens; saves in `output`."""
    set_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(model_id)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(model_id)
    _, text = split_text(read_text())
    dataset = [tokenizer(paragraph, padding="max_length", truncation=True, max_length=length) for paragraph in text.split("\n\n")]

    training_args = TrainingArguments(
        output_dir=output,
        bf16=True,
        torch_compile=True,
        dataloader_drop_last=True,
        per_device_train_batch_size=batch,
        max_steps=steps,
        learning_rate=1e-3,
        logging_steps=max(1, steps // 10),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    report = StepReport()
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=dataset,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        callbacks=[report],
    )
    trainer.remove_callback(PrinterCallback)
    line("model", f"{type(model).__name__}, {model.num_parameters():,} parameters on {model.device}")
    line("data", f"{len(dataset)} paragraphs of {length} tokens, {batch} a step")
    line("trainer", f"device {training_args.device}, bf16 autocast, torch.compile backend {training_args.torch_compile_backend!r}")
    trainer.train()
    trainer.save_model()
    tokenizer.save_pretrained(output)

    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    line("loss", f"{losses[0]:.3f} -> {losses[-1]:.3f}")
    line("compiled", f"{report.graphs[-1]} graphs in all, {report.graphs[-1] - report.graphs[0]} of them after the first step")
    later = sorted(report.times[1:]) or report.times
    line("speed", f"first step {report.times[0]:.1f} s (compiles), then {1e3 * later[len(later) // 2]:.0f} ms a step")


def main() -> None:
    """Read the command line, make the demo model if it is needed, and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="name on the hub, or folder (default: the demo model, trained first if missing)")
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="paragraphs per step (default: %(default)s)")
    parser.add_argument("--length", type=int, default=128, help="tokens per paragraph (default: %(default)s)")
    parser.add_argument("--output", default="", help="folder to save the tuned model in (default: none, it is not kept)")
    options = parser.parse_args()
    if min(options.steps, options.batch, options.length) < 1:
        parser.error("--steps, --batch and --length must be positive")

    line("neuron", require_neuron())
    model_id = options.model or str(train_tiny.ensure_model())
    with tempfile.TemporaryDirectory() as scratch:
        run(model_id, options.steps, options.batch, options.length, options.output or scratch)
    if options.output:
        line("saved in", options.output)


if __name__ == "__main__":
    main()
