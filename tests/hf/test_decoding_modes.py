"""Ways of decoding other than greedy: each gives on the device what it gives on the CPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel, TextStreamer
from transformers.generation.streamers import BaseStreamer

from .helpers import distance, greedy, make_tokenizer
from .model_zoo import VOCAB_SIZE, as_user_passes, make_inputs, make_model

NEW_TOKENS = 16


def pair(name: str, device: str, seed: int = 0) -> tuple[PreTrainedModel, PreTrainedModel]:
    """The same model on the CPU and on the device."""
    cpu_model = make_model(name, seed)
    return cpu_model, copy.deepcopy(cpu_model).to(device)


def both(name: str, device: str, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Generates with the inputs a user passes and the same seed on the CPU and on the device."""
    outputs = []
    for model in pair(name, device):
        torch.manual_seed(11)
        inputs = as_user_passes(name, make_inputs(name), model.device)
        outputs.append(model.generate(**inputs, max_new_tokens=NEW_TOKENS, **options).cpu())
    return outputs[0], outputs[1]


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe", "mamba"])
@pytest.mark.parametrize(
    "options",
    [{"temperature": 0.8}, {"top_k": 20}, {"top_p": 0.9, "top_k": 0}, {"min_p": 0.02, "repetition_penalty": 1.2}],
    ids="+".join,
)
def test_seeded_sampling(name: str, options: dict[str, Any], device: str) -> None:
    """Inputs on the CPU: sampling draws from the CPU's generator, so the same seed gives the same text."""
    expected, actual = both(name, device, do_sample=True, **options)
    assert torch.equal(actual, expected)


def test_sampling_on_the_device_follows_its_seed(device: str) -> None:
    """Inputs on the device: `torch.manual_seed` governs the device's own generator."""
    model = make_model("qwen3").to(device)
    inputs = {key: value.to(device) for key, value in make_inputs("qwen3").items()}

    def sample(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return model.generate(**inputs, do_sample=True, temperature=2.0, max_new_tokens=NEW_TOKENS).cpu()

    first, again, other = sample(3), sample(3), sample(4)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_sampling_on_the_device_has_the_right_distribution(device: str) -> None:
    """Frequencies of 20,000 draws of `multinomial` follow the probabilities (chi-square with 9 degrees of freedom, 0.1 % level)."""
    probabilities = torch.tensor([0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.03, 0.02, 0.01])
    draws = torch.multinomial(probabilities.to(device).expand(20_000, -1), num_samples=1).flatten().cpu()
    expected = probabilities * len(draws)
    chi_square = ((torch.bincount(draws, minlength=10) - expected) ** 2 / expected).sum().item()
    assert chi_square < 27.88


@pytest.mark.parametrize("name", ["qwen3", "t5"])
@pytest.mark.parametrize(
    "options", [{"num_beams": 3}, {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.5, "early_stopping": True}]
)
def test_beam_search(name: str, options: dict[str, Any], device: str) -> None:
    expected, actual = both(name, device, do_sample=False, **options)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("inputs_on_device", [False, True])
def test_beam_sampling_scores(inputs_on_device: bool, device: str) -> None:
    """Beam search with scores, also with everything on the device: `topk`, `gather` and cache reordering run there."""
    results = []
    for model in pair("qwen3", device):
        inputs = {key: value.to(model.device) if inputs_on_device else value for key, value in make_inputs("qwen3").items()}
        results.append(
            model.generate(**inputs, num_beams=3, do_sample=False, max_new_tokens=8, return_dict_in_generate=True, output_scores=True)
        )
    assert torch.equal(results[1].sequences.cpu(), results[0].sequences)
    torch.testing.assert_close(results[1].sequences_scores.cpu(), results[0].sequences_scores, rtol=1e-5, atol=1e-5)


def test_assisted_decoding(device: str) -> None:
    """A draft model (the same weights plus noise: some drafts are accepted, some rejected) changes the speed, not the tokens."""
    inputs = make_inputs("qwen3", batch=1, padded=False)
    outputs = []
    for model in pair("qwen3", device):
        passed = {key: value.to(model.device) for key, value in inputs.items()}
        draft = copy.deepcopy(model).cpu()
        generator = torch.Generator().manual_seed(9)
        with torch.no_grad():
            for parameter in draft.parameters():
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
        outputs.append(greedy(model, passed, NEW_TOKENS, assistant_model=draft.to(model.device)))
    assert torch.equal(outputs[1], outputs[0])
    assert torch.equal(outputs[1], greedy(make_model("qwen3"), inputs, NEW_TOKENS)), "assisted decoding must give the greedy tokens"


def test_prompt_lookup_decoding(device: str) -> None:
    inputs = make_inputs("qwen3", batch=1, padded=False)
    inputs["input_ids"] = inputs["input_ids"].repeat(1, 3)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    cpu_model, model = pair("qwen3", device)
    expected = greedy(cpu_model, inputs, NEW_TOKENS)
    passed = {key: value.to(device) for key, value in inputs.items()}
    assert torch.equal(greedy(model, passed, NEW_TOKENS, prompt_lookup_num_tokens=3), expected)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_padded_batch_equals_single_prompts(name: str, device: str) -> None:
    """Padding on the left changes nothing: every row of a ragged batch continues as it does alone."""
    cpu_model, model = pair(name, device)
    inputs = make_inputs(name, batch=4, padded=False)
    for row, padding in enumerate((0, 2, 5, 9)):
        inputs["input_ids"][row, :padding] = 0
        inputs["attention_mask"][row, :padding] = 0
    together = greedy(model, inputs, NEW_TOKENS)
    assert torch.equal(together, greedy(cpu_model, inputs, NEW_TOKENS))
    for row, padding in enumerate((0, 2, 5, 9)):
        alone = {key: value[row : row + 1, padding:] for key, value in inputs.items()}
        assert torch.equal(greedy(model, alone, NEW_TOKENS)[0, -NEW_TOKENS:], together[row, -NEW_TOKENS:])


def test_continuous_batching(device: str) -> None:
    """Requests of different lengths share one paged cache (`generate_batch`)."""
    ids = make_inputs("qwen3", batch=4, padded=False)["input_ids"]
    prompts = [row[: 6 + 2 * index].tolist() for index, row in enumerate(ids)]
    config = GenerationConfig(max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0, eos_token_id=-1)
    paging = ContinuousBatchingConfig(num_blocks=16, page_size=16, max_batch_tokens=64)
    cpu_model, model = pair("qwen3", device)
    results = model.generate_batch(inputs=prompts, generation_config=config, continuous_batching_config=paging, progress_bar=False)
    generated = [output.generated_tokens for output in results.values()]
    expected = [greedy(cpu_model, {"input_ids": torch.tensor([prompt])}, NEW_TOKENS)[0, len(prompt) :].tolist() for prompt in prompts]
    assert sorted(generated) == sorted(expected)


def test_text_streamer(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`TextStreamer` prints exactly the continuation that `generate` returns."""
    tokenizer = make_tokenizer(vocab_size=VOCAB_SIZE + 4)
    cpu_model, model = pair("qwen3", device)
    printed = []
    for current in (cpu_model, model):
        current.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        current.lm_head.load_state_dict(cpu_model.lm_head.state_dict())
        current.model.embed_tokens.load_state_dict(cpu_model.model.embed_tokens.state_dict())
        inputs = tokenizer("Call me Ishmael.", return_tensors="pt")
        streamer = TextStreamer(tokenizer, skip_prompt=True)
        output = current.generate(**inputs, streamer=streamer, do_sample=False, max_new_tokens=NEW_TOKENS)
        printed.append(capsys.readouterr().out.strip("\n"))
        assert printed[-1] == tokenizer.decode(output[0, inputs["input_ids"].shape[1] :]).strip("\n")
    assert printed[0] == printed[1] != ""


class _Arrivals(BaseStreamer):
    """Notes how many tokens had arrived at each call: streaming means one by one, not all at the end."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def put(self, value: torch.Tensor) -> None:
        """Receives the prompt first, then one token a call."""
        self.lengths.append(value.numel())

    def end(self) -> None:
        """Nothing to flush."""


def test_streaming_is_token_by_token(device: str) -> None:
    model = make_model("qwen3").to(device)
    streamer = _Arrivals()
    greedy(model, make_inputs("qwen3", batch=1, padded=False), NEW_TOKENS, streamer=streamer)
    assert streamer.lengths == [12] + [1] * NEW_TOKENS


class _Forbid(LogitsProcessor):
    """Forbids even tokens with an in-place masked write, on whatever device the scores are."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, torch.arange(scores.shape[1], device=scores.device) % 2 == 0] = -float("inf")
        return scores


def test_logits_processors_on_the_device(device: str) -> None:
    """Built-in and user-written processors with everything on the device."""
    results = []
    for model in pair("qwen3", device):
        inputs = {key: value.to(model.device) for key, value in make_inputs("qwen3").items()}
        options = {"no_repeat_ngram_size": 2, "bad_words_ids": [[11], [13, 15]], "repetition_penalty": 1.3, "min_new_tokens": 4}
        processors = LogitsProcessorList([_Forbid()])
        results.append(model.generate(**inputs, do_sample=False, max_new_tokens=NEW_TOKENS, logits_processor=processors, **options).cpu())
    assert torch.equal(results[1], results[0])
    assert (results[1][:, -NEW_TOKENS:] % 2 == 1).all()


@pytest.mark.parametrize("name", ["gemma3", "mistral"])
def test_sliding_static_cache(name: str, device: str) -> None:
    """The ring buffer of a sliding static cache, past its wrap-around, without compiling."""
    cpu_model, model = pair(name, device)
    inputs = make_inputs(name)
    static = greedy(model, inputs, 24, cache_implementation="static", disable_compile=True)
    assert torch.equal(static, greedy(cpu_model, inputs, 24))


def test_returned_hidden_states_and_attentions(device: str) -> None:
    results = []
    for model in pair("llama", device):
        model.set_attn_implementation("eager")
        inputs = {key: value.to(model.device) for key, value in make_inputs("llama", padded=False).items()}
        with torch.no_grad():
            results.append(model(**inputs, output_hidden_states=True, output_attentions=True))
    for kind in ("hidden_states", "attentions"):
        left, right = getattr(results[1], kind), getattr(results[0], kind)
        assert len(left) == len(right) >= 2
        for actual, expected in zip(left, right, strict=True):
            assert distance(actual, expected) < 1e-5
