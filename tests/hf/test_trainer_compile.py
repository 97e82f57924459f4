"""`TrainingArguments(torch_compile=True)`: backend `neuron`; forward and backward compiled, the optimizer not; shapes stay static."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from .helpers import compiled_graphs
from .training import STEPS, Sequences, curve, make_trainer, tiny_llama, train_on

pytestmark = [pytest.mark.neuron_only, pytest.mark.usefixtures("fresh_compiler")]


class GraphCounter(TrainerCallback):
    """Notes after every step how many graphs have been compiled."""

    def __init__(self) -> None:
        self.after_step: list[int] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Adds one count."""
        self.after_step.append(compiled_graphs())


def graph_kinds() -> list[str]:
    """`forward`, `backward` or `inference` for each compiled graph, as its name says (`<model>_<aot id>_<kind>_<n>`)."""
    names = [record["graph_name"] for record in torch.neuron.get_dynamo_metrics()]
    kinds = [[kind for kind in ("forward", "backward", "inference") if kind in name.split("_")] for name in names]
    assert all(len(kind) == 1 for kind in kinds), names
    return [kind[0] for kind in kinds]


def compiled_run(folder: Path, **options: Any) -> tuple[Trainer, GraphCounter]:
    """Trains with `torch_compile=True` and counts graphs."""
    counter = GraphCounter()
    return train_on("neuron", folder, torch_compile=True, callbacks=[counter], **options), counter


def test_backend_is_chosen_by_itself(tmp_path: Path) -> None:
    arguments = TrainingArguments(output_dir=str(tmp_path), bf16=True, torch_compile=True)
    assert arguments.torch_compile_backend == "neuron"


def test_dynamic_is_never_set(tmp_path: Path) -> None:
    """What accelerate hands to `torch.compile`."""
    trainer = make_trainer(tmp_path, "neuron", torch_compile=True)
    plugin = trainer.accelerator.state.dynamo_plugin
    assert plugin.backend.value.lower() == "neuron"
    assert plugin.dynamic is False


def test_forward_and_backward_compiled_once(tmp_path: Path) -> None:
    """The page's arguments: one graph each way after step 1 and no more after step 20; the optimizer runs eagerly."""
    import torch_neuronx

    torch_neuronx.clear_op_tracking()
    trainer, counter = compiled_run(tmp_path, bf16=True)
    assert counter.after_step == [2] * STEPS
    assert sorted(graph_kinds()) == ["backward", "forward"]
    assert compiled_graphs() == len(torch.neuron.get_dynamo_metrics())
    assert "aten::_fused_adamw_" in torch_neuronx.get_executed_ops()
    assert curve(trainer)[-1] < 0.95 * curve(trainer)[0]


def test_graphs_are_used(tmp_path: Path) -> None:
    """Step 2 and later run the program: no layer is called by Python any more."""
    calls: list[int] = []
    model = tiny_llama()
    model.model.layers[0].mlp.register_forward_hook(lambda *_: None if torch.compiler.is_compiling() else calls.append(1))
    compiled_run(tmp_path, model=model, max_steps=4)
    assert calls == []
    assert compiled_graphs() == 2


def test_loss_curve_equals_cpu(tmp_path: Path) -> None:
    """In float32 the compiled run follows the CPU's uncompiled one."""
    trainer, _ = compiled_run(tmp_path / "neuron")
    cpu = train_on("cpu", tmp_path / "cpu")
    assert curve(trainer) == pytest.approx(curve(cpu), rel=1e-5)
    assert curve(trainer, "grad_norm") == pytest.approx(curve(cpu, "grad_norm"), rel=1e-4)


def test_dropout_equals_eager(tmp_path: Path) -> None:
    """Random operators inside graphs draw the same numbers as eager for the same seed."""
    compiled, _ = compiled_run(tmp_path / "compiled", model=tiny_llama(attention_dropout=0.2))
    eager = train_on("neuron", tmp_path / "eager", model=tiny_llama(attention_dropout=0.2))
    assert curve(compiled) == pytest.approx(curve(eager), rel=1e-5)


class _Lengths(Dataset[dict[str, torch.Tensor]]):
    """Batches of four whose length changes: 24 twice, 16 twice, 32 twice, then 24 again."""

    order = (24, 24, 16, 16, 32, 32, 24, 24)

    def __init__(self) -> None:
        self.parts = [Sequences(size=4, length=length, padding=False, seed=index) for index, length in enumerate(self.order)]

    def __len__(self) -> int:
        return 4 * len(self.order)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.parts[index // 4][index % 4]


def test_changed_shape_recompiles_and_is_counted(tmp_path: Path) -> None:
    """Each new length adds a forward and a backward graph; a known length adds none. A dynamic graph would make the third free."""
    trainer, counter = compiled_run(tmp_path, data=_Lengths(), max_steps=len(_Lengths.order), train_sampling_strategy="sequential")
    assert counter.after_step == [2, 2, 4, 4, 6, 6, 6, 6]
    assert len(torch.neuron.get_dynamo_metrics()) == 6
    assert counters["stats"]["unique_graphs"] == 3
    eager = train_on("neuron", tmp_path / "eager", data=_Lengths(), max_steps=len(_Lengths.order), train_sampling_strategy="sequential")
    assert curve(trainer) == pytest.approx(curve(eager), rel=1e-5)


def test_evaluation_compiles_once_a_shape(tmp_path: Path) -> None:
    """Full batches and the ragged last one (4 + 4 + 2): two graphs at the first evaluation, none at the second."""
    trainer = make_trainer(tmp_path, "neuron", torch_compile=True, per_device_eval_batch_size=4)
    data = Sequences(size=10, seed=1)
    first = trainer.evaluate(data)
    evaluated = compiled_graphs()
    assert evaluated == 2 and graph_kinds() == ["inference", "inference"]
    assert trainer.evaluate(data)["eval_loss"] == first["eval_loss"]
    assert compiled_graphs() == evaluated


def test_with_accumulation_clipping_and_checkpointing(tmp_path: Path) -> None:
    """Everything together still is one forward and one backward graph, and the eager curve."""
    options = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "gradient_checkpointing": True, "max_steps": 6}
    trainer, counter = compiled_run(tmp_path / "compiled", **options)
    eager = train_on("cpu", tmp_path / "eager", **options)
    assert curve(trainer) == pytest.approx(curve(eager), rel=1e-5)
    assert counter.after_step[0] == counter.after_step[-1] >= 2


def test_explicit_backend_and_other_mode(tmp_path: Path) -> None:
    """A mode that means nothing on this device falls back to the default one instead of failing."""
    trainer, counter = compiled_run(tmp_path, torch_compile_backend="neuron", torch_compile_mode="max-autotune", max_steps=2)
    assert counter.after_step == [2, 2]
    assert len(curve(trainer)) == 2
