"""Names of operators that take the same arguments, and how templates are made for each of them."""

FLOAT_UNARY = "exp log sqrt rsqrt sin cos tanh sigmoid erf log1p expm1 reciprocal tan asin acos atan sinh cosh exp2 log2 log10 erfc"
ANY_UNARY = "abs neg square sign"
REAL_UNARY = "ceil floor trunc round frac sgn relu"
ACTIVATIONS = "F.relu F.gelu F.silu F.softplus F.elu F.leaky_relu F.hardtanh F.hardswish F.mish F.logsigmoid F.relu6 F.selu F.tanhshrink"
ARITHMETIC = "add sub mul div"
COMPARISONS = "eq ne lt le gt ge"
REAL_BINARY = "maximum minimum fmod remainder floor_divide pow"
FLOAT_BINARY = "atan2 hypot copysign nextafter logaddexp xlogy"
BITWISE = "bitwise_and bitwise_or bitwise_xor"
REDUCTIONS = "sum mean amax amin prod"
ORDER = "max min argmax argmin cumsum cumprod"


def each(names: str, *templates: str) -> list[str]:
    """The templates with `NAME` replaced by each name."""
    return [template.replace("NAME", name) for name in names.split() for template in templates]
