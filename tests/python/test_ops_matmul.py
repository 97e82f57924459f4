"""Matrix products by the device's own kernels: as exact as the CPU's, and PyTorch's behaviour around them.

The bound for each product: no further from the product in float64 than 1.5 times the CPU's largest error, and what rounding float32 sums
of k terms one after the other may cost, sqrt(k) / 4 * 2^-24 * |a| |b| for the longest row a and column b (the CPU sums in parts, and is up
to three times nearer for float32; the worst case, k * 2^-24 * |a| |b|, is never met), and one rounding of the largest element.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys

import pytest
import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def largest_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest distance between `result` and the float64 tensor `exact`; 0 for empty ones."""
    return (result.cpu().double() - exact).abs().max().item() if exact.numel() else 0.0


def check(product, *operands: torch.Tensor) -> None:
    """Calls `product` of [addend,] a, b on the device and on the CPU and compares both with float64."""
    exact = product(*[operand.double() for operand in operands])
    cpu = product(*operands)
    device = product(*[operand.to("neuron") for operand in operands])
    assert device.dtype == cpu.dtype
    assert device.stride() == cpu.stride()
    a, b = operands[-2].double(), operands[-1].double()
    sums = a.shape[-1] ** 0.5 / 4 * 2**-24 * (a.norm(dim=-1).max() * b.norm(dim=-2).max()).item()
    rounding = torch.finfo(cpu.dtype).eps / 2 * exact.abs().max().item()
    assert largest_error(device, exact) <= 1.5 * largest_error(cpu, exact) + sums + rounding


def matrix(rows: int, columns: int, dtype: torch.dtype, transposed: bool) -> torch.Tensor:
    if transposed:
        return torch.randn(columns, rows).to(dtype).t()
    return torch.randn(rows, columns).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("weight_transposed", [False, True])
def test_products_are_as_exact_as_the_cpus(dtype, transposed, weight_transposed):
    torch.manual_seed(0)
    for m, n, k in itertools.product((1, 3, 8, 32, 130), (1, 40, 257), (1, 65, 512)):
        a, b = matrix(m, k, dtype, transposed), matrix(k, n, dtype, weight_transposed)
        check(torch.mm, a, b)
        check(torch.addmm, torch.randn(n).to(dtype), a, b)
        check(lambda s, x, y: torch.addmm(s, x, y, beta=0.5, alpha=0.5), torch.randn(m, 1).to(dtype), a, b)
        check(torch.bmm, a.expand(2, m, k), b.expand(2, k, n))
        check(torch.baddbmm, torch.randn(2, m, n).to(dtype), a.expand(2, m, k), b.expand(2, k, n))


@pytest.mark.parametrize("k", [1000, 4096])
def test_long_sums_are_as_exact_as_the_cpus(k):
    """Libraries compare results to 1e-6 (peft does, of sums of 1000), so the usual error must be the CPU's, not only the largest.

    The CPU divides sums in ways that differ with shape, threads and processor, by up to twice in error: the usual one is their median.
    """
    torch.manual_seed(0)
    errors = {"cpu": [], "neuron": []}
    for m, weight_transposed in itertools.product((1, 4, 10, 64, 200), (False, True)):
        a, b = torch.randn(m, k), matrix(k, 500, torch.float32, weight_transposed)
        exact = a.double() @ b.double()
        for place, found in errors.items():
            found.append(((a.to(place) @ b.to(place)).cpu().double() - exact).square().mean().sqrt().item())
    assert max(errors["neuron"]) <= 1.2 * statistics.median(errors["cpu"]) + 0.1 * 2**-24 * k**0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_linear_are_as_exact_as_the_cpus(dtype):
    torch.manual_seed(1)
    x, weight, bias = torch.randn(2, 33, 96).to(dtype), torch.randn(80, 96).to(dtype), torch.randn(80).to(dtype)

    def gradients(*operands: torch.Tensor) -> list[torch.Tensor]:
        leaves = [operand.detach().clone().requires_grad_() for operand in operands]
        torch.nn.functional.linear(*leaves).square().sum().backward()
        return [leaf.grad for leaf in leaves]

    operands = (x, weight, bias)
    exact = gradients(*[operand.double() for operand in operands])
    device = gradients(*[operand.to("neuron") for operand in operands])
    for ours, cpus, right in zip(device, gradients(*operands), exact, strict=True):
        assert largest_error(ours, right) <= (4 if dtype == torch.float32 else 1.5) * largest_error(cpus, right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 20, 200])
def test_sums_of_nothing_are_zeros(dtype, rows):
    a = torch.empty(rows, 0, dtype=dtype, device="neuron")
    for b in (torch.empty(0, 300, dtype=dtype, device="neuron"), torch.empty(300, 0, dtype=dtype, device="neuron").t()):
        assert torch.equal((a @ b).cpu(), torch.zeros(rows, 300, dtype=dtype))
        assert torch.equal(
            torch.nn.functional.linear(a, b.t(), torch.ones(300, dtype=dtype, device="neuron")).cpu(), torch.ones(rows, 300, dtype=dtype)
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_sums_and_numbers_that_beta_leaves_out(dtype):
    a, b = torch.empty(3, 0, dtype=dtype, device="neuron"), torch.empty(0, 4, dtype=dtype, device="neuron")
    assert torch.equal(torch.mm(a, b).cpu(), torch.zeros(3, 4, dtype=dtype))
    addend = torch.full((3, 4), 2.0, dtype=dtype, device="neuron")
    assert torch.equal(torch.addmm(addend, a, b, beta=3).cpu(), torch.full((3, 4), 6.0, dtype=dtype))
    nan = torch.full((3, 4), float("nan"), dtype=dtype, device="neuron")
    assert torch.equal(torch.addmm(nan, a, b, beta=0).cpu(), torch.zeros(3, 4, dtype=dtype))
    ones = torch.ones(3, 4, dtype=dtype, device="neuron")
    assert torch.equal(nan.addmm_(ones, ones.t() @ ones, beta=0).cpu(), torch.full((3, 4), 12.0, dtype=dtype))
    assert torch.addmm(torch.full_like(nan, float("nan")), a, b).isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_out_keeps_its_layout_and_its_surroundings(dtype):
    torch.manual_seed(2)
    a, b = torch.randn(5, 12).to(dtype), torch.randn(12, 20).to(dtype)
    expected = torch.mm(a, b)
    for make in (
        lambda device: torch.zeros(5, 20, dtype=dtype, device=device),
        lambda device: torch.zeros(20, 5, dtype=dtype, device=device).t(),
        lambda device: torch.zeros(5, 40, dtype=dtype, device=device)[:, ::2],
        lambda device: torch.zeros(0, dtype=dtype, device=device),
    ):
        out = make("neuron")
        assert torch.mm(a.to("neuron"), b.to("neuron"), out=out) is out
        assert out.stride() == torch.mm(a, b, out=make("cpu")).stride()
        torch.testing.assert_close(out.cpu(), expected)
    wide = torch.zeros(5, 40, dtype=dtype, device="neuron")
    torch.mm(a.to("neuron"), b.to("neuron"), out=wide[:, 10:30])
    assert wide[:, :10].count_nonzero() == 0
    assert wide[:, 30:].count_nonzero() == 0
    torch.testing.assert_close(wide[:, 10:30].cpu(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_do_not_change_a_bit(dtype):
    torch.manual_seed(3)
    before = torch.get_num_threads()
    try:
        for m in (1, 8, 40, 200):
            a, b = torch.randn(m, 300).to(dtype).to("neuron"), torch.randn(500, 300).to(dtype).to("neuron")
            torch.set_num_threads(1)
            one = torch.mm(a, b.t()).cpu()
            torch.set_num_threads(2)
            assert torch.equal(torch.mm(a, b.t()).cpu(), one)
    finally:
        torch.set_num_threads(before)


SCRIPT = """
import torch
a, b = torch.randn(20, 64).bfloat16(), torch.randn(64, 30).bfloat16()
print((torch.mm(a.to("neuron"), b.to("neuron")).cpu().double() - a.double() @ b.double()).abs().max().item() < 0.2)
"""


def run_with(**variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("level", ["generic", "avx2"])
def test_a_lower_instruction_set_can_be_forced(level, tmp_path):
    result = run_with(TORCH_NEURONX_ISA=level, TORCH_NEURONX_KERNEL_CACHE_DIR=str(tmp_path))
    assert result.stdout == "True\n", result.stderr
    assert not list(tmp_path.iterdir()), "nothing to measure below AVX-512-BF16"


@pytest.mark.parametrize("variable", ["TORCH_NEURONX_ISA", "TORCH_NEURONX_BF16_PRODUCTS"])
def test_variables_with_other_values_are_errors(variable):
    result = run_with(**{variable: "fastest"})
    assert result.returncode == 1
    assert f"{variable}='fastest': expected" in result.stderr
