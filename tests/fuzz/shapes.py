"""What the holes ask about shapes and tensors."""

import torch


def ranks(text: str) -> tuple[int, int]:
    """What `2`, `1+` and `1-3` allow."""
    if text.endswith("+"):
        return int(text[:-1]), 4
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def broadcasts(left: torch.Size, right: torch.Size) -> bool:
    """Whether the two shapes broadcast."""
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(left), reversed(right), strict=False))


def has_history(value: torch.Tensor) -> bool:
    """Whether the tensor has an autograd node, or cannot say because it is a view that is no longer valid."""
    try:
        return value.grad_fn is not None
    except RuntimeError:
        return True
