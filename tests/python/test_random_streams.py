"""Random operators as functions of (seed, offset, element): reproducible, independent of threads and layout, with a 16-byte state."""

import pickle
import struct
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.distributed.tensor._random import _PhiloxState

DEVICE = "neuron"
COUNT = 100_000  # enough for several threads

# Every random operator, as a function of a device that returns its results.
OPERATORS: dict[str, Callable[[str], tuple[torch.Tensor, ...]]] = {
    "uniform_": lambda d: (torch.empty(COUNT, device=d).uniform_(-2, 3),),
    "uniform_ bfloat16": lambda d: (torch.empty(COUNT, device=d, dtype=torch.bfloat16).uniform_(),),
    "uniform_ double": lambda d: (torch.empty(COUNT, device=d, dtype=torch.float64).uniform_(),),
    "normal_": lambda d: (torch.empty(COUNT, device=d).normal_(1, 2),),
    "normal_ half": lambda d: (torch.empty(COUNT, device=d, dtype=torch.float16).normal_(),),
    "normal_ complex": lambda d: (torch.empty(COUNT, device=d, dtype=torch.complex64).normal_(),),
    "normal.Tensor_Tensor": lambda d: (torch.normal(torch.arange(COUNT, device=d) * 1.0, torch.ones(COUNT, device=d)),),
    "exponential_": lambda d: (torch.empty(COUNT, device=d).exponential_(0.5),),
    "log_normal_": lambda d: (torch.empty(COUNT, device=d).log_normal_(0, 1),),
    "cauchy_": lambda d: (torch.empty(COUNT, device=d).cauchy_(),),
    "geometric_": lambda d: (torch.empty(COUNT, device=d, dtype=torch.int64).geometric_(0.1),),
    "random_": lambda d: (torch.empty(COUNT, device=d, dtype=torch.int32).random_(),),
    "random_.from": lambda d: (torch.empty(COUNT, device=d, dtype=torch.int64).random_(-5, 1000),),
    "randint": lambda d: (torch.randint(0, 77, (COUNT,), device=d),),
    "randperm": lambda d: (torch.randperm(COUNT, device=d),),
    "bernoulli_": lambda d: (torch.empty(COUNT, device=d).bernoulli_(0.3),),
    "bernoulli": lambda d: (torch.bernoulli(torch.full((COUNT,), 0.3, device=d)),),
    "native_dropout": lambda d: torch.native_dropout(torch.ones(COUNT, device=d), 0.3, True),
    "rrelu": lambda d: (torch.nn.functional.rrelu(-torch.ones(COUNT, device=d), training=True),),
    "multinomial": lambda d: (torch.multinomial(torch.ones(300, 400, device=d), 1),),
    "multinomial many": lambda d: (torch.multinomial(torch.ones(300, 400, device=d), 5),),
    "multinomial replacement": lambda d: (torch.multinomial(torch.ones(300, 400, device=d), 500, replacement=True),),
    "poisson": lambda d: (torch.poisson(torch.full((COUNT,), 20.0, device=d)),),
    "binomial": lambda d: (torch.binomial(torch.full((COUNT,), 50.0, device=d), torch.full((COUNT,), 0.4, device=d)),),
    "_standard_gamma": lambda d: (torch._standard_gamma(torch.full((COUNT,), 0.7, device=d)),),
    "_sample_dirichlet": lambda d: (torch._sample_dirichlet(torch.full((COUNT // 10, 10), 0.7, device=d)),),
    # Composites of PyTorch that draw on the way.
    "randn_like": lambda d: (torch.randn_like(torch.empty(COUNT, device=d)),),
    "trunc_normal_": lambda d: (torch.nn.init.trunc_normal_(torch.empty(100, 1000, device=d)),),
    "orthogonal_": lambda d: (torch.nn.init.orthogonal_(torch.empty(30, 40, device=d)),),
    "gumbel_softmax": lambda d: (torch.nn.functional.gumbel_softmax(torch.zeros(100, 100, device=d)),),
    "feature_alpha_dropout": lambda d: (torch.nn.functional.feature_alpha_dropout(torch.ones(100, 100, 3, device=d), training=True),),
    "fractional_max_pool2d": lambda d: (
        torch.nn.functional.fractional_max_pool2d(torch.arange(40000.0, device=d).view(4, 100, 10, 10), 2, 7),
    ),
    "attention with dropout": lambda d: (
        torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 2, 4, 32, 16, device=d), dropout_p=0.4),
    ),
}

every_operator = pytest.mark.parametrize("name", OPERATORS)


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def draw(name: str, device: str = DEVICE) -> list[torch.Tensor]:
    results = OPERATORS[name](device)
    assert all(result.device.type == DEVICE for result in results)
    return [result.cpu() for result in results]


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@every_operator
def test_results_do_not_depend_on_the_number_of_threads(name):
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        torch.manual_seed(5)
        results.append(draw(name))
    assert equal(results[0], results[1])
    assert equal(results[0], results[2])


@every_operator
def test_a_seed_repeats_and_the_stream_goes_on(name):
    torch.manual_seed(5)
    first, second = draw(name), draw(name)
    torch.manual_seed(5)
    assert equal(draw(name), first)
    assert not equal(first, second)
    torch.manual_seed(6)
    assert not equal(draw(name), first)


@every_operator
def test_cores_with_one_seed_agree(name):
    torch.neuron.manual_seed_all(5)
    assert equal(draw(name, "neuron:0"), draw(name, "neuron:1"))


@every_operator
def test_the_host_generator_is_not_touched(name):
    state = torch.get_rng_state()
    draw(name)
    assert torch.equal(torch.get_rng_state(), state)


def test_generators_are_their_own_streams():
    generator = torch.Generator(DEVICE).manual_seed(5)
    torch.manual_seed(5)
    expected = [torch.rand(10, device=DEVICE) for _ in range(2)]
    torch.manual_seed(9)
    assert torch.equal(torch.rand(10, device=DEVICE, generator=generator), expected[0])
    torch.rand(1000, device=DEVICE)
    assert torch.equal(torch.rand(10, device=DEVICE, generator=generator), expected[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_offset_is_an_element_index(dtype):
    # What DTensor relies on: a shard that starts at element n of the whole draws from offset n.
    generator = torch.Generator(DEVICE).manual_seed(5)
    whole = torch.empty(1000, device=DEVICE, dtype=dtype).normal_(generator=generator)
    assert generator.get_offset() == 1000
    generator.set_offset(400)
    part = torch.empty(300, device=DEVICE, dtype=dtype).normal_(generator=generator)
    assert torch.equal(part, whole[400:700])


def test_offsets_are_multiples_of_four():
    generator = torch.Generator(DEVICE).manual_seed(5)
    torch.rand(1, device=DEVICE, generator=generator)
    assert generator.get_offset() == 4
    torch.rand(9, device=DEVICE, generator=generator)
    assert generator.get_offset() == 16
    with pytest.raises(ValueError, match="multiple of 4"):
        generator.set_offset(6)
    assert generator.get_offset() == 16


def test_empty_results_take_no_numbers():
    generator = torch.Generator(DEVICE).manual_seed(5)
    torch.empty(0, 3, device=DEVICE).normal_(generator=generator)
    torch.randperm(0, device=DEVICE, generator=generator)
    assert generator.get_offset() == 0


def test_state_is_seed_and_offset():
    generator = torch.Generator(DEVICE).manual_seed(2**63 + 5)
    generator.set_offset(2**40)
    state = generator.get_state()
    assert (state.device.type, state.dtype, state.numel()) == ("cpu", torch.uint8, 16)
    assert struct.unpack("<QQ", bytes(state.tolist())) == (2**63 + 5, 2**40)
    other = torch.Generator(DEVICE)
    other.set_state(state)
    assert (other.initial_seed(), other.get_offset()) == (2**63 + 5, 2**40)
    assert torch.equal(torch.rand(50, device=DEVICE, generator=generator), torch.rand(50, device=DEVICE, generator=other))


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (torch.zeros(15, dtype=torch.uint8), ValueError, "16 bytes"),
        (torch.Generator().get_state(), ValueError, "16 bytes"),
        (torch.zeros(16, dtype=torch.int32), TypeError, "ByteTensor"),
        (torch.zeros(32, dtype=torch.uint8)[::2], RuntimeError, "contiguous"),
        (torch.tensor([0] * 8 + [2] + [0] * 7, dtype=torch.uint8), ValueError, "multiple of 4"),
    ],
)
def test_states_that_do_not_fit_are_refused(state, error, message):
    generator = torch.Generator(DEVICE).manual_seed(5)
    with pytest.raises(error, match=message):
        generator.set_state(state)
    assert (generator.initial_seed(), generator.get_offset()) == (5, 0)


def test_a_state_on_the_device_is_refused():
    with pytest.raises(TypeError, match="ByteTensor"):
        torch.Generator(DEVICE).set_state(torch.zeros(16, dtype=torch.uint8, device=DEVICE))


def test_dtensor_reads_the_state():
    generator = torch.Generator(DEVICE).manual_seed(5)
    state = _PhiloxState(generator.get_state())
    assert (state.seed, state.offset) == (5, 0)
    state.offset = torch.tensor([400], dtype=torch.uint64)
    generator.set_state(state.state)
    assert (generator.initial_seed(), generator.get_offset()) == (5, 400)


def test_generators_are_pickled():
    generator = torch.Generator("neuron:1").manual_seed(5)
    torch.rand(10, device="neuron:1", generator=generator)
    copy = pickle.loads(pickle.dumps(generator))
    assert copy.device == torch.device("neuron:1")
    assert (copy.initial_seed(), copy.get_offset()) == (5, 12)


def test_seed_is_fresh():
    generator = torch.Generator(DEVICE)
    seeds = {generator.seed() for _ in range(4)}
    assert len(seeds) == 4
    assert generator.initial_seed() in seeds


def test_clones_go_their_own_way_and_shared_states_go_together():
    generator = torch.Generator(DEVICE).manual_seed(5)
    torch.rand(10, device=DEVICE, generator=generator)
    clone = generator.clone_state()
    torch.rand(10, device=DEVICE, generator=generator)
    assert (clone.get_offset(), generator.get_offset()) == (12, 24)
    shared = generator.graphsafe_get_state()
    torch.rand(10, device=DEVICE, generator=generator)
    assert shared.get_offset() == generator.get_offset() == 36
    generator.graphsafe_set_state(clone)
    assert generator.get_offset() == 12


def test_fork_rng_restores_every_core():
    torch.manual_seed(5)
    expected = [torch.rand(9, device=f"neuron:{core}") for core in range(2)]
    torch.manual_seed(5)
    with torch.random.fork_rng(devices=[0, 1], device_type=DEVICE):
        torch.manual_seed(8)
        for core in range(2):
            assert not torch.equal(torch.rand(9, device=f"neuron:{core}"), expected[core])
    for core in range(2):
        assert torch.equal(torch.rand(9, device=f"neuron:{core}"), expected[core])


def test_checkpointing_repeats_dropout():
    torch.manual_seed(5)
    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda v: torch.nn.functional.dropout(v, 0.5) * v, x, use_reentrant=False)
    y.sum().backward()
    # d(m x * x) = 2 m x: the mask of the second forward pass must be that of the first.
    assert torch.equal(x.grad, 2 * y.detach())


@pytest.mark.parametrize("fill", [lambda t: t.normal_(), lambda t: t.uniform_(), lambda t: t.bernoulli_(0.4), lambda t: t.random_(0, 9)])
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(6, 5, 4, 3, device=DEVICE).to(memory_format=torch.channels_last),
        lambda: torch.empty(3, 4, 5, 6, device=DEVICE).permute(3, 2, 1, 0),
        lambda: torch.empty(6, 5, 4, 6, device=DEVICE)[..., ::2],
        lambda: torch.empty(6, 10, 4, 3, device=DEVICE)[:, 3:8],
    ],
)
def test_numbers_follow_elements_not_memory(fill, make):
    torch.manual_seed(5)
    expected = fill(torch.empty(6, 5, 4, 3, device=DEVICE))
    torch.manual_seed(5)
    strided = make()
    strides = strided.stride()
    assert torch.equal(fill(strided), expected)
    assert strided.stride() == strides


def test_only_the_view_is_written():
    base = torch.zeros(10, 10, device=DEVICE)
    base[:, 2:5].uniform_(1, 2)
    assert base[:, 2:5].min() >= 1
    assert base[:, :2].abs().sum() == 0
    assert base[:, 5:].abs().sum() == 0


def test_scalars_and_single_elements():
    torch.manual_seed(5)
    assert torch.empty((), device=DEVICE).normal_().shape == ()
    assert torch.rand(1, device=DEVICE).item() < 1
    assert torch.bernoulli(torch.ones((), device=DEVICE)).item() == 1


def test_large_fills_use_several_threads():
    torch.set_num_threads(2)
    tensor = torch.empty(20_000_000, device=DEVICE)
    tensor.normal_()  # the pool starts, the pages are there
    whole, own = time.process_time(), time.thread_time()
    for _ in range(5):
        tensor.normal_()
    whole, own = time.process_time() - whole, time.thread_time() - own
    assert own < 0.75 * whole, f"the calling thread did {own:.2f} of {whole:.2f} s"
