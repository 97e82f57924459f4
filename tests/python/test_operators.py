"""Operators on `neuron` against the CPU: same values, same errors, results in device memory, whatever the strategy that runs them."""

import gc

import pytest
import torch
import torch.nn.functional as F

DEVICE = "neuron:0"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
@pytest.mark.parametrize("shape", [(0,), (), (1,), (7,), (5, 33), (70000,)])
def test_add_and_mul_fast_path_equals_cpu(dtype, shape):
    a = torch.randint(-50, 50, shape).to(dtype)
    b = torch.randint(-50, 50, shape).to(dtype)
    x, y = a.to(DEVICE), b.to(DEVICE)
    for call in (
        lambda p, q: p + q,
        lambda p, q: p * q,
        lambda p, q: p + 3,
        lambda p, q: p * 2.5,
        lambda p, q: 2.5 * p,
        lambda p, q: torch.add(p, q, alpha=2),
        lambda p, q: p.clone().add_(q),
        lambda p, q: p.clone().mul_(q),
        lambda p, q: p.clone().mul_(3),
        lambda p, q: p + True,
        lambda p, q: p.t() + q.t() if p.dim() == 2 else p,
        lambda p, q: p + q[..., :1] if p.dim() else p,
    ):
        reference = call(a, b)
        result = call(x, y)
        assert result.dtype == reference.dtype
        assert result.stride() == reference.stride()
        assert torch.equal(result.cpu(), reference)


@pytest.mark.parametrize("number", [0.8812, 0.3, 1e-3, 2.0000001, 16777217, 3.4e38, -1e-42])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_numbers_are_rounded_as_on_the_cpu(dtype, number):
    # The CPU rounds the number of a sum to a half dtype first, but takes that of a product in float32.
    a = torch.linspace(-4, 4, 4001).to(dtype)
    for call in (
        lambda t: t + number,
        lambda t: number + t,
        lambda t: t - number,
        lambda t: number - t,
        lambda t: t * number,
        lambda t: t / number,
        lambda t: torch.add(t, number, alpha=0.7),
        lambda t: t.clone().add_(number),
        lambda t: t.clone().sub_(number),
        lambda t: t.clone().mul_(number),
        lambda t: torch._foreach_add([t], number)[0],
        lambda t: torch._foreach_add([t], [number])[0],
        lambda t: torch._foreach_mul([t], [number])[0],
    ):
        assert torch.equal(call(a.to(DEVICE)).cpu(), call(a))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3.3895e38, 1e-45])
def test_bfloat16_special_values(value):
    a = torch.full((40,), value, dtype=torch.bfloat16)
    for call in (lambda t: t + t, lambda t: t * t, lambda t: t * 0.5, lambda t: t + 1.0):
        torch.testing.assert_close(call(a.to(DEVICE)).cpu(), call(a), rtol=0, atol=0, equal_nan=True)


def test_partial_overlap_is_an_error_as_on_the_cpu():
    for device in ("cpu", DEVICE):
        t = torch.arange(8.0, device=device)
        with pytest.raises(RuntimeError, match="single memory location"):
            t[1:].add_(t[:-1])


def test_mixed_dtypes_and_python_numbers_promote_as_on_the_cpu():
    ints, floats = torch.arange(4), torch.arange(4.0)
    for call in (
        lambda i, f: i + 1.5,
        lambda i, f: i + f,
        lambda i, f: f + i,
        lambda i, f: i * True,
        lambda i, f: f + 1j,
        lambda i, f: i / 2,
    ):
        reference = call(ints, floats)
        result = call(ints.to(DEVICE), floats.to(DEVICE))
        assert result.dtype == reference.dtype
        assert torch.equal(result.cpu(), reference)


def test_out_grows_in_device_memory():
    torch.neuron.empty_cache()
    out = torch.empty(0, device=DEVICE)
    before = torch.neuron.memory_allocated(0)
    with pytest.warns(UserWarning, match="resized"):
        out.resize_(1)
        torch.sin(torch.ones(1000, device=DEVICE), out=out)
    assert out.shape == (1000,)
    assert out.untyped_storage().nbytes() == 4000
    assert torch.neuron.memory_allocated(0) >= before + 4000
    assert torch.allclose(out.cpu(), torch.ones(1000).sin())


def test_results_of_every_strategy_are_charged_to_their_core():
    gc.collect()
    before = torch.neuron.memory_allocated(2)
    x = torch.ones(1 << 16, device="neuron:2")
    kept = [x.sin(), x + x, torch.nonzero(x), torch.randn(1 << 16, device="neuron:2"), torch.cat([x, x]), x.sort().values]
    assert all(t.device.index == 2 for t in kept)
    assert torch.neuron.memory_allocated(2) - before >= sum(t.nbytes for t in kept) + x.nbytes
    del kept, x
    gc.collect()
    assert torch.neuron.memory_allocated(2) == before


def test_operator_runs_on_the_core_of_its_tensors_not_the_current_one():
    with torch.neuron.device(1):
        x = torch.ones(5, device="neuron:3")
        assert (x.sin() + x).device.index == 3
        assert torch.ones(2, device="neuron").device.index == 1


def test_views_share_storage_and_version():
    x = torch.arange(12.0, device=DEVICE).view(3, 4)
    for view in (x.t(), x[1], x[:, ::2], x.view(4, 3), x.unfold(1, 2, 1), x.expand(2, 3, 4), x.diagonal(), x.detach()):
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    version = x._version
    x[0].add_(1)
    assert x._version == version + 1
    assert torch.equal(x.cpu(), torch.arange(12.0).view(3, 4) + torch.tensor([[1.0], [0], [0]]))


def test_tensors_on_two_cores():
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*neuron:0 and neuron:1"):
        torch.ones(2, device="neuron:0") + torch.ones(2, device="neuron:1")
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*neuron:0 and cpu"):
        torch.mm(torch.ones(2, 2, device="neuron:0"), torch.ones(2, 2))
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device"):
        torch.cat([torch.ones(2, device="neuron:0"), torch.ones(2)])


def test_cpu_scalar_may_join():
    x = torch.ones(3, device=DEVICE)
    assert torch.equal((x * torch.tensor(2.0)).cpu(), torch.full((3,), 2.0))
    assert torch.equal(torch.where(x > 0, x, torch.tensor(0.0)).cpu(), torch.ones(3))


def test_cpu_indices_may_index_a_device_tensor():
    x = torch.arange(10.0, device=DEVICE)
    index = torch.tensor([3, 1])
    assert torch.equal(x[index].cpu(), torch.tensor([3.0, 1.0]))
    x[index] = 0.0
    assert x.cpu()[3] == 0


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "expanded"])
@pytest.mark.parametrize("source", ["cpu", "neuron:0", "neuron:1"])
@pytest.mark.parametrize("target", ["cpu", "neuron:0", "neuron:1"])
def test_copies_between_all_places(source, target, layout):
    base = torch.arange(24.0).view(4, 6)
    view = {"contiguous": base, "transposed": base.t(), "strided": base[:, ::2], "expanded": base[:1].expand(4, 6)}[layout]
    moved = base.to(source)
    from_ = {"contiguous": moved, "transposed": moved.t(), "strided": moved[:, ::2], "expanded": moved[:1].expand(4, 6)}[layout]
    for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.complex64, torch.bool):
        to = torch.zeros(view.shape, dtype=dtype, device=target)
        assert to.copy_(from_) is to
        assert torch.equal(to.cpu(), torch.zeros(view.shape, dtype=dtype).copy_(view))
    assert torch.equal(from_.to(target).cpu(), view)


def test_non_blocking_copy_is_safe_to_overwrite():
    source = torch.ones(1 << 18)
    device = source.to(DEVICE, non_blocking=True)
    source.zero_()
    assert device.sum().item() == 1 << 18


@pytest.mark.parametrize("module", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_layers_forward_and_backward(module, bias):
    torch.manual_seed(0)
    host = module(5, 7, num_layers=2, bias=bias)
    device = module(5, 7, num_layers=2, bias=bias)
    device.load_state_dict(host.state_dict())
    device.to(DEVICE)
    x = torch.randn(4, 3, 5)
    results = [layer(inputs)[0] for layer, inputs in ((host, x), (device, x.to(DEVICE)))]
    torch.testing.assert_close(results[1].cpu(), results[0], rtol=1e-5, atol=1e-6)
    for result in results:
        result.square().sum().backward()
    for ours, theirs in zip(device.parameters(), host.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("module", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_layers_round_once_in_half_precision(module, dtype):
    # The CPU and the device round at different places; neither may be far from the cell computed in float32.
    worst = {"cpu": 0.0, DEVICE: 0.0}
    for seed in range(10):
        torch.manual_seed(seed)
        half, x = module(8, 16, num_layers=2).to(dtype), torch.randn(12, 4, 8).to(dtype)
        reference = module(8, 16, num_layers=2)
        reference.load_state_dict(half.state_dict())
        given = x.float().requires_grad_()
        expected = reference(given)[0]
        expected.sum().backward()
        for device in ("cpu", DEVICE):
            moved = x.to(device).detach().requires_grad_()
            result = half.to(device)(moved)[0]
            result.sum().backward()
            errors = (result.detach().cpu() - expected.detach()).abs().max(), (moved.grad.cpu() - given.grad).abs().max()
            worst[device] = max(worst[device], *(float(error) for error in errors))
    assert worst[DEVICE] <= 1.5 * worst["cpu"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["conv1d", "conv2d", "conv3d", "conv_transpose2d", "grouped"])
def test_convolutions_forward_and_backward(kind, dtype):
    torch.manual_seed(0)
    layer = {
        "conv1d": torch.nn.Conv1d(4, 6, 3, padding=1),
        "conv2d": torch.nn.Conv2d(4, 6, 3, stride=2),
        "conv3d": torch.nn.Conv3d(4, 6, 2, bias=False),
        "conv_transpose2d": torch.nn.ConvTranspose2d(4, 6, 3, output_padding=1, stride=2),
        "grouped": torch.nn.Conv2d(4, 8, 3, groups=4, dilation=2),
    }[kind].to(dtype)
    x = torch.randn(2, 4, *[9] * (layer.weight.dim() - 2)).to(dtype)
    grads = {}
    for device in ("cpu", DEVICE):
        layer.to(device).zero_grad()
        given = x.detach().to(device).requires_grad_()
        out = layer(given)
        out.square().sum().backward()
        grads[device] = [t.detach().clone().cpu() for t in (out, given.grad, *(p.grad for p in layer.parameters()))]
    for ours, theirs in zip(grads[DEVICE], grads["cpu"], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", ["none", "bool", "float", "causal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [4, 2])
def test_attention_takes_the_cpus_kernel(mask, dtype, heads):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 9, 16).to(dtype), torch.randn(2, heads, 9, 16).to(dtype), torch.randn(2, heads, 9, 16).to(dtype)
    options = {
        "none": {},
        "bool": {"attn_mask": torch.ones(9, 9).tril().bool()},
        "float": {"attn_mask": torch.randn(9, 9).to(dtype)},
        "causal": {"is_causal": True},
    }[mask] | {"enable_gqa": heads != 4}
    results = {}
    for device in ("cpu", DEVICE):
        given = [t.detach().to(device).requires_grad_() for t in (q, k, v)]
        moved = {name: t.to(device) if isinstance(t, torch.Tensor) else t for name, t in options.items()}
        out = F.scaled_dot_product_attention(*given, **moved)
        out.float().square().sum().backward()
        results[device] = [t.cpu() for t in (out, *(t.grad for t in given))]
    for ours, theirs in zip(results[DEVICE], results["cpu"], strict=True):
        # Ours forward: test_attention.py has the bound.
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5 if dtype is torch.float32 else 4e-2)


def test_attention_mask_that_requires_grad_gets_one():
    q = torch.randn(1, 2, 5, 8)
    grads = []
    for device in ("cpu", DEVICE):
        bias = torch.zeros(5, 5, device=device, requires_grad=True)
        x = q.to(device)
        F.scaled_dot_product_attention(x, x, x, attn_mask=bias).square().sum().backward()
        grads.append(bias.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])


def test_fully_masked_rows_give_no_nan():
    scores = torch.full((2, 4), torch.finfo(torch.float32).min, device=DEVICE)
    assert not scores.softmax(-1).isnan().any()


def test_result_that_a_kernel_keeps_outlives_its_argument():
    x = torch.arange(6.0, device=DEVICE)
    same = torch.ops.aten.alias(x)
    clamped = torch.clamp(x, min=1, out=x)
    assert clamped is x
    del x
    gc.collect()
    assert torch.equal(same.cpu(), torch.tensor([1.0, 1, 2, 3, 4, 5]))


def test_one_tensor_in_several_roles():
    x = torch.arange(4.0).view(2, 2).to(DEVICE)
    torch.add(x, x, out=x)
    assert torch.equal(x.cpu(), torch.tensor([[0.0, 2], [4, 6]]))
    torch.mm(x, x, out=torch.empty(0, device=DEVICE))
    with pytest.raises(RuntimeError, match=r"single memory location|overlap"):
        torch.cat([x, x], out=x.view(-1)[:1])


def test_lazy_clone_separates_on_write():
    x = torch.ones(100, device=DEVICE)
    y = torch._lazy_clone(x)
    y.sin_()
    assert torch.equal(x.cpu(), torch.ones(100))
    assert torch.allclose(y.cpu(), torch.ones(100).sin())


def test_foreign_operator_with_a_cpu_kernel_runs_on_aliases():
    with torch.library._scoped_library("neuron_test", "FRAGMENT") as library:
        library.define("scale(Tensor x, Tensor[] others, Tensor?[] maybe, float factor) -> (Tensor, Tensor[])")
        library.impl("scale", lambda x, others, maybe, factor: (x * factor, [o + x for o in others]), "CPU")
        x = torch.ones(3, device=DEVICE)
        scaled, sums = torch.ops.neuron_test.scale(x, [x, x], [None, x], 3.0)
        assert scaled.device == x.device
        assert torch.equal(scaled.cpu(), torch.full((3,), 3.0))
        assert [s.device for s in sums] == [x.device, x.device]


def test_operator_without_any_kernel_names_itself_and_the_device():
    with torch.library._scoped_library("neuron_test", "FRAGMENT") as library:
        library.define("nothing(Tensor x) -> Tensor")
        with pytest.raises(NotImplementedError, match=r"neuron_test::nothing.*neuron"):
            torch.ops.neuron_test.nothing(torch.ones(1, device=DEVICE))
    with pytest.raises(NotImplementedError, match="neuron"):
        torch.ones(2, 2, device=DEVICE).to_mkldnn()


def test_failed_operator_leaves_the_device_usable():
    gc.collect()
    before = torch.neuron.memory_allocated()
    x = torch.ones(3, 4, device=DEVICE)
    for _ in range(100):
        with pytest.raises(RuntimeError):
            torch.mm(x, x)
        with pytest.raises(RuntimeError):
            torch.linalg.cholesky(-torch.eye(3, device=DEVICE))
    assert torch.equal(torch.mm(x, x.t()).cpu(), torch.full((3, 3), 4.0))
    del x
    gc.collect()
    assert torch.neuron.memory_allocated() == before


def test_numpy_of_a_device_tensor_is_the_usual_error():
    with pytest.raises(TypeError, match=r"can't convert neuron:0 device type tensor to numpy"):
        torch.ones(2, device=DEVICE).numpy()


def test_layouts_and_pinning_that_the_device_does_not_have():
    with pytest.raises((NotImplementedError, RuntimeError), match=r"dense|Mkldnn|neuron"):
        torch.empty(2, 2, device=DEVICE, layout=torch._mkldnn)
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(2, device=DEVICE, pin_memory=True)
    with pytest.raises(RuntimeError, match="negative"):
        torch.empty(-1, device=DEVICE)
    with pytest.raises(ValueError, match="neuron:7"):
        torch.empty(1, device="neuron:7")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize(("bins", "low", "high"), [(4, 0, 3), (3, 0, 9), (5, 0, 0), (1, -3, 3), (7, 2, 2)])
def test_histc_of_integers(dtype, bins, low, high):
    values = torch.tensor([0, 1, 1, 3, 9, 9, 4, 120], dtype=dtype)
    expected = torch.histc(values.float(), bins, low, high).to(dtype)
    assert torch.equal(torch.histc(values.to(DEVICE), bins, low, high).cpu(), expected)
    out = torch.empty(0, dtype=dtype, device=DEVICE)
    assert torch.histc(values.to(DEVICE)[::2], bins, low, high, out=out) is out
    assert torch.equal(out.cpu(), torch.histc(values[::2].float(), bins, low, high).to(dtype))


def test_histc_of_extreme_and_missing_integers():
    limits = torch.tensor([torch.iinfo(torch.int64).min, 0, torch.iinfo(torch.int64).max], device=DEVICE)
    assert torch.equal(torch.histc(limits, 2).cpu(), torch.tensor([1, 2]))
    assert torch.histc(torch.empty(0, dtype=torch.int32, device=DEVICE), 3).tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        torch.histc(limits, 0)


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, torch.optim.RMSprop])
def test_optimizers_equal_the_cpus(optimizer):
    options = [{"foreach": True}, {"foreach": False}] + ([{"fused": True}] if optimizer is not torch.optim.RMSprop else [])
    for option in options:
        weights = []
        for device in ("cpu", DEVICE):
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 3).to(device)
            optim = optimizer(model.parameters(), lr=0.1, **option)
            for _ in range(5):
                optim.zero_grad()
                model(torch.ones(2, 4, device=device)).square().sum().backward()
                optim.step()
            weights.append(model.weight.detach().cpu())
        torch.testing.assert_close(weights[1], weights[0], rtol=1e-6, atol=1e-7)


def test_grad_scaler():
    model = torch.nn.Linear(4, 3).to(DEVICE)
    scaler = torch.amp.GradScaler(DEVICE.split(":", maxsplit=1)[0], init_scale=8.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    loss = model(torch.ones(2, 4, device=DEVICE)).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.allclose((before - model.weight).cpu(), torch.full((3, 4), 0.2))
    loss = (model(torch.ones(2, 4, device=DEVICE)) * float("inf")).sum()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    kept = model.weight.detach().clone()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(kept, model.weight)
    assert scaler.get_scale() == 4.0
