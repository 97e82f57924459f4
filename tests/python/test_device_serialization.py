"""Moving device tensors in and out of a process: torch.save/load, pickle, deepcopy, DLPack, shared memory, storages."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils import dlpack

DEVICE = torch.device("neuron:1")
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64]


def save_and_load(value: object, **load_options: object) -> object:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **load_options)


class TestSaveAndLoad:
    @pytest.mark.parametrize("weights_only", [True, False])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_round_trip(self, dtype: torch.dtype, weights_only: bool) -> None:
        value = torch.randint(0, 2, (5, 7), device=DEVICE).to(dtype)
        loaded = save_and_load(value, weights_only=weights_only)
        assert loaded.device == DEVICE
        assert loaded.dtype == dtype
        assert torch.equal(loaded, value)

    @pytest.mark.parametrize(
        ("map_location", "expected"),
        [
            ("cpu", "cpu"),
            ("neuron", "neuron:0"),
            ("neuron:3", "neuron:3"),
            (torch.device("neuron", 2), "neuron:2"),
            ({"neuron:1": "neuron:0"}, "neuron:0"),
            (lambda storage, location: storage, "cpu"),
            (lambda storage, location: storage.neuron(2), "neuron:2"),
            ("meta", "meta"),
        ],
    )
    def test_map_location(self, map_location: object, expected: str) -> None:
        value = torch.arange(6, device=DEVICE)
        loaded = save_and_load(value, map_location=map_location)
        assert loaded.device == torch.device(expected)
        if expected != "meta":
            assert loaded.tolist() == [0, 1, 2, 3, 4, 5]

    def test_cpu_checkpoint_onto_the_device(self) -> None:
        assert save_and_load(torch.arange(3), map_location="neuron:2").device == torch.device("neuron:2")

    def test_shared_storages_stay_shared(self) -> None:
        base = torch.zeros(10, device=DEVICE)
        first, second = save_and_load([base[:5], base[3:]])
        first += 1
        assert second.tolist() == [1, 1, 0, 0, 0, 0, 0]

    @pytest.mark.parametrize(
        "make",
        [
            lambda: torch.tensor(3.5, device=DEVICE),
            lambda: torch.zeros(0, 4, device=DEVICE),
            lambda: torch.arange(12, device=DEVICE).view(3, 4).t(),
            lambda: torch.arange(10, device=DEVICE)[1::3],
            lambda: torch.arange(3, device=DEVICE).expand(2, 3),
        ],
    )
    def test_shapes(self, make: Callable[[], torch.Tensor]) -> None:
        value = make()
        loaded = save_and_load(value)
        assert (loaded.shape, loaded.stride(), loaded.device) == (value.shape, value.stride(), DEVICE)
        assert torch.equal(loaded, value)

    def test_missing_core_raises_and_names_it(self) -> None:
        file = io.BytesIO()
        torch.save(torch.arange(3, device=DEVICE), file)
        patched = io.BytesIO(file.getvalue().replace(b"neuron:1", b"neuron:9"))
        with pytest.raises(RuntimeError, match=r"NEURON device 9.*device_count\(\) is 4"):
            torch.load(patched)
        patched.seek(0)
        assert torch.load(patched, map_location="cpu").tolist() == [0, 1, 2]

    def test_module_and_optimizer_state(self, tmp_path: Path) -> None:
        model = torch.nn.Linear(4, 4, device=DEVICE)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(2, 4, device=DEVICE)).sum().backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
        state = torch.load(tmp_path / "state.pt", map_location=DEVICE)
        other = torch.nn.Linear(4, 4, device=DEVICE)
        other.load_state_dict(state["model"])
        assert torch.equal(other.weight, model.weight)
        assert state["optimizer"]["state"][0]["exp_avg"].device == DEVICE

    def test_memory_mapped_load(self, tmp_path: Path) -> None:
        torch.save(torch.arange(100, device=DEVICE), tmp_path / "t.pt")
        loaded = torch.load(tmp_path / "t.pt", mmap=True, map_location="cpu").to(DEVICE)
        assert loaded.sum().item() == 4950

    def test_pickle(self) -> None:
        value = torch.arange(4.0, device=DEVICE, requires_grad=True)
        loaded = pickle.loads(pickle.dumps(value))
        assert loaded.device == DEVICE
        assert loaded.requires_grad
        assert torch.equal(loaded, value)


class TestCopies:
    def test_deepcopy(self) -> None:
        base = torch.arange(6.0, device=DEVICE)
        first, second = copy.deepcopy([base, base[2:]])
        assert first.device == DEVICE
        first[2] = 100
        assert second[0].item() == 100
        assert base[2].item() == 2

    def test_deepcopy_of_a_module(self) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).to(DEVICE)
        clone = copy.deepcopy(model)
        assert all(parameter.device == DEVICE for parameter in clone.parameters())
        assert clone[0].weight.data_ptr() != model[0].weight.data_ptr()

    def test_numpy_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"(?i)can't convert neuron.*device type tensor to numpy"):
            torch.ones(2, device=DEVICE).numpy()


class TestStorages:
    def test_conversion(self) -> None:
        storage = torch.arange(5, dtype=torch.uint8).untyped_storage()
        moved = storage.neuron(2)
        assert moved.device == torch.device("neuron:2")
        assert moved.is_neuron
        assert moved.neuron(2) is moved
        assert moved.cpu().tolist() == [0, 1, 2, 3, 4]
        assert storage.to(device="neuron:3").device == torch.device("neuron:3")

    def test_creation_and_copy(self) -> None:
        storage = torch.UntypedStorage(8, device=DEVICE)
        storage.fill_(3)
        other = torch.UntypedStorage(8, device="cpu")
        other.copy_(storage)
        assert other.tolist() == [3] * 8

    def test_set(self) -> None:
        source = torch.arange(10, device=DEVICE)
        view = torch.empty(0, dtype=torch.int64, device=DEVICE).set_(source.untyped_storage(), 2, (3,), (2,))
        assert view.tolist() == [2, 4, 6]

    def test_is_shared(self) -> None:
        # Nothing to do in one process, as for CUDA; another process cannot open it.
        tensor = torch.ones(3, device=DEVICE)
        assert tensor.share_memory_() is tensor
        module = torch.nn.Linear(2, 2, device=DEVICE).share_memory()
        assert module.weight.device == DEVICE

    def test_sending_to_another_process_is_refused(self) -> None:
        queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
        with pytest.raises(RuntimeError, match=r"(?i)only available on cpu"):
            queue.put(torch.ones(3, device=DEVICE))


class TestDlpack:
    @pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != torch.bool] + [torch.bool])
    def test_capsule_round_trip_shares_memory(self, dtype: torch.dtype) -> None:
        value = torch.ones(3, 4, device=DEVICE).to(dtype)
        back = dlpack.from_dlpack(dlpack.to_dlpack(value))
        assert back.device == DEVICE
        assert back.dtype == dtype
        assert back.data_ptr() == value.data_ptr()
        back.zero_()
        assert not value.to(torch.float32).any() if dtype != torch.complex64 else value.abs().sum().item() == 0

    def test_strides_and_offset(self) -> None:
        value = torch.arange(24, device=DEVICE).view(4, 6).t()[1::2]
        back = dlpack.from_dlpack(value.__dlpack__())
        assert back.stride() == value.stride()
        assert torch.equal(back, value)

    def test_keeps_the_memory_alive(self) -> None:
        before = torch.accelerator.memory_allocated(DEVICE)
        capsule = torch.arange(1 << 18, device=DEVICE).__dlpack__()
        back = dlpack.from_dlpack(capsule)
        assert back[-1].item() == (1 << 18) - 1
        del back, capsule
        assert torch.accelerator.memory_allocated(DEVICE) == before

    def test_foreign_memory_cannot_be_resized(self) -> None:
        back = dlpack.from_dlpack(torch.arange(4, device=DEVICE).__dlpack__())
        with pytest.raises(RuntimeError, match="not resizable"):
            back.untyped_storage().resize_(1000)
        assert back.tolist() == [0, 1, 2, 3]
        back.record_stream(torch.accelerator.current_stream(DEVICE))

    def test_copy_to_another_device(self) -> None:
        back = dlpack.from_dlpack(torch.arange(4, device=DEVICE).__dlpack__(dl_device=(1, 0)))
        assert back.device == torch.device("cpu")
        assert back.tolist() == [0, 1, 2, 3]

    def test_read_of_the_wrong_device_is_refused_by_numpy(self) -> None:
        numpy = pytest.importorskip("numpy")
        with pytest.raises((BufferError, RuntimeError, ValueError, TypeError)):
            numpy.from_dlpack(torch.ones(2, device=DEVICE))
