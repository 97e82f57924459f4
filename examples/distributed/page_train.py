# torchrun --nproc_per_node=4 examples/distributed/page_train.py
"""After the last example of transformers' "AWS Trainium" page: tensor parallel x FSDP2 by `DistributedConfig`, trained by `Trainer`.

The model is tiny, with random weights, made on the spot. `--model` takes any folder or hub name.
"""

from __future__ import annotations

import argparse
import tempfile

from shared import Blocks, demo_model, need_ranks, say
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.distributed.configuration_utils import DistributedConfig


def main() -> None:
    """Load the model onto the mesh and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="folder or hub name (default: a tiny Qwen3 with random weights)")
    parser.add_argument("--tp", type=int, default=2, help="ranks that share a layer (default: %(default)s)")
    parser.add_argument("--fsdp", type=int, default=2, help="ranks that share a replica's weights (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--output", default="", help="folder to save the model in (default: none, it is not kept)")
    options = parser.parse_args()
    need_ranks((options.tp * options.fsdp,))
    model_id = options.model or demo_model()

    with tempfile.TemporaryDirectory() as scratch:
        distributed_config = DistributedConfig(tp_size=options.tp, fsdp_size=options.fsdp)
        model = AutoModelForCausalLM.from_pretrained(model_id, distributed_config=distributed_config)

        training_args = TrainingArguments(
            output_dir=options.output or scratch,
            bf16=True,
            per_device_train_batch_size=4,
            max_steps=options.steps,
            learning_rate=3e-3,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=training_args, train_dataset=Blocks())
        trainer.train()
        if options.output:
            trainer.save_model()

        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        say(f"mesh {model._device_mesh}, {training_args.device}")
        say(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
