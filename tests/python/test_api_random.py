"""Generators: seeding on all paths, states, and what happens before the runtime starts."""

import pytest
import torch


def draw(device="neuron", count=64):
    return torch.rand(count, device=device).cpu()


def test_manual_seed_repeats():
    torch.neuron.manual_seed(7)
    first = draw()
    torch.neuron.manual_seed(7)
    assert torch.equal(draw(), first)
    assert not torch.equal(draw(), first)
    assert torch.neuron.initial_seed() == 7


def test_torch_manual_seed_seeds_every_core():
    torch.manual_seed(11)
    expected = [draw(f"neuron:{index}") for index in range(torch.neuron.device_count())]
    torch.manual_seed(11)
    for index, values in enumerate(expected):
        assert torch.equal(draw(f"neuron:{index}"), values)


def test_manual_seed_touches_only_the_current_core():
    torch.neuron.manual_seed_all(1)
    torch.neuron.set_device(2)
    torch.neuron.manual_seed(5)
    assert [generator.initial_seed() for generator in torch.neuron.default_generators] == [1, 1, 5, 1]


def test_negative_seed_is_accepted_as_on_cpu():
    torch.neuron.manual_seed(-1)
    assert torch.neuron.initial_seed() == torch.Generator().manual_seed(-1).initial_seed()


def test_random_seeds():
    torch.neuron.manual_seed_all(1)
    torch.neuron.seed()
    assert torch.neuron.initial_seed() != 1
    torch.neuron.seed_all()
    assert len({generator.initial_seed() for generator in torch.neuron.default_generators}) == 1


def test_state_round_trip():
    torch.neuron.manual_seed(3)
    draw()
    state = torch.neuron.get_rng_state()
    assert state.device.type == "cpu"
    assert state.dtype == torch.uint8
    assert state.shape == (16,)
    expected = draw()
    torch.neuron.set_rng_state(state)
    assert torch.equal(draw(), expected)


@pytest.mark.parametrize("device", [1, "neuron:1", torch.device("neuron:1")])
def test_state_of_one_core(device):
    state = torch.neuron.get_rng_state(device)
    expected = draw("neuron:1")
    torch.neuron.set_rng_state(state, device)
    assert torch.equal(draw("neuron:1"), expected)


def test_states_of_all_cores():
    states = torch.neuron.get_rng_state_all()
    assert isinstance(states, list)
    assert len(states) == torch.neuron.device_count()
    expected = [draw(f"neuron:{index}") for index in range(len(states))]
    torch.neuron.set_rng_state_all(states)
    assert all(torch.equal(draw(f"neuron:{index}"), values) for index, values in enumerate(expected))
    with pytest.raises(ValueError, match="4 neuron devices"):
        torch.neuron.set_rng_state_all(states[:2])


def test_random_submodule_mirrors():
    for name in ("get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed", "manual_seed_all", "seed"):
        assert getattr(torch.neuron.random, name) is getattr(torch.neuron, name)
    assert len(torch.neuron.random.default_generators) == torch.neuron.device_count()


def test_fork_rng_restores_the_device():
    torch.manual_seed(0)
    state = torch.neuron.get_rng_state()
    with torch.random.fork_rng(devices=[0]):
        draw()
        assert not torch.equal(torch.neuron.get_rng_state(), state)
    assert torch.equal(torch.neuron.get_rng_state(), state)


def test_checkpoint_replays_dropout():
    torch.manual_seed(2)
    values = torch.ones(256, device="neuron", requires_grad=True)
    output = torch.utils.checkpoint.checkpoint(lambda x: torch.nn.functional.dropout(x * x, 0.5), values, use_reentrant=False)
    output.sum().backward()
    assert torch.equal(values.grad, 2 * output.detach())


def test_seed_before_the_runtime_starts(run_python):
    torch.neuron.manual_seed(9)
    expected = draw(count=4).tolist()
    output = run_python(
        """
        import os, torch
        for seeding in (torch.manual_seed, torch.neuron.manual_seed, torch.neuron.manual_seed_all):
            if os.fork() == 0:
                seeding(9)
                assert not torch.neuron.is_initialized()
                print(torch.rand(4, device="neuron").tolist(), flush=True)
                os._exit(0)
            os.wait()
        """
    ).stdout
    assert output.splitlines() == [str(expected)] * 3


def test_new_generator():
    generator = torch.Generator(device="neuron:1")
    assert generator.device == torch.device("neuron:1")
    first = torch.rand(5, device="neuron:1", generator=generator.manual_seed(4)).cpu()
    assert torch.equal(torch.rand(5, device="neuron:1", generator=generator.manual_seed(4)).cpu(), first)


def test_default_generators_are_the_ones_operators_use():
    torch.neuron.default_generators[0].manual_seed(21)
    first = draw()
    torch.neuron.manual_seed(21)
    assert torch.equal(draw(), first)
