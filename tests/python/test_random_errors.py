"""What the random operators refuse: the same calls fail on the CPU and on the device, with the same error."""

import math
import warnings
from collections.abc import Callable

import pytest
import torch

DEVICE = "neuron"
aten = torch.ops.aten

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex32, torch.float8_e4m3fn, torch.bool),
    *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
]


def ones(device, dtype=torch.float32, size=(3,)):
    return torch.ones(size).to(dtype).to(device)


# Each operator as a function of (device, dtype), with arguments that are good for the dtypes that it has.
OPERATORS: dict[str, Callable] = {
    "uniform_": lambda d, t: ones(d, t).uniform_(),
    "normal_": lambda d, t: ones(d, t).normal_(),
    "random_": lambda d, t: ones(d, t).random_(),
    "random_.from": lambda d, t: ones(d, t).random_(0, 2),
    "random_.from without to": lambda d, t: ones(d, t).random_(0, None),
    "random_.from everything": lambda d, t: ones(d, t).random_(-(2**63), None),
    "random_.to": lambda d, t: ones(d, t).random_(2),
    "bernoulli_.float": lambda d, t: ones(d, t).bernoulli_(0.5),
    "bernoulli_.Tensor": lambda d, t: ones(d, t).bernoulli_(ones(d)),
    "bernoulli_.Tensor of the type": lambda d, t: ones(d, t).bernoulli_(ones(d, t)),
    "bernoulli": lambda d, t: torch.bernoulli(ones(d, t)),
    "exponential_": lambda d, t: ones(d, t).exponential_(),
    "geometric_": lambda d, t: ones(d, t).geometric_(0.5),
    "cauchy_": lambda d, t: ones(d, t).cauchy_(),
    "log_normal_": lambda d, t: ones(d, t).log_normal_(),
    "normal.Tensor_float": lambda d, t: torch.normal(ones(d, t), 1.0),
    "normal.float_Tensor": lambda d, t: torch.normal(0.0, ones(d, t)),
    "normal.Tensor_Tensor": lambda d, t: torch.normal(ones(d, t), ones(d, t)),
    "multinomial": lambda d, t: torch.multinomial(ones(d, t), 2),
    "multinomial with replacement": lambda d, t: torch.multinomial(ones(d, t), 2, replacement=True),
    "randperm": lambda d, t: torch.randperm(5, device=d, dtype=t),
    "native_dropout": lambda d, t: torch.native_dropout(ones(d, t), 0.5, True)[0],
    "native_dropout in evaluation": lambda d, t: torch.native_dropout(ones(d, t), 0.5, False)[0],
    "rrelu": lambda d, t: torch.rrelu(ones(d, t), training=True),
    "rrelu in evaluation": lambda d, t: aten.rrelu_with_noise(ones(d, t), ones(d, t)),
    "poisson": lambda d, t: torch.poisson(ones(d, t)),
    "binomial": lambda d, t: torch.binomial(ones(d, t), ones(d, t)),
    "_standard_gamma": lambda d, t: torch._standard_gamma(ones(d, t)),
    "_sample_dirichlet": lambda d, t: torch._sample_dirichlet(ones(d, t)),
}

# Bad values, as functions of the device.
nan, inf = math.nan, math.inf
CALLS: dict[str, Callable] = {
    "uniform_ backwards": lambda d: ones(d).uniform_(1, 0),
    "uniform_ too wide": lambda d: ones(d).uniform_(-3e38, 3e38),
    "uniform_ outside half": lambda d: ones(d, torch.float16).uniform_(0, 1e6),
    "normal_ std < 0": lambda d: ones(d).normal_(0, -1),
    "normal std < 0": lambda d: torch.normal(0.0, -ones(d)),
    "normal shapes": lambda d: torch.normal(ones(d), ones(d, size=(2,))),
    "exponential_ rate": lambda d: ones(d).exponential_(0),
    "log_normal_ std": lambda d: ones(d).log_normal_(0, 0),
    "cauchy_ sigma": lambda d: ones(d).cauchy_(0, 0),
    "geometric_ 0": lambda d: ones(d).geometric_(0),
    "geometric_ 1": lambda d: ones(d).geometric_(1),
    "random_ empty range": lambda d: ones(d).random_(3, 3),
    "random_ outside int8": lambda d: ones(d, torch.int8).random_(0, 200),
    "random_ outside half": lambda d: ones(d, torch.float16).random_(0, 2**40),
    "random_ outside bool": lambda d: ones(d, torch.bool).random_(0, 3),
    "randint empty range": lambda d: torch.randint(3, 3, (2,), device=d),
    "bernoulli_ p": lambda d: ones(d).bernoulli_(1.5),
    "bernoulli_ tensor p": lambda d: ones(d).bernoulli_(2 * ones(d)),
    "bernoulli_ nan": lambda d: ones(d).bernoulli_(nan * ones(d)),
    "bernoulli_ shape": lambda d: ones(d).bernoulli_(ones(d, size=(4,))),
    "native_dropout p > 1": lambda d: torch.native_dropout(ones(d), 1.5, True),
    "native_dropout p < 0": lambda d: torch.native_dropout(ones(d), -0.5, True),
    "dropout p": lambda d: torch.nn.functional.dropout(ones(d), 1.5),
    "multinomial dimensions": lambda d: torch.multinomial(ones(d, size=(2, 2, 2)), 1),
    "multinomial scalar": lambda d: torch.multinomial(ones(d, size=()), 1),
    "multinomial no samples": lambda d: torch.multinomial(ones(d), 0),
    "multinomial too many": lambda d: torch.multinomial(ones(d), 4),
    "multinomial negative": lambda d: torch.multinomial(-ones(d), 1),
    "multinomial nan": lambda d: torch.multinomial(nan * ones(d), 1),
    "multinomial inf": lambda d: torch.multinomial(inf * ones(d), 1),
    "multinomial zero": lambda d: torch.multinomial(0 * ones(d), 1),
    "multinomial zero row": lambda d: torch.multinomial(torch.tensor([[1.0, 1.0], [0.0, 0.0]]).to(d), 1),
    "multinomial negative with replacement": lambda d: torch.multinomial(-ones(d), 2, True),
    "multinomial nan with replacement": lambda d: torch.multinomial(nan * ones(d), 2, True),
    "multinomial inf with replacement": lambda d: torch.multinomial(inf * ones(d), 2, True),
    "multinomial zero with replacement": lambda d: torch.multinomial(0 * ones(d), 2, True),
    "multinomial no categories": lambda d: torch.multinomial(ones(d, size=(0,)), 1),
    "multinomial categories": lambda d: torch.multinomial(ones(d, size=(1,)).expand(2**24 + 1), 1),
    "multinomial out": lambda d: torch.multinomial(ones(d), 1, out=ones(d)),
    "randperm negative": lambda d: torch.randperm(-1, device=d),
    "randperm negative out": lambda d: torch.randperm(-1, out=ones(d, torch.int64)),
    "randperm half": lambda d: torch.randperm(5000, device=d, dtype=torch.float16),
    "randperm uint8": lambda d: torch.randperm(257, device=d, dtype=torch.uint8),
    "randperm float": lambda d: torch.randperm(2**24 + 2, device=d, dtype=torch.float32),
    "rrelu range": lambda d: aten.rrelu_with_noise(-ones(d), ones(d), 0.5, 0.1, True),
    "rrelu noise shape": lambda d: aten.rrelu_with_noise(ones(d), ones(d, size=(2,)), 0.1, 0.5, True),
    "rrelu noise dtype": lambda d: aten.rrelu_with_noise(ones(d), ones(d, torch.float64), 0.1, 0.5, True),
    "poisson negative": lambda d: torch.poisson(-ones(d)),
    "poisson nan": lambda d: torch.poisson(nan * ones(d)),
    "binomial dtypes": lambda d: torch.binomial(ones(d), ones(d, torch.float64)),
    "binomial integer count": lambda d: torch.binomial(ones(d, torch.int64), ones(d)),
    "binomial integer prob": lambda d: torch.binomial(ones(d), ones(d, torch.int64)),
    "binomial shapes": lambda d: torch.binomial(ones(d), ones(d, size=(2,))),
    "normal_ overlap": lambda d: ones(d, size=(1,)).expand(3).normal_(),
    "uniform_ overlap": lambda d: ones(d, size=(1,)).expand(3).uniform_(),
    "bernoulli_ overlap": lambda d: ones(d, size=(1,)).expand(3).bernoulli_(),
}


def outcome(call: Callable, *arguments) -> tuple[str, str]:
    """The type and first line of the error of a call, or "result" and what identifies it: dtype and shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = call(*arguments)
        except Exception as error:
            return type(error).__name__, str(error).split("\n", maxsplit=1)[0]
    return "result", f"{result.dtype} {tuple(result.shape)}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_dtypes_are_those_of_the_cpu(name, dtype):
    expected = outcome(OPERATORS[name], "cpu", dtype)
    if name == "multinomial":
        # The CPU names the helper that it happens to call first.
        expected = tuple(text.replace('"aminmax_cpu"', '"multinomial"') for text in expected)
    assert outcome(OPERATORS[name], DEVICE, dtype) == expected


@pytest.mark.parametrize("name", CALLS)
def test_bad_arguments_give_the_error_of_the_cpu(name):
    expected = outcome(CALLS[name], "cpu")
    assert expected[0] != "result"
    assert outcome(CALLS[name], DEVICE) == expected


def test_precision_warning_of_random_is_that_of_the_cpu():
    for device in ("cpu", DEVICE):
        with pytest.warns(UserWarning, match=r"out of bounds \[-\(2\^24\), 2\^24\]"):
            ones(device).random_(0, 2**30)


@pytest.mark.parametrize(
    ("generator_device", "message"),
    [
        ("cpu", "Expected a 'neuron' device type for generator but found 'cpu'"),
        ("neuron:1", "Expected a 'neuron:0' generator device but found 'neuron:1'"),
    ],
)
def test_generators_of_other_devices_are_refused(generator_device, message):
    generator = torch.Generator(generator_device)
    for call in [
        lambda: ones(DEVICE).normal_(generator=generator),
        lambda: torch.rand(3, device=DEVICE, generator=generator),
        lambda: torch.multinomial(ones(DEVICE), 1, generator=generator),
        lambda: torch.bernoulli(ones(DEVICE), generator=generator),
        lambda: torch.poisson(ones(DEVICE), generator=generator),
    ]:
        with pytest.raises(RuntimeError, match=message):
            call()


def test_a_neuron_generator_is_refused_by_the_cpu():
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'neuron'"):
        torch.rand(3, generator=torch.Generator(DEVICE))


def test_tensors_of_two_devices_are_refused():
    for call in [
        lambda: torch.normal(ones(DEVICE), ones("cpu")),
        lambda: torch.normal(ones("cpu"), ones(DEVICE)),
        lambda: torch.normal(ones("neuron:0"), ones("neuron:1")),
        lambda: torch.binomial(ones(DEVICE), ones("cpu")),
        lambda: torch.multinomial(ones(DEVICE), 1, out=torch.empty(1, dtype=torch.int64)),
        lambda: aten.rrelu_with_noise(ones(DEVICE), ones("cpu"), 0.1, 0.5, True),
        lambda: aten.rrelu_with_noise(ones("cpu"), ones(DEVICE), 0.1, 0.5, True),
    ]:
        with pytest.raises(RuntimeError, match="same device"):
            call()


def test_failed_calls_leave_the_device_usable():
    with pytest.raises(RuntimeError):
        torch.multinomial(-ones(DEVICE), 1)
    assert torch.rand(3, device=DEVICE).max() < 1
