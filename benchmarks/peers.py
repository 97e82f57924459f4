"""Other engines on this CPU beside `neuron`: eager PyTorch, Inductor, and OpenVINO where `make bench-peers` installed it."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from transformers import PreTrainedModel, StaticCache

from benchmarks.encoders import model_and_input
from benchmarks.language import CONTEXT, PROMPT, qwen3_0_6b, timed
from benchmarks.measure import Result

PEERS = Path(__file__).parents[1] / "build" / "peers"


def openvino() -> object | None:
    """The module `openvino`, or nothing if it is not installed."""
    if PEERS.exists() and str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))
    try:
        return importlib.import_module("openvino")
    except ImportError:
        return None


def first_and_next(call: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Seconds of the first call, which compiles, and the median of later ones."""
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    return first, timed(call, rounds)


def with_openvino(model: PreTrainedModel, inputs: dict[str, torch.Tensor], threads: int) -> Callable[[], object] | None:
    """A call of the model compiled by OpenVINO in its latency mode, bfloat16 or float32 as the model is."""
    module = openvino()
    if module is None:
        return None
    kind = "bf16" if model.dtype == torch.bfloat16 else "f32"
    converted = module.convert_model(model.float(), example_input={k: v.float() if v.is_floating_point() else v for k, v in inputs.items()})  # type: ignore[attr-defined]
    options = {"INFERENCE_PRECISION_HINT": kind, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    compiled = module.compile_model(converted, "CPU", options)  # type: ignore[attr-defined]
    arrays = {key: value.float().numpy() if value.is_floating_point() else value.numpy() for key, value in inputs.items()}
    return lambda: compiled(arrays)


def encoders(threads: int) -> Iterator[Result]:
    """BERT-base and ViT-B/16."""
    for name in ("BERT-base", "ViT-B/16"):
        for dtype in (torch.bfloat16, torch.float32):
            torch.compiler.reset()
            model, inputs, _ = model_and_input(name)
            model = model.to(dtype)
            inputs = {key: value.to(dtype) if value.is_floating_point() else value for key, value in inputs.items()}
            rivals = {"eager CPU": timed(lambda model=model, inputs=inputs: model(**inputs), 5)}
            inductor = torch.compile(model, backend="inductor", dynamic=False)
            rivals["Inductor"] = timed(lambda inductor=inductor, inputs=inputs: inductor(**inputs), 5)
            model.to("neuron")
            compiled = torch.compile(model, backend="neuron")
            device_inputs = {key: value.to("neuron") for key, value in inputs.items()}
            own = timed(lambda compiled=compiled, device_inputs=device_inputs: compiled(**device_inputs), 5)
            call = with_openvino(model.to("cpu"), inputs, threads)
            if call is not None:
                rivals["OpenVINO"] = timed(call, 5)
            yield from _beside(f"{name}, {str(dtype).removeprefix('torch.')}", own, rivals)


def language(threads: int) -> Iterator[Result]:
    """Prefill and a decode step of Qwen3-0.6B's shape in bfloat16, with the seconds of the first compiled call."""
    torch.compiler.reset()
    model = qwen3_0_6b(torch.bfloat16)
    seconds: dict[str, dict[str, float]] = {"prefill 512": {}, "decode step": {}, "first compiled call": {}}
    for where, backends in (("neuron", ("neuron",)), ("cpu", ("eager", "inductor"))):
        model.to(where)
        tokens = torch.randint(0, 1000, (1, PROMPT), device=where)
        token = tokens[:, :1].contiguous()
        for backend in backends:
            forward = model.forward if backend == "eager" else torch.compile(model.forward, backend=backend, dynamic=False)
            cache = StaticCache(config=model.config, max_cache_len=4 * CONTEXT)
            model(input_ids=tokens[:, :CONTEXT], cache=cache, logits_to_keep=1)
            first, step = first_and_next(lambda forward=forward, cache=cache, token=token: forward(input_ids=token, cache=cache), 10)
            seconds["decode step"][backend] = step
            if backend != "eager":
                seconds["first compiled call"][backend] = first
            seconds["prefill 512"][backend] = timed(
                lambda forward=forward, tokens=tokens: forward(input_ids=tokens, use_cache=False, logits_to_keep=1), 3
            )
    for name, measured in seconds.items():
        own = measured.pop("neuron")
        yield from _beside(f"Qwen3-0.6B shape, bfloat16, {name}", own, measured)


def _beside(name: str, own: float, rivals: dict[str, float]) -> Iterator[Result]:
    for rival, seconds in rivals.items():
        detail = f"{1e3 * own:.1f} ms, {rival} {1e3 * seconds:.1f} ms"
        yield Result(f"{name}: faster than {rival}", seconds / own, "x", 1.0, at_most=False, detail=detail)


def run() -> Iterator[Result]:
    """Two threads."""
    torch.set_num_threads(2)
    if openvino() is None:
        print("      OpenVINO is not installed: `make bench-peers` does that")
    with torch.no_grad():
        yield from language(2)
        yield from encoders(2)
