"""Every ATen operator of the installed wheel, as the generator needs it.

Read through torchgen's own API, so that overloads which torchgen derives (`autogen`, structured delegates) are included exactly as PyTorch
builds them. torch itself is not imported.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torchgen import local
from torchgen.api import cpp
from torchgen.api.types import DispatcherSignature
from torchgen.gen import parse_native_yaml
from torchgen.model import BackendIndex, DispatchKey, NativeFunction

from .errors import OpgenError

# Beginnings of the dispatch keys (`SparseCPU`, `SparsePrivateUse1`).
SPARSE_LAYOUTS = ("Sparse", "SparseCsr")


@dataclass(frozen=True)
class Signature:
    """The dispatcher's C++ signature of an operator."""

    returns: str
    argument_types: tuple[str, ...]
    argument_names: tuple[str, ...]

    def pointer(self) -> str:
        """Return the function pointer type, e.g. `at::Tensor (*)(const at::Tensor &, int64_t)`."""
        return f"{self.returns} (*)({', '.join(self.argument_types)})"

    def declaration(self, name: str) -> str:
        """Declare a function `name` with this signature, argument names included."""
        arguments = ", ".join(f"{t} {n}" for t, n in zip(self.argument_types, self.argument_names, strict=True))
        return f"{self.returns} {name}({arguments});"


class Operator:
    """One overload, e.g. `add.out`. `cpu` tells whether PyTorch has a CPU kernel for it, its own or through its structured out variant.

    `sparse` names its kernels for sparse CPU tensors by layout: COO ("Sparse"), and CSR with its relatives ("SparseCsr").
    """

    def __init__(self, function: NativeFunction, cpu_kernel: str | None, cpu: bool, sparse: dict[str, str]) -> None:
        self._function = function
        self.cpu_kernel = cpu_kernel
        self.cpu = cpu
        self.sparse = sparse
        self.name = str(function.func.name)

    @property
    def base(self) -> str:
        """Name without the overload: `add_` for `add_.Tensor`."""
        return self.name.split(".", 1)[0]

    @property
    def root(self) -> str:
        """Name under which the wheel files the generated headers: `add` for `add_.Tensor` and `add.out`."""
        return self._function.root_name

    @property
    def random(self) -> bool:
        """Whether results depend on a generator."""
        return "nondeterministic_seeded" in self._function.tags

    @property
    def view(self) -> bool:
        """Whether results share the bytes of an argument."""
        return self._function.is_view_op

    @property
    def composite_implicit(self) -> bool:
        """Whether autograd comes from differentiating the decomposition, not from a formula of its own."""
        return self._function.has_composite_implicit_autograd_kernel

    @property
    def composite(self) -> bool:
        """Whether ATen decomposes it for a device without an own kernel."""
        function = self._function
        return (
            function.has_composite_implicit_autograd_kernel
            or function.has_composite_explicit_autograd_kernel
            or function.has_composite_explicit_autograd_non_functional_kernel
        )

    @cached_property
    def signature(self) -> Signature:
        """What the dispatcher calls a kernel of this operator with."""
        return self._signature(symint=False)

    @cached_property
    def symbolic_signature(self) -> Signature:
        """The same for a kernel that takes SymInt."""
        return self._signature(symint=True)

    def _signature(self, *, symint: bool) -> Signature:
        with local.parametrize(
            use_const_ref_for_mutable_tensors=self._function.use_const_ref_for_mutable_tensors,
            use_ilistref_for_tensor_lists=self._function.part_of_structured_group,
        ):
            dispatcher = DispatcherSignature.from_schema(self._function.func, symint=symint)
            arguments = dispatcher.arguments()
            return Signature(dispatcher.returns_type().cpp_type(), tuple(a.type for a in arguments), tuple(a.name for a in arguments))

    @cached_property
    def cpu_function(self) -> str:
        """Name of the typed CPU entry that keeps the schema's argument order, inside namespace `at::cpu`."""
        return cpp.name(self._function.func, faithful_name_for_out_overloads=True)


@dataclass(frozen=True)
class Wheel:
    """Where the installed wheel keeps what the generator reads."""

    native_functions: Path
    tags: Path
    include: Path
    version_file: Path

    @staticmethod
    def locate() -> Wheel:
        """Find torchgen and torch on the path of this interpreter without importing torch."""
        folders = {}
        for package in ("torchgen", "torch"):
            spec = importlib.util.find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                raise OpgenError(f"package '{package}' is not installed in this Python environment; install torch first")
            folders[package] = Path(next(iter(spec.submodule_search_locations)))
        native = folders["torchgen"] / "packaged" / "ATen" / "native"
        torch = folders["torch"]
        return Wheel(native / "native_functions.yaml", native / "tags.yaml", torch / "include", torch / "version.py")

    @cached_property
    def torch_version(self) -> str:
        """`major.minor` of the wheel; a rebuild of the same release must not change what is generated."""
        match = re.search(r"^__version__\s*=\s*['\"](\d+\.\d+)", self.version_file.read_text(), re.MULTILINE)
        if match is None:
            raise OpgenError(f"{self.version_file.name} of the installed torch names no version")
        return match[1]


def load_catalog(wheel: Wheel) -> dict[str, Operator]:
    """All overloads of the wheel by name (`add.out`), in alphabetical order."""
    parsed = parse_native_yaml(str(wheel.native_functions), str(wheel.tags))
    by_name = {function.func.name: function for function in parsed.native_functions}
    cpu: BackendIndex = parsed.backend_indices[DispatchKey.CPU]
    layouts = {layout: parsed.backend_indices[DispatchKey.parse(f"{layout}CPU")] for layout in SPARSE_LAYOUTS}
    operators = {}
    for function in parsed.native_functions:
        metadata = cpu.get_kernel(function)
        delegate = by_name[function.structured_delegate] if function.structured_delegate is not None else None
        has_cpu = metadata is not None or (delegate is not None and cpu.has_kernel(delegate))
        sparse = {layout: kernel.kernel for layout, index in layouts.items() if (kernel := index.get_kernel(function)) is not None}
        operators[str(function.func.name)] = Operator(function, metadata.kernel if metadata else None, has_cpu, sparse)
    return dict(sorted(operators.items()))
