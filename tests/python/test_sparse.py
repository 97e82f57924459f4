"""Sparse tensors of the device (COO, CSR, CSC, BSR, BSC) against those of the CPU. tests/conformance compares PyTorch's samples."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from torch_neuronx import clear_op_tracking, get_executed_ops

DEVICE = "neuron"
COMPRESSED = {
    torch.sparse_csr: {},
    torch.sparse_csc: {},
    torch.sparse_bsr: {"blocksize": (2, 2)},
    torch.sparse_bsc: {"blocksize": (2, 2)},
}
LAYOUTS = {torch.sparse_coo: {}, **COMPRESSED}

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


def members(sparse: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that a sparse tensor consists of."""
    if sparse.layout is torch.sparse_coo:
        return [sparse._indices(), sparse._values()]
    if sparse.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [sparse.crow_indices(), sparse.col_indices(), sparse.values()]
    return [sparse.ccol_indices(), sparse.row_indices(), sparse.values()]


def assert_same(ours: Any, theirs: Any) -> None:
    """The same on both devices: for sparse tensors member by member, so the order of elements and duplicates count."""
    if isinstance(theirs, (tuple, list)):
        assert type(ours) is type(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
        return
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs
        return
    assert ours.device == torch.device("neuron:0")
    for name in ("layout", "dtype", "shape", "requires_grad"):
        assert getattr(ours, name) == getattr(theirs, name)
    if theirs.layout is torch.strided:
        assert torch.equal(ours.cpu(), theirs)
        return
    if theirs.layout is torch.sparse_coo:
        assert (ours.sparse_dim(), ours.dense_dim(), ours.is_coalesced()) == (
            theirs.sparse_dim(),
            theirs.dense_dim(),
            theirs.is_coalesced(),
        )
    for one, other in zip(members(ours), members(theirs), strict=True):
        assert one.device == torch.device("neuron:0")
        assert one.shape == other.shape and torch.equal(one.cpu(), other)


def outcome(function: Callable[[str], Any], device: str) -> Any:
    """The result, or the error with the name of the device left out."""
    try:
        return function(device)
    except Exception as error:
        text = str(error)
        for name in ("neuron:0", "neuron", "PrivateUse1", "CPU", "cpu"):
            text = text.replace(name, "DEVICE")
        return type(error), text.partition("\nException raised")[0]


def same(function: Callable[[str], Any]) -> None:
    """The function of a device gives the same on both."""
    assert_same(outcome(function, DEVICE), outcome(function, "cpu"))


def coo(device: str, *, dtype: torch.dtype = torch.float32, dense: tuple[int, ...] = (), requires_grad: bool = False) -> torch.Tensor:
    """A 3 x 4 (x dense) tensor with four elements, two of them at one place."""
    indices = torch.tensor([[2, 0, 2, 1], [3, 1, 3, 0]])
    values = torch.arange(1, 1 + 4 * torch.Size(dense).numel()).reshape(4, *dense).to(dtype)
    return torch.sparse_coo_tensor(indices.to(device), values.to(device), (3, 4, *dense), requires_grad=requires_grad)


def compressed(device: str, layout: torch.layout, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A 4 x 4 tensor in one of the compressed layouts."""
    dense = torch.tensor([[0, 2, 0, 0], [1, 0, 0, 3], [0, 0, 0, 0], [0, 0, 4, 0]]).to(dtype)
    return dense.to(device).to_sparse(layout=layout, **COMPRESSED[layout])


# --- construction ---

CONSTRUCTIONS: dict[str, Callable[[str], Any]] = {
    "indices and values": lambda d: torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]], device=d), torch.ones(2, device=d), (2, 2)),
    "size inferred": lambda d: torch.sparse_coo_tensor(torch.tensor([[0, 4], [1, 0]], device=d), torch.ones(2, device=d)),
    "lists": lambda d: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], device=d),
    "dtype": lambda d: torch.sparse_coo_tensor([[0, 1]], [1, 2], (3,), dtype=torch.bfloat16, device=d),
    "empty of a size": lambda d: torch.sparse_coo_tensor((3, 4), device=d),
    "empty": lambda d: torch.empty(2, 3, layout=torch.sparse_coo, device=d),
    "zeros": lambda d: torch.zeros(2, 3, layout=torch.sparse_coo, device=d),
    "no element": lambda d: torch.sparse_coo_tensor(torch.empty(2, 0, dtype=torch.int64, device=d), torch.empty(0, device=d), (2, 2)),
    "hybrid": lambda d: coo(d, dense=(2, 3)),
    "0 sparse dimensions": lambda d: torch.sparse_coo_tensor(
        torch.empty(0, 2, dtype=torch.int64, device=d), torch.ones(2, 3, device=d), (3,)
    ),
    "coalesced": lambda d: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), device=d, is_coalesced=True),
    "checked": lambda d: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), device=d, check_invariants=True),
    "index too large": lambda d: torch.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,), device=d, check_invariants=True),
    "negative index": lambda d: torch.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (3,), device=d, check_invariants=True),
    "size does not fit": lambda d: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3, 3), device=d, check_invariants=True),
    "float indices": lambda d: torch.sparse_coo_tensor(torch.ones(1, 2, device=d), torch.ones(2, device=d), (3,)),
    "csr": lambda d: torch.sparse_csr_tensor([0, 1, 2], [1, 0], [1.0, 2.0], (2, 2), device=d),
    "csc of tensors": lambda d: torch.sparse_csc_tensor(
        torch.tensor([0, 1, 2], device=d), torch.tensor([1, 0], device=d), torch.ones(2, device=d)
    ),
    "bsr": lambda d: torch.sparse_bsr_tensor([0, 1, 2], [1, 0], torch.ones(2, 2, 2).tolist(), (4, 4), device=d),
    "batched csr": lambda d: torch.sparse_csr_tensor([[0, 1, 2]] * 2, [[1, 0]] * 2, [[1.0, 2.0]] * 2, (2, 2, 2), device=d),
    "int32 csr": lambda d: torch.sparse_csr_tensor(
        torch.tensor([0, 1], dtype=torch.int32, device=d), torch.tensor([1], dtype=torch.int32, device=d), torch.ones(1, device=d), (1, 2)
    ),
    "empty csr": lambda d: torch.empty(2, 3, layout=torch.sparse_csr, device=d).col_indices(),
    "bad csr": lambda d: torch.sparse_csr_tensor([0, 2, 1], [1, 0], [1.0, 2.0], (2, 2), device=d, check_invariants=True),
    "pinned": lambda d: torch.empty(2, 3, layout=torch.sparse_coo, device=d, pin_memory=True),
}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_construction(name: str) -> None:
    same(CONSTRUCTIONS[name])


def test_construction_takes_the_members_without_a_copy() -> None:
    indices, values = torch.tensor([[0, 2]], device=DEVICE), torch.ones(2, device=DEVICE)
    sparse = torch.sparse_coo_tensor(indices, values, (3,))
    assert sparse._values().data_ptr() == values.data_ptr() and sparse._indices().data_ptr() == indices.data_ptr()
    values.mul_(5)
    assert sparse.to_dense().tolist() == [5, 0, 5]
    sparse._values().add_(1)
    assert values.tolist() == [6, 6]


def test_construction_on_another_core() -> None:
    for made in (
        torch.sparse_coo_tensor((2, 2), device="neuron:1"),
        torch.sparse_coo_tensor([[0]], [1.0], (2,), device="neuron:1"),
        torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 2), device="neuron:1"),
        torch.eye(2, device="neuron:1").to_sparse(),
        torch.eye(2, device="neuron:1").to_sparse_csr() * 2,
        (torch.eye(2, device="neuron:1").to_sparse() * 2).coalesce(),
        torch.zeros_like(torch.eye(2, device="neuron:1").to_sparse()),
    ):
        assert made.device == torch.device("neuron:1")
        assert {member.device for member in members(made)} == {made.device}
        assert made.clone().device == made.device


# --- operators ---

OPERATORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "coalesce": lambda s: s.coalesce(),
    "coalesce twice": lambda s: s.coalesce().coalesce(),
    "to_dense": lambda s: s.to_dense(),
    "members": lambda s: [s.coalesce().indices(), s.coalesce().values(), s._nnz(), s.sparse_dim(), s.dense_dim()],
    "indices of duplicates": lambda s: s.indices(),
    "clone": lambda s: s.clone(),
    "detach": lambda s: s.detach(),
    "number": lambda s: [s * 3, 3 * s, s / 2, -s, s * 0.5],
    "0-d tensor": lambda s: [s * torch.tensor(3, device=s.device), s * torch.tensor(3)],
    "unary": lambda s: [s.abs(), s.sqrt(), s.sin(), s.sign(), s.relu(), s.isnan(), s.log1p(), s.erf()],
    "power": lambda s: [s**2, s.coalesce().pow(3)],
    "sum": lambda s: [s.sum(), s.coalesce().sum(0), torch.sparse.sum(s), torch.sparse.sum(s, 0), torch.sparse.sum(s, [0, 1])],
    "norm": lambda s: s.coalesce().norm(),
    "sparse + sparse": lambda s: [s + s, s + s.coalesce(), s - s * 2],
    "dense + sparse": lambda s: [torch.ones(s.shape, device=s.device) + s, torch.add(torch.ones(s.shape, device=s.device), s, alpha=2)],
    "dense += sparse": lambda s: torch.ones(s.shape, device=s.device, dtype=s.dtype).add_(s),
    "sparse * sparse": lambda s: s * s.coalesce(),
    "sparse * dense": lambda s: s.coalesce() * torch.full(s.shape, 2, device=s.device, dtype=s.dtype),
    "transpose": lambda s: [s.transpose(0, 1), s.transpose(0, 1).to_dense()],
    "permute": lambda s: s.permute(*range(s.dim())),
    "index_select": lambda s: s.index_select(0, torch.tensor([2, 0], device=s.device)),
    "select": lambda s: [s[2], s.select(1, 3), s[0, 1]],
    "narrow_copy": lambda s: s.narrow_copy(0, 1, 2),
    "cat": lambda s: [torch.cat([s, s]), torch.cat([s, s], 1)],
    "stack": lambda s: torch.stack([s, s]),
    "unsqueeze": lambda s: [s.unsqueeze(0), s.coalesce().unsqueeze(-1)],
    "sparse_mask": lambda s: torch.arange(s.numel(), device=s.device).reshape(s.shape).to(s.dtype).sparse_mask(s.coalesce()),
    "mask of a sparse tensor": lambda s: (s.coalesce() * 2).sparse_mask(s.coalesce()),
    "to sparse again": lambda s: [s.to_dense().to_sparse(), s.to_dense().to_sparse(1), s.to_sparse(2)],
    "to csr": lambda s: [s.coalesce().to_sparse_csr(), s.coalesce().to_sparse_csc()],
    "like": lambda s: [torch.zeros_like(s), torch.empty_like(s)._nnz()],
    "any": lambda s: s.any(),
    "equal": lambda s: [torch.equal(s, s.clone()), torch.equal(s.coalesce(), s.coalesce() * 2)],
    "no kernel on the CPU": lambda s: s.cumsum(0),
    "fill_": lambda s: s.fill_(2),
    "view": lambda s: s.view(-1),
    "numpy": lambda s: s.numpy(),
    "storage": lambda s: s.untyped_storage(),
    "data_ptr": lambda s: s.data_ptr(),
    "broadcast": lambda s: torch.broadcast_to(s, (2, *s.shape)),
    "is_pinned": lambda s: s.is_pinned(),
    "0-d item": lambda s: torch.sparse.sum(s).item(),
}


@pytest.mark.parametrize("dense", [(), (2,)], ids=["plain", "hybrid"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str, dtype: torch.dtype, dense: tuple[int, ...]) -> None:
    same(lambda device: OPERATORS[name](coo(device, dtype=dtype, dense=dense)))


IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "add_": lambda s: s.add_(s.clone()),
    "add_ more elements": lambda s: s.add_(torch.ones_like(s.to_dense()).to_sparse(2)),
    "sub_": lambda s: s.sub_(s.coalesce(), alpha=2),
    "mul_": lambda s: s.mul_(3),
    "mul_ sparse": lambda s: s.mul_(s.clone()),
    "div_": lambda s: s.div_(2),
    "neg_": lambda s: s.neg_(),
    "zero_": lambda s: s.zero_(),
    "abs_": lambda s: s.coalesce().abs_(),
    "sin_": lambda s: s.coalesce().sin_(),
    "sparse_resize_": lambda s: s.sparse_resize_((5, 6), 2, 0),
    "sparse_resize_ too small": lambda s: s.sparse_resize_((1, 1), 2, 0),
    "sparse_resize_and_clear_": lambda s: s.sparse_resize_and_clear_((5, 6, 7), 2, 1),
    "resize_as_sparse_": lambda s: s.resize_as_sparse_(torch.sparse_coo_tensor((5, 6), device=s.device)),
    "copy_": lambda s: s.copy_(torch.eye(4, device=s.device)[:3].to_sparse()),
    "copy_ of another size": lambda s: s.copy_(torch.eye(7, device=s.device).to_sparse()),
    "transpose_": lambda s: s.transpose_(0, 1),
    "t_": lambda s: s.t_(),
    "out=": lambda s: torch.add(s.clone(), s, out=s),
    "mm out=": lambda s: torch.mm(s, torch.ones(4, 2, device=s.device), out=torch.empty(0, device=s.device)),
    "zeros out=": lambda s: torch.zeros(2, 2, out=s),
    "sqrt out=": lambda s: torch.sqrt(s.coalesce(), out=s),
    "of detached sizes": lambda s: s.detach().sparse_resize_((5, 6), 2, 0),
    "_coalesced_": lambda s: s._coalesced_(True),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name: str) -> None:
    """What an operator writes into is the same object afterwards, with the CPU's members, size and coalesced flag."""

    def run(device: str) -> Any:
        sparse = coo(device)
        result = IN_PLACE[name](sparse)
        return [result is sparse, result, sparse]

    same(run)


def test_in_place_through_another_handle() -> None:
    def run(device: str) -> Any:
        sparse = coo(device)
        values = sparse._values()
        sparse.mul_(10)  # in the values' bytes
        return values, sparse._values(), sparse._version

    same(run)


@pytest.mark.parametrize("layout", COMPRESSED, ids=str)
def test_compressed_layouts(layout: torch.layout) -> None:
    functions: list[Callable[[torch.Tensor], Any]] = [
        lambda s: s,
        lambda s: s.to_dense(),
        lambda s: s.to_sparse(),
        lambda s: [s.clone(), s.detach(), s._nnz(), s.values()],
        lambda s: [s * 2, -s, s.abs(), s.sin(), s.sqrt(), s.sign(), s.isnan(), s.relu()],
        lambda s: s.mul_(2),
        lambda s: s.clone().zero_(),
        lambda s: s + s,
        lambda s: torch.ones(4, 4, device=s.device) + s,
        lambda s: s @ torch.arange(8.0, device=s.device).reshape(4, 2),
        lambda s: s @ torch.arange(4.0, device=s.device),
        lambda s: torch.arange(8.0, device=s.device).reshape(2, 4) @ s,
        lambda s: s @ s,
        lambda s: torch.addmm(torch.ones(4, 2, device=s.device), s, torch.ones(4, 2, device=s.device), beta=2, alpha=3),
        lambda s: [s.transpose(0, 1), s.t().to_dense()],
        lambda s: s.sum(),
        lambda s: torch.sparse.sum(s, 1) if s.layout is torch.sparse_csr else 0,
        lambda s: s[1],
        lambda s: s.cumsum(0),
        lambda s: s.sigmoid(),
        lambda s: torch.ones(4, 4, device=s.device).sparse_mask(s),
        lambda s: [torch.zeros_like(s), torch.empty_like(s)._nnz()],
        lambda s: torch.empty(4, 4, layout=s.layout, device=s.device).copy_(s),
        lambda s: s.fill_(7),
        lambda s: s.to(torch.float64),
        lambda s: s.resize_(8, 8),
    ]
    for function in functions:
        same(lambda device, function=function: function(compressed(device, layout)))


@pytest.mark.parametrize("source", LAYOUTS, ids=str)
@pytest.mark.parametrize("target", LAYOUTS, ids=str)
def test_conversions_between_layouts(source: torch.layout, target: torch.layout) -> None:
    dense = torch.tensor([[0.0, 2, 0, 0], [1, 0, 0, 3], [0, 0, 0, 0], [0, 0, 4, 0]])
    same(lambda d: dense.to(d).to_sparse(layout=source, **LAYOUTS[source]).to_sparse(layout=target, **LAYOUTS[target]))


def test_csr_products_of_torch_sparse() -> None:
    def run(device: str) -> Any:
        sparse = compressed(device, torch.sparse_csr)
        dense = torch.arange(16.0, device=device).reshape(4, 4)
        return [
            torch.sparse.sampled_addmm(sparse, dense, dense, beta=0.5),
            *(torch.sparse.mm(sparse, dense, reduce) for reduce in ("sum", "mean", "amax", "amin")),
            torch.triangular_solve(dense[:, :2], sparse + torch.eye(4, device=device).to_sparse_csr()),
        ]

    same(run)


def test_random_members_come_from_the_devices_generator() -> None:
    sparse = compressed(DEVICE, torch.sparse_csr)
    torch.manual_seed(3)
    host = torch.get_rng_state()
    first = sparse.clone().normal_().values()
    assert torch.equal(host, torch.get_rng_state())
    torch.manual_seed(3)
    assert torch.equal(first, torch.empty_like(sparse.values()).normal_())


def test_functions_of_torch_sparse() -> None:
    diagonals = torch.arange(6.0).reshape(2, 3)
    same(lambda d: torch.sparse.spdiags(diagonals.to(d), torch.tensor([0, 1], device=d), (3, 3)))
    same(lambda d: torch.sparse.softmax(coo(d).coalesce(), 1))
    same(lambda d: torch.sparse.log_softmax(coo(d, dense=(2,)).coalesce(), 2))
    same(lambda d: torch.sparse.addmm(torch.ones(3, 2, device=d), coo(d), torch.ones(4, 2, device=d), beta=2, alpha=3))
    same(lambda d: torch.sparse.mm(coo(d), torch.ones(4, 2, device=d)))
    same(lambda d: torch.sparse.mm(coo(d), coo(d).t()))
    same(lambda d: torch.hspmm(coo(d), torch.ones(4, 2, device=d)))
    same(lambda d: torch.sspaddmm(coo(d) @ coo(d).t(), coo(d), torch.ones(4, 3, device=d)))
    same(lambda d: torch.smm(coo(d), torch.ones(4, 2, device=d)))
    same(lambda d: torch.mv(coo(d), torch.ones(4, device=d)))
    same(lambda d: torch.bmm(torch.stack([coo(d), coo(d)]), torch.ones(2, 4, 2, device=d)))


# --- devices, copies, serialisation ---


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_copies_between_devices(layout: torch.layout) -> None:
    host = torch.eye(4).to_sparse(layout=layout, **LAYOUTS[layout])
    there = host.to(DEVICE)
    assert_same(there, host)
    other = there.to("neuron:1", torch.float64)
    assert other.device == torch.device("neuron:1") and other.dtype is torch.float64
    assert {member.device for member in members(other)} == {other.device}
    back = other.cpu()
    assert back.device.type == "cpu" and {member.device.type for member in members(back)} == {"cpu"}
    assert torch.equal(back.to_dense(), torch.eye(4, dtype=torch.float64))
    assert there.to(DEVICE) is there
    assert_same(there.to(torch.bfloat16), host.to(torch.bfloat16))
    target = host * 0
    assert torch.equal(target.copy_(there).to_dense(), torch.eye(4)) and target.device.type == "cpu"


def test_host_memory_and_device_memory_do_not_mix() -> None:
    gc.collect()
    before = torch.neuron.memory_allocated()
    host = coo(DEVICE).cpu()
    twice = (host * 2).coalesce()
    gc.collect()
    assert torch.neuron.memory_allocated() == before
    assert torch.equal(twice.to_dense(), coo("cpu").to_dense() * 2)
    sparse = torch.eye(64, device=DEVICE).to_sparse()
    product = (sparse * 3).coalesce()
    assert torch.neuron.memory_allocated() - before >= sum(m.nbytes for m in (*members(sparse), *members(product)))
    del sparse, product
    gc.collect()
    assert torch.neuron.memory_allocated() == before


@pytest.mark.parametrize(
    "function",
    [
        lambda: coo(DEVICE) + coo("cpu"),
        lambda: coo(DEVICE) @ torch.ones(4, 2),
        lambda: torch.ones(3, 4).add_(coo(DEVICE)),
        lambda: coo(DEVICE) * coo(DEVICE).to("neuron:1"),
    ],
)
def test_devices_do_not_mix(function: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        function()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_serialisation_and_copies_in_python(layout: torch.layout) -> None:
    sparse = torch.eye(4, device=DEVICE).to_sparse(layout=layout, **LAYOUTS[layout])
    host = sparse.cpu()
    assert_same(pickle.loads(pickle.dumps(sparse)), host)
    assert_same(copy.deepcopy(sparse), host)
    assert_same(copy.copy(sparse), host)
    file = io.BytesIO()
    torch.save({"weight": sparse}, file)
    file.seek(0)
    assert_same(torch.load(file)["weight"], host)
    file.seek(0)
    mapped = torch.load(file, map_location="cpu")["weight"]
    assert mapped.device.type == "cpu" and torch.equal(mapped.to_dense(), torch.eye(4))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_printing(layout: torch.layout) -> None:
    sparse = torch.eye(4, device=DEVICE).to_sparse(layout=layout, **LAYOUTS[layout])
    text = repr(sparse)
    assert "device='neuron:0'" in text
    assert "".join(text.replace("device='neuron:0',", "").split()) == "".join(repr(sparse.cpu()).split())


class Holder(torch.nn.Module):
    """A sparse buffer, a sparse parameter, and a table with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.eye(3).to_sparse())
        self.weight = torch.nn.Parameter(coo("cpu").coalesce())
        self.table = torch.nn.Embedding(5, 2, sparse=True)


def test_modules_with_sparse_tensors() -> None:
    module = Holder()
    module.table(torch.tensor([1, 1, 3])).sum().backward()
    gradient, table = module.table.weight.grad.clone(), module.table.weight
    module.to(DEVICE)
    assert module.table.weight is table
    assert_same(module.table.weight.grad, gradient)
    state = module.state_dict()
    assert_same(state["mask"], torch.eye(3).to_sparse())
    assert_same(state["weight"], coo("cpu").coalesce())
    other = Holder().to(DEVICE)
    other.load_state_dict(state)
    assert_same(other.weight.detach(), coo("cpu").coalesce())


def test_data_of_a_sparse_tensor() -> None:
    def run(device: str) -> Any:
        sparse = coo(device)
        sparse.data = torch.eye(4, device=device).to_sparse()
        return sparse

    same(run)


# --- autograd ---


def gradients(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The value, and the gradients of leaves along a direction that is different for each element."""
    result = function(*inputs)
    dense = result.to_dense() if result.layout is not torch.strided else result
    direction = torch.arange(1.0, 1 + dense.numel(), device=dense.device).reshape(dense.shape).to(dense.dtype)
    return [result.detach(), *torch.autograd.grad(dense, inputs, direction)]


def test_backward() -> None:
    def leaf(device: str, *shape: int) -> torch.Tensor:
        return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape).to(device).requires_grad_()

    def sparse(device: str) -> torch.Tensor:
        return coo(device).coalesce().requires_grad_()

    places = torch.tensor([[0, 2, 2], [1, 3, 3]])
    same(lambda d: gradients(lambda s: s.to_dense(), sparse(d)))
    same(lambda d: gradients(lambda v: torch.sparse_coo_tensor(places.to(d), v, (3, 4)), leaf(d, 3)))
    same(lambda d: gradients(lambda v: torch.sparse_coo_tensor(places.to(d), v, (3, 4)).coalesce().values(), leaf(d, 3)))
    same(lambda d: gradients(torch.sparse.mm, sparse(d), leaf(d, 4, 2)))
    same(lambda d: gradients(torch.sparse.addmm, leaf(d, 3, 2), sparse(d), leaf(d, 4, 2)))
    same(lambda d: gradients(lambda s: torch.sparse.sum(s, 0), sparse(d)))
    same(lambda d: gradients(torch.sparse.sum, sparse(d)))
    same(lambda d: gradients(lambda s: torch.sparse.softmax(s, 1), sparse(d)))
    same(lambda d: gradients(lambda a, s: a + s, leaf(d, 3, 4), sparse(d)))
    same(lambda d: gradients(lambda x: x.to_sparse() * 2, leaf(d, 3, 4)))
    same(lambda d: gradients(lambda x: x.sparse_mask(sparse(d).detach()), leaf(d, 3, 4)))
    for layout, options in COMPRESSED.items():
        same(lambda d, layout=layout, options=options: gradients(lambda x: x.to_sparse(layout=layout, **options), leaf(d, 4, 4)))
    same(lambda d: gradients(lambda s, x: torch.sparse.mm(s, x, "sum"), compressed(d, torch.sparse_csr).requires_grad_(), leaf(d, 4, 4)))


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_backward_of_reducing_products(reduce: str, needs: tuple[bool, bool]) -> None:
    """The kernel asks its arguments whether it will be differentiated, and keeps the places of the maxima only then."""

    def run(device: str) -> Any:
        sparse = compressed(device, torch.sparse_csr).requires_grad_(needs[0])
        dense = torch.arange(8.0, device=device).reshape(4, 2).requires_grad_(needs[1])
        inputs = [t for t in (sparse, dense) if t.requires_grad]
        result = torch.sparse.mm(sparse, dense, reduce)
        return [result.detach(), *torch.autograd.grad(result.square().sum(), inputs)]

    same(run)


def test_gradients_that_accumulate() -> None:
    def run(device: str) -> Any:
        table = torch.nn.Embedding(6, 2, sparse=True, device=device)
        with torch.no_grad():
            table.weight.copy_(torch.arange(12.0).reshape(6, 2))
        table(torch.tensor([1, 1, 3], device=device)).sum().backward()
        first = table.weight.grad.clone()
        table(torch.tensor([4, 1], device=device)).sum().backward()
        second = table.weight.grad.clone()
        table.weight.sum().backward()  # a dense gradient joins the sparse one
        return [first, second, table.weight.grad]

    same(run)


def test_gather_and_embedding_bag() -> None:
    def run(device: str) -> Any:
        x = torch.arange(6.0, device=device).reshape(2, 3).requires_grad_()
        torch.gather(x, 1, torch.tensor([[0, 2], [1, 1]], device=device), sparse_grad=True).sum().backward()
        bag = torch.nn.EmbeddingBag(6, 2, mode="sum", sparse=True, device=device)
        with torch.no_grad():
            bag.weight.fill_(1)
        bag(torch.tensor([[1, 2], [2, 5]], device=device)).sum().backward()
        return [x.grad, bag.weight.grad]

    same(run)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.SparseAdam(p, lr=0.1),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
    ],
    ids=["SGD", "momentum", "SparseAdam", "Adagrad"],
)
def test_training_with_sparse_gradients(optimizer: Callable[[Any], torch.optim.Optimizer]) -> None:
    def run(device: str) -> Any:
        torch.manual_seed(0)
        table = torch.nn.Embedding(20, 4, sparse=True).to(device)
        steps = optimizer(list(table.parameters()))
        for step in range(5):
            steps.zero_grad()
            rows = torch.tensor([step, 3, 3, 2 * step + 1]).to(device)
            table(rows).square().sum().backward()
            steps.step()
        return table.weight.detach()

    ours, theirs = run(DEVICE), run("cpu")
    torch.testing.assert_close(ours.cpu(), theirs)


def test_clipping_sparse_gradients() -> None:
    def run(device: str) -> Any:
        table = torch.nn.Embedding(6, 2, sparse=True, device=device)
        table(torch.tensor([1, 3], device=device)).sum().backward()
        torch.nn.utils.clip_grad_value_([table.weight], 0.5)
        return table.weight.grad

    same(run)


# --- the device ---


def test_operators_on_sparse_tensors_are_counted() -> None:
    sparse = coo(DEVICE)
    clear_op_tracking()
    sparse.coalesce()
    sparse.neg()
    assert {"aten::_coalesce", "aten::neg"} <= set(get_executed_ops())


def test_a_failed_operator_leaves_its_arguments_alone() -> None:
    sparse = coo(DEVICE)
    for _ in range(20):
        with pytest.raises(RuntimeError):
            torch.sparse.mm(sparse, torch.ones(3, 2, device=DEVICE))
        with pytest.raises(RuntimeError):
            sparse.add_(torch.sparse_coo_tensor((7, 7), device=DEVICE))
    assert_same(sparse, coo("cpu"))


def test_results_that_share_members_with_an_argument_outlive_it() -> None:
    indices, values = torch.tensor([[0, 2]], device=DEVICE), torch.tensor([1.0, 2.0], device=DEVICE)
    negated = torch.sparse_coo_tensor(indices, values, (3,)).neg()
    del indices, values
    junk = [torch.full((2,), 9.0, device=DEVICE) for _ in range(20)]
    assert negated.to_dense().tolist() == [-1, 0, -2]
    del junk


@contextlib.contextmanager
def foreign_operators() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("neuron_sparse_test", "FRAGMENT") as library, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield library


def test_foreign_operators_with_a_sparse_cpu_kernel() -> None:
    with foreign_operators() as library:
        library.define("twice(Tensor x, Tensor[] others) -> (Tensor, Tensor[])")
        library.define("grow_(Tensor(a!) x) -> Tensor(a!)")
        library.define("nothing(Tensor x) -> Tensor")
        library.impl("twice", lambda x, others: (x * 2, [x + other for other in others]), "SparseCPU")
        library.impl("grow_", lambda x: x.sparse_resize_((9, 9), 2, 0).mul_(2), "SparseCPU")
        x = coo(DEVICE)
        doubled, sums = torch.ops.neuron_sparse_test.twice(x, [x, x.coalesce()])
        assert_same([doubled, sums], [coo("cpu") * 2, [coo("cpu") + coo("cpu"), coo("cpu") + coo("cpu").coalesce()]])
        assert torch.ops.neuron_sparse_test.grow_(x) is x
        assert_same(x, coo("cpu").sparse_resize_((9, 9), 2, 0).mul_(2))
        with pytest.raises(NotImplementedError, match=r"neuron_sparse_test::nothing.*Sparseneuron"):
            torch.ops.neuron_sparse_test.nothing(x)


def test_threads_share_nothing() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(seed: int) -> bool:
        sparse = (torch.eye(16, device=DEVICE) * seed).to_sparse()
        for _ in range(50):
            sparse = (sparse + sparse).coalesce() * 0.5
        return bool(torch.equal(sparse.to_dense().cpu(), torch.eye(16) * seed))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 9)))
