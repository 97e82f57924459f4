"""What a forward of a decoder must read and multiply, from its modules: the numbers that ratios to the machine's limits stand on."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Work:
    """Bytes that must come from memory and multiply-adds (counted as two operations) of one call.

    Attributes:
        bytes: read at least once.
        flops: floating-point operations of matrix products.
    """

    bytes: float
    flops: float

    def seconds(self, bytes_per_second: float, flops_per_second: float) -> float:
        """The shortest time a machine with these limits needs: the larger of the two."""
        return max(self.bytes / bytes_per_second, self.flops / flops_per_second)


def linear_work(model: nn.Module, rows: int, *, skip: tuple[str, ...] = ()) -> Work:
    """Work of all `nn.Linear` of a model on `rows` rows each; modules whose name ends in one of `skip` are left out."""
    weights = [
        module.weight for name, module in model.named_modules() if isinstance(module, nn.Linear) and not (skip and name.endswith(skip))
    ]
    return Work(float(sum(w.numel() * w.element_size() for w in weights)), 2.0 * rows * sum(w.numel() for w in weights))


def attention_work(config: object, queries: int, keys: int, itemsize: int, *, causal: bool, batch: int = 1) -> Work:
    """Work of attention in all layers: scores and weighted sums, half of them when `causal` and queries equal keys; K and V read once."""
    layers, heads = config.num_hidden_layers, config.num_attention_heads  # type: ignore[attr-defined]
    size = getattr(config, "head_dim", None) or config.hidden_size // heads  # type: ignore[attr-defined]
    kv_heads = getattr(config, "num_key_value_heads", heads)
    pairs = queries * keys / (2 if causal and queries == keys else 1)
    return Work(2.0 * batch * layers * kv_heads * keys * size * itemsize, 4.0 * batch * layers * heads * pairs * size)


def total(*parts: Work) -> Work:
    """The sum of several works."""
    return Work(sum(part.bytes for part in parts), sum(part.flops for part in parts))
