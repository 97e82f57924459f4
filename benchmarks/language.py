"""A language model of Qwen3-0.6B's shape against the machine's limits: prefill, decode, eight sequences at once, experts, a small model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median

import torch
from transformers import MixtralConfig, MixtralForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM, StaticCache

from benchmarks.flops import Work, attention_work, linear_work, total
from benchmarks.limits import Limits, machine_limits
from benchmarks.measure import Result

DEVICE = "neuron"
PROMPT = 512
CONTEXT = 128  # tokens before the timed decode steps
STEPS = 24


def qwen3_0_6b(dtype: torch.dtype) -> Qwen3ForCausalLM:
    """Qwen3-0.6B's shape with random weights, on the device."""
    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    return _build(Qwen3ForCausalLM, config, dtype)


def small_mixtral(dtype: torch.dtype) -> MixtralForCausalLM:
    """A Mixtral of 8 experts, 2 of them active: 4 layers, 1024 wide."""
    config = MixtralConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=3584,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=8,
        num_local_experts=8,
        num_experts_per_tok=2,
        max_position_embeddings=2048,
    )
    return _build(MixtralForCausalLM, config, dtype)


def _build(kind: type[PreTrainedModel], config: object, dtype: torch.dtype) -> PreTrainedModel:
    torch.manual_seed(0)
    with torch.device(DEVICE):
        previous = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            return kind(config).eval()
        finally:
            torch.set_default_dtype(previous)


def timed(call: Callable[[], object], rounds: int) -> float:
    """Median seconds of a call, after one that does not count."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times)


def decode_seconds(model: PreTrainedModel, batch: int, **options: object) -> float:
    """Seconds for a token through `generate`: a long call minus a short one, so that prefill and set-up cancel out."""
    prompt = torch.randint(0, 1000, (batch, CONTEXT))
    model.generation_config.pad_token_id = 0
    # A token that never comes: each step looks for it as usual. `min_new_tokens` would search the whole vocabulary twice in each step.
    model.generation_config.eos_token_id = model.config.vocab_size

    def generate(tokens: int) -> float:
        start = time.perf_counter()
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=tokens,
            do_sample=False,
            **options,
        )
        return time.perf_counter() - start

    generate(STEPS + 4)
    return median((generate(STEPS + 4) - generate(4)) / STEPS for _ in range(3))


def ratio(name: str, work: Work, seconds: float, before: Limits, dtype: torch.dtype, bar: float, unit: str) -> Result:
    """The share of the limit that was reached; the limit is measured before and after."""
    limits = before.at_best(machine_limits(torch.get_num_threads()))
    limit = work.seconds(limits.read_bandwidth, limits.flops(dtype))
    return Result(name, limit / seconds, "x", bar, at_most=False, detail=f"{1e3 * seconds:.1f} ms {unit}, limit {1e3 * limit:.1f} ms")


def decode(threads: int, dtype: torch.dtype, limits: Limits, model: PreTrainedModel) -> Iterator[Result]:
    """One token at a time, one sequence and eight."""
    label = f"{str(dtype).removeprefix('torch.')}, {threads} thread(s)"
    size = torch.empty((), dtype=dtype).element_size()

    def work(batch: int) -> Work:
        return total(linear_work(model, batch), attention_work(model.config, 1, CONTEXT + STEPS // 2, size, causal=False, batch=batch))

    compiled = decode_seconds(model, 1, cache_implementation="static")
    yield ratio(f"decode compiled, {label}", work(1), compiled, limits, dtype, 0.90, "a token")
    eager = decode_seconds(model, 1)
    yield ratio(f"decode eager, {label}", work(1), eager, limits, dtype, 0.70, "a token")
    together = decode_seconds(model, 8, cache_implementation="static")
    yield ratio(f"decode of 8 sequences, {label}", work(8), together, limits, dtype, 0.80, "a step")


def prefill(threads: int, dtype: torch.dtype, limits: Limits, model: PreTrainedModel) -> Iterator[Result]:
    """A prompt of 512 tokens, eager as `generate` does it and compiled."""
    label = f"{str(dtype).removeprefix('torch.')}, {threads} thread(s)"
    size = torch.empty((), dtype=dtype).element_size()
    tokens = torch.randint(0, 1000, (1, PROMPT), device=DEVICE)
    work = total(
        linear_work(model, PROMPT, skip=("lm_head",)),
        Work(0, 2.0 * model.lm_head.weight.numel()),
        attention_work(model.config, PROMPT, PROMPT, size, causal=True),
    )
    forward = torch.compile(model.forward, backend="neuron")
    for name, call, bar in (("eager", model.forward, 0.68), ("compiled", forward, 0.75)):
        seconds = timed(lambda call=call: call(input_ids=tokens, use_cache=False, logits_to_keep=1), 3)
        yield ratio(f"prefill {PROMPT} {name}, {label}", work, seconds, limits, dtype, bar, "a prompt")


def experts(threads: int, dtype: torch.dtype, limits: Limits) -> Iterator[Result]:
    """A decode step reads the active experts only."""
    model = small_mixtral(dtype)
    config = model.config
    size = torch.empty((), dtype=dtype).element_size()
    active = 3 * config.hidden_size * config.intermediate_size * config.num_experts_per_tok * config.num_hidden_layers
    work = total(
        linear_work(model, 1),
        Work(active * size, 2.0 * active),
        attention_work(config, 1, CONTEXT + STEPS // 2, size, causal=False),
    )
    seconds = decode_seconds(model, 1, cache_implementation="static")
    label = f"{str(dtype).removeprefix('torch.')}, {threads} thread(s)"
    yield ratio(f"Mixtral-shaped decode, {label}", work, seconds, limits, dtype, 0.80, "a token")


def small() -> Result:
    """A model whose steps are all overhead: two layers, 64 wide; compiled against eager on the CPU."""
    config = Qwen3Config(
        vocab_size=1024,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
    )
    torch.manual_seed(0)
    cpu = Qwen3ForCausalLM(config).eval()
    device = Qwen3ForCausalLM(config).eval().to(DEVICE)
    compiled = torch.compile(device.forward, backend="neuron")

    def step(forward: Callable[..., object], where: str) -> Callable[[], object]:
        cache = StaticCache(config=config, max_cache_len=128)
        token = torch.ones(1, 1, dtype=torch.int64, device=where)
        return lambda: forward(input_ids=token, cache=cache)

    eager = timed(step(cpu.forward, "cpu"), 50)
    graph = timed(step(compiled, DEVICE), 50)
    detail = f"eager CPU {1e3 * eager:.2f} ms, compiled {1e3 * graph:.2f} ms"
    return Result("small model, decode step: faster than eager CPU", eager / graph, "x", 2, at_most=False, detail=detail)


def memory(model: PreTrainedModel) -> Result:
    """Peak device memory of compiled generation beyond weights and cache, as a share of the weights."""
    weights = sum({p.data_ptr(): p.numel() * p.element_size() for p in model.parameters()}.values())
    config = model.config
    size = next(model.parameters()).element_size()
    cache = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * (CONTEXT + STEPS + 4) * size
    torch.neuron.reset_peak_memory_stats()
    decode_seconds(model, 1, cache_implementation="static")
    peak = torch.neuron.max_memory_allocated()
    extra = peak - weights - cache
    return Result("compiled generation: memory beyond weights and cache", extra / weights, "x", 0.1, detail=f"{extra / 1e6:.1f} MB")


def run() -> Iterator[Result]:
    """The bars of a language model, bfloat16 with one thread and two, float32 with two."""
    with torch.no_grad():
        for threads, dtype in ((2, torch.bfloat16), (1, torch.bfloat16), (2, torch.float32)):
            torch.set_num_threads(threads)
            torch.compiler.reset()
            limits = machine_limits(threads)
            model = qwen3_0_6b(dtype)
            yield from decode(threads, dtype, limits, model)
            yield from prefill(threads, dtype, limits, model)
            if threads == 2 and dtype == torch.bfloat16:
                yield memory(model)
            del model
            yield from experts(threads, dtype, limits)
        torch.set_num_threads(2)
        yield small()
