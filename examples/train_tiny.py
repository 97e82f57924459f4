"""Train a small Qwen3 model on one novel with transformers' `Trainer` on the device `neuron`, in about a minute and a half.

Model hubs cannot be reached everywhere, so this makes the model that `generate.py` and `train.py` use by default.
It is trained once and kept in `build/demo-model`, until the text, the settings or these scripts change (or with `--retrain`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from corpus import TEXT_FILE, BlockDataset, read_text, split_text, train_tokenizer
from neuron_report import line, require_neuron
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Qwen3Config,
    Qwen3ForCausalLM,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "build" / "demo-model"
RECORD = "training.json"  # written last: a folder that has it is complete
BLOCK = 128  # tokens per training example
CONTEXT = 512  # tokens that the model may read; rotary positions need no table of their own


@dataclass(frozen=True)
class Settings:
    """What decides how the model turns out. The model itself is in `new_model`.

    `steps` is sized for two cores of their own; where they are slower, training still ends after `seconds`.
    """

    steps: int = 800
    seconds: float = 90.0
    batch: int = 8
    vocab_size: int = 4096
    learning_rate: float = 4e-3
    seed: int = 0


class Clock:
    """How far training has come: by steps, or by time where that runs out first.

    The learning rate follows it, so that it has come down whichever of the two ends the training. On a machine that makes its steps in time
    the clock plays no part and a run can be repeated exactly.
    """

    def __init__(self, steps: int, seconds: float) -> None:
        self.steps = steps
        self.seconds = seconds
        self.start = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since `start`."""
        return time.monotonic() - self.start

    def progress(self, step: int) -> float:
        """Return the part of the training that is over after `step` steps, 0 to 1."""
        return min(1.0, max(step / self.steps, self.elapsed / self.seconds))

    def learning_rate_factor(self, step: int) -> float:
        """Return the multiple of the peak learning rate to use at `step`: warm-up over 6 % of the way, half a cosine down to 5 %."""
        progress = self.progress(step + 1)
        return min(1.0, progress / 0.06) * (0.05 + 0.95 * 0.5 * (1.0 + math.cos(math.pi * progress)))


class TimedTrainer(Trainer):
    """`Trainer` with a learning rate that follows a `Clock`."""

    def __init__(self, clock: Clock, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.clock = clock

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Return the schedule for `optimizer` (default: the trainer's own)."""
        self.clock.start = time.monotonic()
        target = self.optimizer if optimizer is None else optimizer
        assert target is not None, "the optimizer is created before its schedule"
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(target, self.clock.learning_rate_factor)
        return self.lr_scheduler


class Progress(TrainerCallback):
    """Prints a line per logging interval and ends training when the clock has run out."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop when the time is over."""
        if self.clock.elapsed >= self.clock.seconds and state.global_step < state.max_steps:
            print(f"  time limit of {self.clock.seconds:.0f} s reached after {state.global_step} of {state.max_steps} steps")
            control.should_training_stop = True
            control.should_log = True  # a run that is ended before its first log still has a loss to report

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, float] | None = None, **kwargs: Any
    ) -> None:
        """Print step, loss, learning rate and time."""
        if logs and "loss" in logs:
            rate = state.global_step * args.train_batch_size * BLOCK / self.clock.elapsed
            print(
                f"  step {state.global_step:>4}/{state.max_steps}  loss {float(logs['loss']):.3f}  "
                f"lr {float(logs['learning_rate']):.1e}  {self.clock.elapsed:5.1f} s  {rate:,.0f} tokens/s",
                flush=True,
            )


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Return a Qwen3 model of about two million parameters with random weights: small enough for two cores, large enough for sentences."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    # Greedy decoding of a model this small would circle in one phrase. Like published models, it brings its own generation settings.
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, repetition_penalty=1.3
    )
    return model


def fingerprint(settings: Settings) -> str:
    """Return a hash of the recipe: text, scripts and settings, without the time limit (more time gives the same model or a better one)."""
    recipe = {name: value for name, value in asdict(settings).items() if name != "seconds"}
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode())
    for path in (TEXT_FILE, Path(__file__), Path(__file__).with_name("corpus.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def read_record(folder: Path) -> dict[str, Any]:
    """Return what training left in `folder` about itself; empty if there is no complete model."""
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return record


def train(settings: Settings, output: Path) -> dict[str, Any]:
    """Train a tokenizer and a model, save both in `output` (which must not exist) and return the record of the training."""
    set_seed(settings.seed)
    training_text, held_out_text = split_text(read_text())
    tokenizer = train_tokenizer(training_text, settings.vocab_size, CONTEXT)
    dataset = BlockDataset(training_text, tokenizer, BLOCK)
    held_out = BlockDataset(held_out_text, tokenizer, BLOCK)
    model = new_model(tokenizer)
    line("text", f"{TEXT_FILE.name}: {len(training_text):,} characters, {len(dataset)} blocks of {BLOCK} tokens; {len(held_out)} held out")
    line("model", f"{type(model).__name__}, {model.num_parameters():,} parameters, vocabulary of {len(tokenizer)}")

    arguments = TrainingArguments(
        output_dir=str(output),
        # Measured on two cores with AVX-512 and bf16 instructions: a step takes 88 ms with bf16 autocast, 99 ms in float32.
        bf16=True,
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch,
        per_device_eval_batch_size=settings.batch,
        dataloader_drop_last=True,
        learning_rate=settings.learning_rate,
        weight_decay=0.1,
        adam_beta2=0.95,
        logging_steps=max(1, settings.steps // 16),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=settings.seed,
    )
    clock = Clock(settings.steps, settings.seconds)
    trainer = TimedTrainer(clock, model=model, args=arguments, train_dataset=dataset, eval_dataset=held_out, callbacks=[Progress(clock)])
    trainer.remove_callback(PrinterCallback)
    line("device", f"Trainer: {trainer.args.device}, model: {model.device}")
    trainer.train()
    seconds = clock.elapsed

    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    record = {
        "device": str(model.device),
        "steps": trainer.state.global_step,
        "seconds": round(seconds, 1),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "held_out_loss": trainer.evaluate()["eval_loss"],
    }
    model.config.use_cache = True  # off while Trainer runs
    trainer.save_model()
    tokenizer.save_pretrained(output)
    return record


def ensure_model(output: Path = DEFAULT_OUTPUT, settings: Settings | None = None, retrain: bool = False) -> Path:
    """Return `output`, after training the model unless a complete one made in the same way is there.

    The new model is made beside `output` and moved there when it is complete, so a training that was ended half-way leaves no half model.

    Raises:
        SystemExit: `output` holds something else than such a model; nothing in it is touched.
    """
    settings = settings or Settings()
    wanted = fingerprint(settings)
    found = read_record(output)
    if found.get("fingerprint") == wanted and not retrain:
        report_cut_short(found, settings)
        return output
    if output.exists() and not found and (not output.is_dir() or any(output.iterdir())):
        raise SystemExit(f"{output} exists and is not a model made by train_tiny.py: remove it or choose another --output")

    line("training", "the demo model is made now, once" if not found else "the demo model is made again")
    work = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        record = train(settings, work)
        (work / RECORD).write_text(json.dumps({**record, "fingerprint": wanted}, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(output, ignore_errors=True)
        work.replace(output)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    line("trained", describe_record(record))
    report_cut_short(record, settings)
    return output


def report_cut_short(record: dict[str, Any], settings: Settings) -> None:
    """Tell how to get a better model if the time limit left much of the training out, as on a busy machine."""
    if record["steps"] < 0.5 * settings.steps:
        longer = "python examples/train_tiny.py --retrain --seconds 600"
        line("note", f"time was up after {record['steps']} of {settings.steps} steps, so the text will be poor; better: {longer}")


def describe_record(record: dict[str, Any]) -> str:
    """Return one line about a finished training."""
    return (
        f"on {record['device']}, {record['steps']} steps in {record['seconds']:.0f} s, loss {record['first_loss']:.2f} -> "
        f"{record['last_loss']:.2f} (held-out text: {record['held_out_loss']:.2f})"
    )


def main() -> None:
    """Read the command line and train."""
    default = Settings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="folder of the model (default: build/demo-model)")
    parser.add_argument("--retrain", action="store_true", help="train even if the model is there")
    parser.add_argument("--steps", type=int, default=default.steps, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=default.seconds, help="limit on the training time (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=default.seed, help="seed of weights and order of the text (default: %(default)s)")
    options = parser.parse_args()
    if options.steps < 1 or options.seconds <= 0:
        parser.error("--steps and --seconds must be positive")

    line("neuron", require_neuron())
    settings = Settings(steps=options.steps, seconds=options.seconds, seed=options.seed)
    folder = ensure_model(options.output, settings, options.retrain)
    line("saved in", f"{folder}: {describe_record(read_record(folder))}")


if __name__ == "__main__":
    main()
