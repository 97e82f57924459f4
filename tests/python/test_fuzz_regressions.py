"""What fuzzing (`tests/fuzz`) found: each case shrunk to a few lines, and the CPU's answer."""

from collections.abc import Callable

import pytest
import torch

DEVICES = ("cpu", "neuron")


def both(function: Callable[[str], object]) -> tuple[object, object]:
    """What the function gives for each device; an error is its message."""
    found = []
    for device in DEVICES:
        try:
            found.append(function(device))
        except RuntimeError as error:
            found.append(str(error))
    return found[0], found[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64])
def test_copies_between_overlapping_views_raise(dtype):
    def up(device: str) -> None:
        values = torch.ones(3, device=device).to(dtype)
        values[1:] = values[:-1]

    def down(device: str) -> None:
        values = torch.ones(3, 2, device=device).to(dtype)
        values[:-1].copy_(values[1:])

    for write in (up, down):
        expected, actual = both(write)
        assert isinstance(expected, str)
        assert expected == actual


def test_copy_onto_itself_is_allowed():
    values = torch.arange(3.0, device="neuron")
    assert values.copy_(values).tolist() == [0, 1, 2]
    assert values[1:].copy_(values[1:]).tolist() == [1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (0, 1), (2, 0), (3, 0, 1, 1), (2, 0, 1), (2, 3), (1, 1)])
@pytest.mark.parametrize("number", [2, 0.5, True])
def test_strides_of_a_tensor_and_a_number(dtype, shape, number):
    def strides(device: str) -> list[tuple[int, ...]]:
        values = torch.ones(shape, dtype=dtype, device=device)
        results = [values * number, values + number, number * values, values + values]
        results += [values.mT * number, values.mT + number, values.mT * values.mT]
        return [result.stride() for result in results]

    expected, actual = both(strides)
    assert expected == actual
