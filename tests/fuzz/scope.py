"""What the generator knows while it writes a program: the variables so far, with live values on the CPU, their places, and new inputs."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .interpreter import CPU, names_of
from .picker import Picker
from .program import DEV, HOST, OTHER, Input

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16)
BOOLS = (torch.bool,)
COMPLEX = (torch.complex64,)

# The families of dtypes that templates name; the first is what shrinking prefers.
FAMILIES: dict[str, tuple[torch.dtype, ...]] = {
    "any": (torch.float32, torch.int64, torch.bfloat16, torch.bool, *FLOATS, *INTS, torch.float32, torch.bool, torch.complex64),
    "float": (torch.float32, *FLOATS, torch.float32),
    "wide": (torch.float32, torch.float64),
    "single": (torch.float32,),
    "double": (torch.float64,),
    "real": (torch.float32, *FLOATS, *INTS),
    "num": (torch.float32, *FLOATS, *INTS, torch.complex64),
    "field": (torch.float32, *FLOATS, torch.complex64),
    "int": INTS,
    "bits": (*INTS, torch.bool),
    "bool": BOOLS,
    "long": (torch.int64,),
    "complex": COMPLEX,
}

# Larger tensors are not used further.
MAX_ELEMENTS = 160

_SPECIAL_FLOATS = (float("inf"), float("nan"), -0.0, float("-inf"), 1e-30, 3e4, 65504.0, 0.5)
_SPECIAL_INTS = (127, -128, 100, -1, 0, 1, 2, 3)


class Scope:
    """Variables and inputs of one program in the making."""

    def __init__(self, compiled: bool) -> None:
        self.compiled = compiled
        self.names: dict[str, Any] = names_of(CPU)
        self.inputs: list[Input] = []
        self.places: dict[int, str] = {}  # of every tensor variable that templates may use
        self.count = 0
        self.pick = Picker(b"")
        self.place: str | None = None  # where the operands of the current step are
        self.result_place: str | None = None  # where its results are, if not there

    def begin(self, pick: Picker) -> None:
        """Start a step."""
        self.pick, self.place, self.result_place = pick, None, None

    def value(self, number: int) -> Any:
        """The live value of a variable on the CPU."""
        return self.names[f"v{number}"]

    def new_number(self) -> int:
        """The number of the next variable."""
        self.count += 1
        return self.count - 1

    def tensors(self, accept: Callable[[torch.Tensor], bool]) -> list[int]:
        """Variables at the place of this step that fit, the newest first."""
        found = []
        for number in reversed(self.places):
            if self.place in (None, self.places[number]):
                value = self.value(number)
                if value.numel() <= MAX_ELEMENTS and accept(value):
                    found.append(number)
        return found

    def use(self, number: int) -> torch.Tensor:
        """Take a variable as operand; the first one decides where the step runs."""
        if self.place is None:
            self.place = self.places[number]
        return self.value(number)

    def new_input(self, dtype: torch.dtype, shape: Sequence[int], values: Sequence[Any] | None = None) -> int:
        """Add an input with these values, or some that the picker decides."""
        pick = self.pick
        if self.place is None:
            self.place = pick.of((OTHER, HOST)) if pick.chance(7) else DEV
        shape = tuple(shape)
        count = torch.Size(shape).numel()
        requires_grad = values is None and (dtype.is_floating_point or dtype.is_complex) and pick.chance(35)
        flat = list(values) if values is not None else some_values(pick, dtype, count)
        given = Input(self.new_number(), dtype, shape, _nested(flat, shape), self.place, requires_grad)
        self.inputs.append(given)
        exec(given.text, self.names)
        self.places[given.number] = self.place
        return given.number

    def random_shape(self, low: int = 0, high: int = 4) -> list[int]:
        """A small shape whose rank is between the two."""
        ranks = [rank for rank in (2, 1, 3, 2, 0, 4, 3) if low <= rank <= high] or [low]
        return [self.size() for _ in range(self.pick.of(ranks))]

    def size(self) -> int:
        """The size of a dimension."""
        return 0 if self.pick.chance(2) else self.pick.of((2, 3, 1, 2, 3, 4))


def some_values(pick: Picker, dtype: torch.dtype, count: int) -> list[Any]:
    """Small numbers of the dtype, most of them different; sometimes one that is special."""
    seed, special = pick.byte(), pick.byte()
    numbers = [(index * 5 + seed) % 13 - 6 for index in range(count)]
    if dtype == torch.bool:
        return [number % 3 != 0 for number in numbers]
    if dtype.is_complex:
        return [complex(number / 4, (number * 3 % 7 - 3) / 2) for number in numbers]
    if dtype.is_floating_point:
        values: list[Any] = [number / 4 for number in numbers]
        specials: Sequence[Any] = _SPECIAL_FLOATS
    else:
        unsigned = dtype == torch.uint8
        values = [abs(number) if unsigned else number for number in numbers]
        specials = [value % 256 for value in _SPECIAL_INTS] if unsigned else _SPECIAL_INTS
    if special >= 232 and count:
        values[special % count] = specials[special % len(specials)]
    return values


def _nested(flat: list[Any], shape: Sequence[int]) -> Any:
    if not shape:
        return flat[0]
    if 0 in shape:
        return []
    step = len(flat) // shape[0]
    return [_nested(flat[index * step : (index + 1) * step], shape[1:]) for index in range(shape[0])]
