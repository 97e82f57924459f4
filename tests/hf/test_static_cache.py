"""`generate(cache_implementation="static")`: transformers compiles the decode step by itself, once, and nothing changes in the tokens."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, CompileConfig, PreTrainedModel

from .helpers import assert_close_as_cpu, compiled_graphs, distance, greedy, make_tokenizer
from .model_zoo import as_user_passes, make_inputs, make_model

pytestmark = [pytest.mark.neuron_only, pytest.mark.usefixtures("fresh_compiler")]

NEW_TOKENS = 20


def on_device(name: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    """The same model on the CPU and on the device."""
    cpu_model = make_model(name)
    return cpu_model, copy.deepcopy(cpu_model).to("neuron")


def test_page_snippet(tmp_path: Path) -> None:
    """The documented snippet, but for the model's name: loads, compiles the decode step once, decodes text."""
    tokenizer = make_tokenizer(vocab_size=256 + 4)
    model = make_model("qwen3")
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype="bfloat16", device_map="neuron")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    inputs = tokenizer("Call me Ishmael. Some years ago", return_tensors="pt")
    outputs = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False, cache_implementation="static")
    text = tokenizer.decode(outputs[0], skip_special_tokens=True)

    assert text.startswith("Call me Ishmael. Some years ago")
    assert outputs.device.type == "cpu" and outputs.shape[1] == inputs["input_ids"].shape[1] + NEW_TOKENS
    assert compiled_graphs() == 1


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "qwen3_moe", "qwen3_next", "t5", "bart"])
def test_one_graph_and_same_tokens(name: str) -> None:
    cpu_model, model = on_device(name)
    inputs = make_inputs(name)
    expected = greedy(cpu_model, inputs, NEW_TOKENS)
    static = greedy(model, as_user_passes(name, inputs, model.device), NEW_TOKENS, cache_implementation="static")
    assert compiled_graphs() == 1
    assert torch.equal(static, expected)


@pytest.mark.parametrize("name", ["qwen3", "t5"])
def test_disable_compile(name: str) -> None:
    cpu_model, model = on_device(name)
    inputs = make_inputs(name)
    passed = as_user_passes(name, inputs, model.device)
    static = greedy(model, passed, NEW_TOKENS, cache_implementation="static", disable_compile=True)
    assert compiled_graphs() == 0
    assert torch.neuron.get_dynamo_metrics() == []
    assert torch.equal(static, greedy(cpu_model, inputs, NEW_TOKENS))


def test_logits_of_every_step() -> None:
    """Tokens hide small errors: at every step the compiled decode, the uncompiled one and the CPU agree on the logits."""
    cpu_model, model = on_device("qwen3")
    options = {"return_dict_in_generate": True, "output_logits": True, "max_new_tokens": NEW_TOKENS, "do_sample": False}
    inputs = make_inputs("qwen3")
    expected = cpu_model.generate(**inputs, **options)
    eager = model.generate(**inputs, **options, cache_implementation="static", disable_compile=True)
    assert compiled_graphs() == 0
    compiled = model.generate(**inputs, **options, cache_implementation="static")
    assert compiled_graphs() == 1
    assert len(compiled.logits) == len(eager.logits) == len(expected.logits) == NEW_TOKENS
    for step in range(NEW_TOKENS):
        assert distance(eager.logits[step], expected.logits[step]) < 1e-5, f"eager, step {step}"
        assert distance(compiled.logits[step], expected.logits[step]) < 1e-5, f"compiled, step {step}"


def test_metrics_describe_the_graph() -> None:
    _, model = on_device("qwen3")
    greedy(model, make_inputs("qwen3"), NEW_TOKENS, cache_implementation="static")
    (record,) = torch.neuron.get_dynamo_metrics()
    assert record["graph_node_count"] > 50, "two transformer layers have more operators than that"
    assert record["graph_id"] and record["graph_name"].startswith(record["model_name"])


def test_decode_runs_the_graph_not_eager() -> None:
    """Decode steps run inside the compiled program: the number of graphs alone would not show a graph that is never used."""
    calls: list[int] = []
    _, model = on_device("qwen3")
    hook = model.model.layers[0].mlp.register_forward_hook(lambda *_: None if torch.compiler.is_compiling() else calls.append(1))
    greedy(model, make_inputs("qwen3"), NEW_TOKENS, cache_implementation="static", disable_compile=True)
    assert len(calls) == NEW_TOKENS
    calls.clear()
    greedy(model, make_inputs("qwen3"), NEW_TOKENS, cache_implementation="static")
    hook.remove()
    assert len(calls) == 1, "only the prefill may run module by module"


def test_second_call_does_not_recompile() -> None:
    cpu_model, model = on_device("qwen3")
    for seed in (1, 2):
        inputs = make_inputs("qwen3", seed=seed)
        assert torch.equal(greedy(model, inputs, NEW_TOKENS, cache_implementation="static"), greedy(cpu_model, inputs, NEW_TOKENS))
    assert compiled_graphs() == 1


def test_fixed_cache_length_serves_all_prompts() -> None:
    """With `max_cache_len` the cache keeps its shape for other prompts and lengths: nothing is compiled again."""
    cpu_model, model = on_device("qwen3")
    for length, new_tokens in ((12, 8), (20, 8), (5, 16)):
        inputs = make_inputs("qwen3", length=length)
        static = greedy(model, inputs, new_tokens, cache_implementation="static", max_cache_len=64)
        assert torch.equal(static, greedy(cpu_model, inputs, new_tokens))
    assert compiled_graphs() == 1


def test_other_cache_length_compiles_again_and_is_counted() -> None:
    cpu_model, model = on_device("qwen3")
    for expected_graphs, length in enumerate((12, 20), start=1):
        inputs = make_inputs("qwen3", length=length)
        assert torch.equal(greedy(model, inputs, NEW_TOKENS, cache_implementation="static"), greedy(cpu_model, inputs, NEW_TOKENS))
        assert compiled_graphs() == expected_graphs
    assert len(torch.neuron.get_dynamo_metrics()) == 2


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_explicit_compile_config(mode: str) -> None:
    cpu_model, model = on_device("qwen3")
    inputs = make_inputs("qwen3")
    config = CompileConfig(backend="neuron", dynamic=False, mode=mode, fullgraph=True)
    assert torch.equal(
        greedy(model, inputs, NEW_TOKENS, cache_implementation="static", compile_config=config), greedy(cpu_model, inputs, NEW_TOKENS)
    )
    assert compiled_graphs() == 1


@pytest.mark.parametrize(
    "config",
    [CompileConfig(), CompileConfig(fullgraph=True, dynamic=False), CompileConfig(mode="max-autotune")],
    ids=["default", "full", "mode"],
)
def test_compile_config_that_names_inductor(config: CompileConfig) -> None:
    """What `CompileConfig` says if the user does not: Inductor with "reduce-overhead". The decode step still is one program of ours."""
    assert config.backend == "inductor"
    cpu_model, model = on_device("qwen3")
    inputs = make_inputs("qwen3")
    static = greedy(model, inputs, NEW_TOKENS, cache_implementation="static", compile_config=config)
    assert torch.equal(static, greedy(cpu_model, inputs, NEW_TOKENS))
    assert compiled_graphs() == 1


@pytest.mark.parametrize("name", ["gemma3", "mistral"])
def test_sliding_and_hybrid_caches(name: str) -> None:
    """Past the wrap-around of the window. The cache keeps its position as a Python number, so steps are compiled until Dynamo's limit."""
    cpu_model, model = on_device(name)
    inputs = make_inputs(name)
    static = greedy(model, inputs, NEW_TOKENS, cache_implementation="static")
    assert torch.equal(static, greedy(cpu_model, inputs, NEW_TOKENS))
    assert 1 <= compiled_graphs() <= torch._dynamo.config.recompile_limit


def test_chunked_prefill_goes_through_the_compiler() -> None:
    """Chunks of four tokens are compiled as well as the decode step; a second call compiles nothing."""
    cpu_model, model = on_device("qwen3")
    graphs = []
    for seed in (1, 2):
        inputs = make_inputs("qwen3", padded=False, seed=seed)
        output = greedy(model, inputs, NEW_TOKENS, cache_implementation="static", prefill_chunk_size=4)
        assert torch.equal(output, greedy(cpu_model, inputs, NEW_TOKENS))
        graphs.append(compiled_graphs())
    assert 2 <= graphs[0] <= 3, "one for decoding, one or two for chunks (the first sees an empty cache)"
    assert graphs[1] == graphs[0]


def test_seeded_sampling_is_the_same_compiled_or_not() -> None:
    cpu_model, model = on_device("qwen3")
    inputs = make_inputs("qwen3")
    outputs = []
    for where, options in ((cpu_model, {}), (model, {"disable_compile": True}), (model, {})):
        torch.manual_seed(5)
        outputs.append(
            where.generate(**inputs, do_sample=True, top_k=50, max_new_tokens=NEW_TOKENS, cache_implementation="static", **options)
        )
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
    assert compiled_graphs() == 1


def test_compiled_forward_in_bfloat16() -> None:
    """A whole forward pass through `torch.compile(backend="neuron")` obeys the bfloat16 rule."""
    cpu_model = make_model("qwen3").bfloat16()
    reference = copy.deepcopy(cpu_model).float()
    model = copy.deepcopy(cpu_model).to("neuron")
    inputs = make_inputs("qwen3", length=24, padded=False)
    with torch.no_grad():
        compiled = torch.compile(model, backend="neuron")(**{key: value.to("neuron") for key, value in inputs.items()}).logits
        assert_close_as_cpu(compiled, cpu_model(**inputs).logits, reference(**inputs).logits)
    assert compiled_graphs() >= 1
