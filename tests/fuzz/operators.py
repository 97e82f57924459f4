"""The operators that programs are made of, as templates; `holes.py` says what the braces mean.

A template is an expression (its results become variables) or a statement. Families come in the order in which shrinking prefers them.
"""

import re
from dataclasses import dataclass

HOLE = re.compile(r"\{(\w+)(?::([^}]*))?\}")


@dataclass(frozen=True)
class Operator:
    """One template with what the generator must know about it."""

    template: str
    family: str
    eager: bool = False  # makes no sense inside a compiled function
    random: bool = False  # the values are not specified

    @property
    def expression(self) -> bool:
        """Whether the template has results that can be bound."""
        try:
            compile(HOLE.sub("x", self.template), "<template>", "eval")
        except SyntaxError:
            return False
        return True


def each(names: str, *templates: str) -> list[str]:
    """The templates with `NAME` replaced by each name."""
    return [template.replace("NAME", name) for name in names.split() for template in templates]


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

POINTWISE = [
    "{a:any} + {b:cast a}",
    "{a:any} * {b:cast a}",
    *each("sub div true_divide", "{a:any}.NAME({b:cast a})"),
    *each(COMPARISONS, "{a:any}.NAME({b:cast a})"),
    *each(REAL_BINARY, "{a:real}.NAME({b:cast a real})"),
    *each(FLOAT_BINARY, "torch.NAME({a:float}, {b:like a})"),
    *each(BITWISE, "{a:bits}.NAME({b:cast a bits})"),
    *each(FLOAT_UNARY, "{a:num}.NAME()"),
    *each(ANY_UNARY, "{a:num}.NAME()"),
    *each(REAL_UNARY, "{a:real}.NAME()"),
    *each(ACTIVATIONS, "NAME({a:float})"),
    "torch.add({a:num}, {b:cast a}, alpha={s:number a})",
    "{s:number} - {a:any}",
    "{s:number} / {a:any}",
    "{s:number} ** {a:real}",
    "{a:real} // {b:cast a}",
    "{a:real} % {b:cast a}",
    "{a:bits} << {n:whole 0 3}",
    "~{a:bits}",
    "{a:real}.clamp({lo:one -1 None 0}, {hi:one 1 2})",
    "torch.where({m:bool}, {a:num}, {b:cast a})",
    "torch.where({m:bool}, {s:number}, {r:number})",
    "torch.lerp({a:float}, {b:like a}, {w:one 0.5 0.25 2})",
    "torch.addcmul({a:float}, {b:like a}, {c:like a}, value={s:one 1 0.5})",
    "torch.addcdiv({a:float}, {b:like a}, {c:like a})",
    *each("isnan isinf isfinite logical_not signbit", "{a:real}.NAME()"),
    *each("logical_and logical_or logical_xor", "{a:any}.NAME({b:same a any})"),
    "{a:num}.nan_to_num(0.5)",
    "{a:float}.masked_fill({m:mask a}, {s:one 0 -1 2.5})",
    "{a:complex}.angle()",
    "torch.complex({a:wide}, {b:like a})",
    "F.prelu({a:float 2}, {w:t a a.1})",
    "F.glu(torch.cat([{a:float 1+}, {a}], {d:dim a}), {d})",
]

CASTS = [
    "{a:any}.to({d:dtype})",
    *each("float double half bfloat16 bool", "{a:any}.NAME()"),
    *each("int long", "{a:bits}.NAME()"),
    "{a:any}.to({d:dtype}, copy=True)",
    "{a:any}.type_as({b:any})",
    "torch.result_type({a:any}, {b:any})",
    "torch.result_type({a:any}, {s:number})",
    "torch.can_cast({a:any}.dtype, {d:dtype})",
]

VIEWS = [
    "{a:any 2+}.transpose({d:dim a}, {e:dim a})",
    "{a:any}.view({s:view a})",
    "{a:any}.reshape({s:view a})",
    "{a:any}.permute({p:perm a})",
    "{a:any 1+}.narrow({d:dim a}, 0, 1)",
    "{a:any 1+}.select({d:dim a}, {n:one 0 -1})",
    "{a:any}.expand({s:expanded a})",
    "{a:any}.unsqueeze({d:dim a})",
    "{a:any}.squeeze()",
    "{a:any 1+}.squeeze({d:dim a})",
    "{a:any}.flatten()",
    "{a:any 1+}[{i:item a}]",
    "{a:any 1+}[{i:item a}]",
    "{a:any 1+}[1:]",
    "{a:any 1+}[..., ::2]",
    "{a:any 2}.t()",
    "{a:any 2+}.mT",
    "{a:any 2+}.diagonal()",
    "{a:any 1+}.unfold({d:dim a}, 1, 1)",
    "{a:any 1+}.movedim({d:dim a}, {e:dim a})",
    "{a:any}.view_as({b:like a})",
    "{a:any}.view({d:dtype})",
    "{a:any 1+}.as_strided({s:one (2,) (2,2) (3,) (1,)}, {t:one (1,) (1,1) (0,)})",
    "{a:complex}.real",
    "torch.view_as_real({a:complex})",
    "{a:complex}.conj()",
    "{a:any}.detach()",
    "{a:any}.contiguous()",
    "{a:any}.clone()",
    "{a:any 4}.contiguous(memory_format=torch.channels_last)",
    "{a:any 4}.clone(memory_format=torch.channels_last)",
    "{a:any 1+}.swapaxes(0, {d:dim a})",
    "torch.atleast_2d({a:any})",
    "{a:any}.ravel()",
    "{a:any 1+}.unflatten({d:dim a}, (1, -1))",
    "torch.broadcast_to({a:any}, {s:expanded a})",
]

SPLITS = [
    "{a:any 1+}.chunk({n:whole 1 3}, {d:dim a})",
    "{a:any 1+}.split({n:whole 1 3}, {d:dim a})",
    "{a:any 1+}.unbind({d:dim a})",
    "{a:any 1+}.tensor_split({n:whole 1 3}, {d:dim a})",
    "torch.broadcast_tensors({a:any}, {b:like a})",
    "torch.meshgrid({a:any 1}, {b:like a}, indexing='ij')",
]

JOINS = [
    "torch.cat([{a:any 1+}, {b:like a}], {d:dim a})",
    "torch.cat([{a:any 1+}, {b:same a}], {d:dim a})",
    "torch.stack([{a:any}, {b:like a}], {d:whole 0 0})",
    "torch.hstack([{a:any 1+}, {b:like a}])",
    "{a:any 1+}.repeat(2, *[1] * ({a}.dim() - 1))",
    "{a:any}.repeat_interleave(2)",
    "{a:any 1+}.flip({d:dims a})",
    "{a:any 1+}.roll({n:whole -2 2}, {d:dim a})",
    "F.pad({a:num 1+}, ({l:whole 0 2}, {r:whole -1 1}), value={v:one 0 1.5})",
    "torch.block_diag({a:float 2}, {b:like a})",
    "{a:any 2+}.triu({k:whole -1 1})",
    "{a:any 2+}.tril({k:whole -1 1})",
    "torch.diag_embed({a:any 1-2})",
    "torch.cartesian_prod({a:any 1}, {b:like a})",
]

WRITES = [
    *each(ARITHMETIC, "{a:any}.NAME_({b:cast a})"),
    "{a:any} += {b:cast a}",
    "{a:any} *= {b:cast a}",
    "{a:any}.copy_({b:cast a any})",
    "{a:any}.copy_({b:like a}, non_blocking=True)",
    "{a:any}.fill_({s:number a})",
    "{a:any}.zero_()",
    *each(FLOAT_UNARY, "{a:float}.NAME_()"),
    "{a:real}.relu_()",
    *each("abs neg square", "{a:num}.NAME_()"),
    *each(COMPARISONS, "{a:any}.NAME_({b:cast a})"),
    *each("pow fmod remainder floor_divide", "{a:real}.NAME_({b:cast a})"),
    *each(BITWISE, "{a:bits}.NAME_({b:cast a bits})"),
    "{a:any 1+}[{i:item a}] = {s:number a}",
    "{a:any 1+}[{i:item a}] = {b:any 0}.detach()",
    "{a:any 1+}[{i:item a}] += {s:number a}",
    "{a:any 1+}[1:] = {a}[:-1]",
    "{a:any 1+}[:-1].copy_({a}[1:])",
    "{a:any 1+}.mul_({a}[..., :1])",
    "{a:any 2}.add_({a}.t())",
    "{a:any}.masked_fill_({m:mask a}, {s:number a})",
    "{a:any}.masked_scatter_({m:mask a}, {b:like a})",
    "{a:any 1+}[{m:same a bool}] = {s:number a}",
    "{a:real}.clamp_({lo:one -1 0}, {hi:one 1 2})",
    "{a:float}.addcmul_({b:like a}, {c:like a})",
    "{a:float}.lerp_({b:like a}, 0.5)",
    "{a:any}.expand({s:expanded a}).add_(1)",
    "{a:any 1+}.narrow({d:dim a}, 0, 1).add_({s:number a})",
    "{a:any 1+}.select({d:dim a}, 0).mul_({s:number a})",
    "{a:any 2+}.transpose({d:dim a}, {e:dim a}).sub_({s:number a})",
    "{a:any 2+}.diagonal().fill_({s:number a})",
    "{a:any 2}.t_()",
    "{a:any 2+}.transpose_({d:dim a}, {e:dim a})",
    "{a:any}.unsqueeze_({d:dim a})",
    "{a:any}.squeeze_()",
    "{a:any 2+}.triu_()",
    "{a:any 1+}.index_fill_({d:dim a}, {i:index a d *}, {s:number a})",
    "{a:any 1+}.index_copy_(0, {i:index a 0 1}, {b:like a}[:1])",
    "{a:any 1+}.index_add_(0, {i:index a 0 a.0}, {b:like a})",
    "{a:any 1+}.scatter_({d:dim a}, {i:index a d within}, {s:number a})",
    "{a:any 1+}.scatter_({d:dim a}, {i:index a d within}, {b:like a})",
    "{a:num 1+}.scatter_add_({d:dim a}, {i:index a d within}, {b:like a})",
    "{a:real 1+}.scatter_reduce_({d:dim a}, {i:index a d within}, {b:like a}, {r:one 'sum' 'amax' 'prod' 'mean'})",
    "{a:any 1+}.index_put_(({i:index a 0 *},), {b:t a}, accumulate={f:flag})",
    "{a:num 1+}.cumsum_({d:dim a})",
    "{a:float 2}.addmm_({b:t a a.0 k*}.clone(), {c:t a k a.1}.clone())",
]

OUTS = [
    *each("add sub mul div", "torch.NAME({a:any}, {b:cast a}, out={o:out a})"),
    *each("eq lt logical_and", "torch.NAME({a:any}, {b:same a any}, out={o:out a})"),
    *each("exp sqrt neg sigmoid", "torch.NAME({a:num}, out={o:out a})"),
    "torch.matmul({a:float 2}, {b:t a a.1 *}, out={o:out a}.detach().clone())",
    "torch.sum({a:any 1+}, {d:dim a}, out={o:out a})",
    "torch.cat([{a:any 1+}, {b:like a}], 0, out={o:out a})",
    "torch.index_select({a:any 1+}, {d:dim a}, {i:index a d *}, out={o:out a})",
    "torch.maximum({a:real}, {b:like a}, out={o:out a})",
    "torch.where({m:bool}, {a:num}, {b:like a}, out={o:out a})",
    "torch.sort({a:real 1+}, {d:dim a}, out=({o:out a}, {p:t long a.0}))",
    "torch.cumsum({a:any 1+}, {d:dim a}, out={o:out a})",
    "torch.add({a:num}, {b:like a}, out={a})",
    "torch.mul({a:any 1+}[1:], {b:number}, out={a}[:-1])",
    "torch.arange({n:whole 0 5}, out={o:any})",
    "torch.gather({a:any 1+}, {d:dim a}, {i:index a d within}, out={o:out a})",
]

REDUCE = [
    "{a:any}.sum()",
    *each(REDUCTIONS, "{a:any 1+}.NAME({d:dim a})", "{a:num 1+}.NAME({d:dim a}, keepdim=True)"),
    *each("sum mean amax amin", "{a:real 1+}.NAME({d:dims a})"),
    *each("mean prod max min median argmax argmin all any", "{a:any}.NAME()"),
    *each(ORDER, "{a:real 1+}.NAME({d:dim a})"),
    "{a:any}.sum(dtype={t:dtype})",
    *each("var std", "{a:field}.NAME()", "{a:float 1+}.NAME({d:dim a}, correction={c:whole 0 1})"),
    "torch.var_mean({a:float 1+}, {d:dim a})",
    "{a:float}.norm()",
    "torch.linalg.vector_norm({a:float 1+}, {p:one 2 1 0 float('inf')}, {d:dims a})",
    "{a:float 1+}.logsumexp({d:dim a})",
    *each("all any", "{a:any 1+}.NAME({d:dim a})"),
    *each("nansum nanmean", "{a:float}.NAME()"),
    "{a:any 1+}.count_nonzero({d:dim a})",
    "{a:real}.aminmax()",
    "{a:real 1+}.cummax({d:dim a})",
    "{a:float 1+}.logcumsumexp({d:dim a})",
    "{a:any 1+}.diff(dim={d:dim a})",
]

ORDERING = [
    "{a:real 1+}.sort(dim={d:dim a}, stable=True)",
    "{a:real 1+}.sort(dim={d:dim a}, descending=True, stable=True)",
    "{a:real 1+}.argsort(dim={d:dim a}, stable=True)",
    "{a:real 1+}.topk(1, {d:dim a})",
    "{a:real 1+}.topk(1, {d:dim a}, largest=False)",
    "{a:real 1+}.contiguous().kthvalue(1, {d:dim a})",
    "{a:real 1+}.contiguous().median({d:dim a})",
    "{a:real 1+}.contiguous().nanmedian({d:dim a}, keepdim=True)",
    "torch.unique({a:real})",
    "torch.unique({a:int}, return_inverse=True, return_counts=True)",
    "torch.searchsorted({a:real 1}.sort()[0], {b:like a})",
    "torch.bucketize({a:real}, {b:t a *}.sort()[0])",
    "torch.bincount({a:int 1}.abs())",
    "torch.histc({a:wide}, 4, -2, 2)",
    "torch.isin({a:int}, {b:same a int})",
]

GATHER = [
    "{a:any 1+}.gather({d:dim a}, {i:index a d within})",
    "{a:any 1+}.index_select({d:dim a}, {i:index a d *})",
    "{a:any 1+}.take_along_dim({i:index a d within}, {d:whole 0 0})",
    "{a:any 1+}.scatter({d:dim a}, {i:index a d within}, {b:like a})",
    "{a:num 1+}.scatter_add({d:dim a}, {i:index a d within}, {b:like a})",
    "{a:num 1+}.index_add(0, {i:index a 0 a.0}, {b:like a}, alpha={s:one 1 2})",
    "{a:any 1+}.index_put(({i:index a 0 *},), {b:t a})",
    "{a:any}.masked_select({m:mask a})",
    "{a:any 1+}[{m:same a bool}]",
    "{a:any}.nonzero()",
    "torch.argwhere({a:any})",
    "F.embedding({i:index w 0 2 *}, {w:float 2})",
    "F.one_hot({a:long}.abs().clamp(0, 6), 7)",
    "{a:any 1}.take({i:index a 0 2 2})",
    "torch.tril_indices(3, {n:whole 1 3}, device={h:here})",
]

MATRIX = [
    "{a:field 2} @ {b:t a a.1 *}",
    "{a:float 3} @ {b:t a a.0 a.2 *}",
    "{a:float 3} @ {b:t a a.-1 *}",
    "{a:float 1} @ {b:t a a.0}",
    "{a:int 2} @ {b:t a a.1 *}",
    "torch.mm({a:float 2}, {b:t a a.1 *})",
    "torch.bmm({a:float 3}, {b:t a a.0 a.2 *})",
    "torch.mv({a:float 2}, {b:t a a.1})",
    "torch.dot({a:num 1}, {b:like a})",
    "torch.outer({a:num 1}, {b:t a *})",
    "torch.addmm({c:t a a.0 n*}, {a:float 2}, {b:t a a.1 n}, alpha={s:one 1 2}, beta={r:one 1 0.5})",
    "torch.baddbmm({c:t a a.0 a.1 n*}, {a:float 3}, {b:t a a.0 a.2 n})",
    "F.linear({a:float 1+}, {w:t a n* a.-1}, {b:t a n})",
    "F.linear({a:float 1+}, {w:t a * a.-1})",
    "torch.einsum('ij,kj->ik', {a:float 2}, {b:t a * a.1})",
    "torch.tensordot({a:float 2}, {b:t a a.1 *}, 1)",
    "torch.kron({a:float 1-2}, {b:like a})",
    "torch.linalg.multi_dot([{a:float 2}, {b:t a a.1 n*}, {c:t a n *}])",
    "torch.cdist({a:wide 2}, {b:t a * a.1})",
    "torch.trace({a:num 2})",
    "F.scaled_dot_product_attention({q:float 4}, {k:like q}, {v:like q})",
    "F.scaled_dot_product_attention({q:float 4}, {k:like q}, {v:like q}, is_causal=True)",
    "F.scaled_dot_product_attention({q:float 3}, {k:like q}, {v:like q}, attn_mask={m:t bool q.1 q.1})",
    "F.bilinear({a:wide 2}, {b:like a}, {w:t a 2 a.1 a.1})",
]

NETWORK = [
    "F.softmax({a:float 1+}, {d:dim a})",
    "F.log_softmax({a:float 1+}, {d:dim a})",
    "{a:real 1+}.softmax({d:dim a}, dtype=torch.float32)",
    "F.layer_norm({a:float 1+}, ({a}.shape[-1],), {w:t a a.-1}, {b:t a a.-1})",
    "F.layer_norm({a:float 1+}, ({a}.shape[-1],))",
    "F.rms_norm({a:float 1+}, ({a}.shape[-1],), {w:t a a.-1})",
    "F.group_norm({a:float 3}, 1, {w:t a a.1}, {b:t a a.1})",
    "F.batch_norm({a:float 2-4}, {m:t a a.1}, {v:t a a.1}, training=True)",
    "F.batch_norm({a:float 2-4}, {m:t a a.1}, {v:t a a.1}.abs(), {w:t a a.1}, {b:t a a.1})",
    "F.instance_norm({a:float 3-4})",
    "F.normalize({a:float 2+}, dim={d:dim a})",
    "F.conv1d({a:float 3}, {w:t a n* a.1 1}, {b:t a n})",
    "F.conv1d({a:float 3}, {w:t a * a.1 2}, padding={p:whole 1 2}, stride={s:whole 1 2})",
    "F.conv2d({a:float 4}, {w:t a n* a.1 2 1}, {b:t a n}, padding=1)",
    "F.conv2d({a:float 4}, {w:t a a.1 1 1 2}, padding=1, groups={a}.shape[1])",
    "F.conv_transpose2d({a:float 4}, {w:t a a.1 * 2 2}, stride={s:whole 1 2})",
    "F.max_pool2d({a:float 3-4}, {k:whole 1 2})",
    "F.max_pool1d({a:float 2-3}, 1, return_indices=True)",
    "F.avg_pool2d({a:float 3-4}, {k:whole 1 2}, padding=0, stride=1)",
    "F.adaptive_avg_pool2d({a:float 3-4}, ({n:whole 1 2}, 1))",
    "F.adaptive_max_pool1d({a:float 2-3}, {n:whole 1 2})",
    "F.interpolate({a:float 4}, scale_factor=2, mode={m:one 'nearest' 'bilinear'})",
    "F.pixel_shuffle({a:float 4}.repeat(1, 4, 1, 1), 2)",
    "F.pad({a:float 2-3}, (1, 0), mode={m:one 'replicate' 'circular'})",
    "F.unfold({a:float 4}, 1)",
    "F.cross_entropy({a:float 2}, {i:index a 1 a.0})",
    "F.cross_entropy({a:float 2}, {i:index a 1 a.0}, label_smoothing=0.1, reduction={r:one 'none' 'sum'})",
    "F.nll_loss({a:float 2}, {i:index a 1 a.0})",
    *each("mse_loss l1_loss smooth_l1_loss huber_loss kl_div", "F.NAME({a:float}, {b:like a}, reduction={r:one 'mean' 'sum' 'none'})"),
    "F.binary_cross_entropy_with_logits({a:float}, {b:like a})",
    "F.cosine_similarity({a:float 1+}, {b:like a}, {d:dim a})",
    "F.dropout({a:float}, 0.5, training=False)",
]

FOREACH = [
    *each("add mul sub div maximum", "torch._foreach_NAME([{a:num}, {c:num}], [{b:like a}, {d:like c}])"),
    *each("add mul sub div", "torch._foreach_NAME_([{a:num}, {c:num}], {s:number})"),
    *each("add mul", "torch._foreach_NAME_([{a:num}, {c:num}], [{b:like a}, {d:like c}])"),
    *each("exp sqrt neg abs", "torch._foreach_NAME([{a:float}, {c:float}])", "torch._foreach_NAME_([{a:float}, {c:float}])"),
    "torch._foreach_addcmul_([{a:float}], [{b:like a}], [{c:like a}], {s:one 1 0.5})",
    "torch._foreach_addcdiv_([{a:float}], [{b:like a}], [{c:like a}], value={s:one 1 0.5})",
    "torch._foreach_lerp_([{a:float}], [{b:like a}], 0.5)",
    "torch._foreach_norm([{a:float}, {c:float}])",
    "torch._foreach_copy_([{a:any}], [{b:same a}])",
    "torch._foreach_zero_([{a:any}, {c:any}])",
]

FACTORIES = [
    *each("zeros ones", "torch.NAME({s:shape}, dtype={t:dtype}, device={h:here})"),
    *each("zeros_like ones_like", "torch.NAME({a:any})"),
    "torch.full({s:shape}, {v:number}, device={h:here})",
    "torch.full_like({a:any}, {v:number a})",
    "{a:any}.new_zeros({s:shape})",
    "{a:any}.new_tensor([1, 2])",
    "{a:any}.new_full({s:shape}, 1)",
    "torch.arange({n:whole 0 6}, device={h:here})",
    "torch.arange(1, {n:whole 1 6}, 0.5, dtype={t:dtype float}, device={h:here})",
    "torch.linspace(0, 1, {n:whole 0 5}, device={h:here})",
    "torch.eye({n:whole 0 4}, device={h:here})",
    "torch.tensor({v:number}, device={h:here})",
    "torch.tensor([1, 2.5], device={h:here}, dtype={t:dtype})",
    "torch.empty_like({a:any}).fill_({v:number a})",
    "torch.empty_strided((2, 3), (1, 2), device={h:here}).fill_(1)",
    "torch.scalar_tensor(2, device={h:here})",
]

MOVES = [
    *["{a:any}.to({m:move})"] * 4,
    "{a:any}.to({m:move}, dtype={t:dtype})",
    "{a:any}{h:host}.sum()",
    "{a:any}{h:host}.clone().pin_memory()",
]

SCALARS = [
    "{a:any}.sum().item()",
    "{a:any}.tolist()",
    "bool({a:any}.any())",
    "torch.equal({a:any}, {b:like a})",
    "torch.allclose({a:float}, {b:like a})",
    "{a:any}.numel()",
    "{a:any}.is_contiguous()",
    "{a:any 1+}.sum().item() + len({a})",
    "float({a:real 0})",
    "int({a:int 0})",
    "{a:any}.storage_offset()",
    "{a:any}.untyped_storage().nbytes()",
    "{a:any}.is_set_to({b:like a})",
    "{a:any}._is_view()",
]

RANDOM = [
    "(torch.manual_seed(7), torch.rand({s:shape}, device={h:here}))[1]",
    "(torch.manual_seed(7), torch.randn_like({a:float}))[1]",
    "(torch.manual_seed(7), F.dropout({a:float}, 0.5))[1]",
    "(torch.manual_seed(7), torch.empty_like({a:float}).uniform_())[1]",
    "(torch.manual_seed(7), torch.randint(5, {s:shape}, device={h:here}, dtype={t:dtype int}))[1]",
    "(torch.manual_seed(7), torch.randperm({n:whole 0 5}, device={h:here}))[1]",
    "(torch.manual_seed(7), torch.bernoulli({a:float}.sigmoid().nan_to_num(0.5)))[1]",
    "(torch.manual_seed(7), torch.multinomial({a:float 1}.exp().nan_to_num(1, 1, 1) + 1, 1))[1]",
]

AUTOGRAD = [
    *["{a:graph}.sum().backward()"] * 3,
    *["{a:graph}.sum().backward(retain_graph=True)"] * 2,
    *["{a:graph}.backward(torch.ones_like({a}))"] * 2,
    "{a:graph}.mean().backward()",
    "torch.autograd.grad({a:graph}.sum(), [{x:leaf}], retain_graph=True, allow_unused=True)[0]",
    "torch.autograd.grad({a:graph}.sum(), [{x:leaf}], create_graph=True, allow_unused=True)[0]",
    "torch.autograd.grad([{a:graph}], [{x:leaf}], [torch.ones_like({a})])[0]",
    "torch.autograd.backward([{a:graph}, {b:graph}], [torch.ones_like({a}), torch.ones_like({b})])",
    "{x:leaf}.grad",
    "{x:leaf}.grad = None",
    "{x:leaf}.grad.zero_()",
    "{x:leaf}.grad = {b:like x}",
    "{a:float}.requires_grad_()",
    "{a:any}.requires_grad_(False)",
    "{a:graph}.retain_grad()",
    "{a:float}.detach_()",
    "{a:any}.data",
    "{a:any}.data = {b:any}",
    "{a:any}.data.add_(1)",
    "{a:any}.detach().mul_(2)",
    "with torch.no_grad(): {x:leaf}.add_({b:cast x})",
    "with torch.no_grad(): {x:leaf}.copy_({b:like x})",
    "with torch.no_grad(): {x:leaf}.sub_({x}.grad, alpha=0.5)",
    "torch.inference_mode()(lambda: {a:float} * 2)()",
    "{a:graph}.register_hook(lambda grad: grad * 2) and None",
    "torch.utils.checkpoint.checkpoint(lambda x: x.sin() * {b:like a}, {a:float}, use_reentrant=False)",
    "torch.func.grad(lambda x: (x * {b:like a}).sum())({a:wide})",
    "torch.func.vmap(lambda x: x.sin())({a:float 1+})",
    "torch.func.jvp(torch.sin, ({a:wide},), ({b:like a},))",
]

STORAGE = [
    "{a:any}.resize_({s:shape}).fill_({v:number a})",
    "{a:any}.set_({b:like a})",
    "{a:any}.set_({b:like a}.untyped_storage(), 0, ({n:whole 0 2},), (1,))",
    "{a:any}.set_()",
    "{a:any}.untyped_storage().fill_(1)",
    "{a:any}.untyped_storage().copy_({b:like a}.untyped_storage())",
    "torch.empty(0, dtype={a:any}.dtype, device={h:here}).set_({a})",
    "{a:any}.as_strided_((1,), (1,))",
    "{a:any}.untyped_storage().data_ptr() == {b:any}.untyped_storage().data_ptr()",
    "{a:any}.share_memory_()",
    "torch.nn.Parameter({a:float})",
    "{a:float}.__deepcopy__({})",
    "__import__('copy').copy({a:any})",
    "torch.utils.swap_tensors({a:any}, {b:any})",
]

# Family, templates, whether only eager programs have them, how often relative to the others.
_TABLE = (
    ("pointwise", POINTWISE, False, 2),
    ("views", VIEWS, False, 5),
    ("writes", WRITES, False, 3),
    ("reduce", REDUCE, False, 2),
    ("casts", CASTS, False, 3),
    ("joins", JOINS, False, 3),
    ("splits", SPLITS, False, 4),
    ("factories", FACTORIES, False, 2),
    ("matrix", MATRIX, False, 2),
    ("network", NETWORK, False, 2),
    ("gather", GATHER, False, 2),
    ("ordering", ORDERING, False, 2),
    ("foreach", FOREACH, False, 1),
    ("moves", MOVES, False, 5),
    ("scalars", SCALARS, True, 2),
    ("outs", OUTS, True, 3),
    ("autograd", AUTOGRAD, True, 5),
    ("storage", STORAGE, True, 2),
    ("random", RANDOM, True, 2),
)

OPERATORS: tuple[Operator, ...] = tuple(
    Operator(template, family, eager, random=family == "random")
    for family, templates, eager, weight in _TABLE
    for template in templates
    for _ in range(weight)
)
COMPILABLE: tuple[Operator, ...] = tuple(operator for operator in OPERATORS if not operator.eager)
