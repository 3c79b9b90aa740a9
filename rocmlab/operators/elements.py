"""Creation, elementwise, reductions, indexing and sorting: done by PyTorch's own kernels, with no library behind."""

from __future__ import annotations

import functools
from typing import Any

from rocmlab.operators.check import Check, boolean, normal, permutation, positive, whole

N = 1 << 18  # 1 MiB in float32: over the cost of a launch on a GPU, still in the cache of a CPU
ROWS = (256, 1024)


def _on(t: Any, like: Any) -> dict[str, Any]:
    """Return device and dtype for what is created beside a tensor."""
    return {"device": like.device, "dtype": like.dtype}


def _creation() -> list[Check]:
    make = functools.partial(Check, family="creation", inputs=(normal(8),))
    return [
        make("zeros_ones_full",
            run=lambda t, x: (t.zeros(N, **_on(t, x)), t.ones(N, **_on(t, x)), t.full((N,), 1.5, **_on(t, x)))),
        make("arange", run=lambda t, x: t.arange(0, 2048, 1, **_on(t, x)) / 2048),
        make("linspace", run=lambda t, x: t.linspace(-1, 1, 257, **_on(t, x)), steps=2),
        make("eye_tril_triu",
            run=lambda t, x: t.eye(512, **_on(t, x)) + t.ones(512, 512, **_on(t, x)).tril(-3).triu(-9)),
        make("one_hot", run=lambda t, i: t.nn.functional.one_hot(i, 512), inputs=(whole(4096, high=512),),
            dtypes=("int64",)),
    ]  # fmt: skip


def _elementwise() -> list[Check]:
    make = functools.partial(Check, family="elementwise", inputs=(normal(N),), grow=16)
    two = functools.partial(make, inputs=(normal(N), normal(N)))
    over = functools.partial(make, inputs=(positive(N),))
    return [
        two("add", run=lambda t, x, y: x + y, grad=True),
        make("mul_broadcast", run=lambda t, x, y: x * y, inputs=(normal(*ROWS), normal(1024)), grad=True),
        make("div", run=lambda t, x, y: x / y, inputs=(normal(N), positive(N)), grad=True),
        over("pow", run=lambda t, x: x**1.5, grad=True, steps=2),
        make("exp", run=lambda t, x: t.exp(x), grad=True),
        over("log", run=lambda t, x: t.log(x), grad=True),
        over("sqrt_rsqrt", run=lambda t, x: (t.sqrt(x), t.rsqrt(x)), grad=True, steps=2),
        make("sin_cos", run=lambda t, x: (t.sin(x), t.cos(x)), grad=True),
        make("tanh_sigmoid", run=lambda t, x: (t.tanh(x), t.sigmoid(x)), grad=True),
        make("erf", run=lambda t, x: t.erf(x), grad=True),
        make("relu_leaky", run=lambda t, x: (t.relu(x), t.nn.functional.leaky_relu(x, 0.125)), grad=True),
        make("gelu", run=lambda t, x: t.nn.functional.gelu(x), grad=True, steps=4),
        make("gelu_tanh", run=lambda t, x: t.nn.functional.gelu(x, approximate="tanh"), grad=True, steps=2),
        make("silu", run=lambda t, x: t.nn.functional.silu(x), grad=True, steps=2),
        make("clamp_abs_neg", run=lambda t, x: (x.clamp(-0.5, 0.5), x.abs(), -x), grad=True),
        make("where", run=lambda t, c, x, y: t.where(c, x, y), inputs=(boolean(N), normal(N), normal(N)), grad=True),
        two("maximum_minimum", run=lambda t, x, y: (t.maximum(x, y), t.minimum(x, y))),
        two("compare_logic", run=lambda t, x, y: ((x > y) & (x != 0)) | (y <= -1)),
        make("addcmul_lerp", run=lambda t, x, y, z: (t.addcmul(x, y, z, value=0.5), t.lerp(x, y, 0.25)),
            inputs=(normal(N), normal(N), normal(N)), steps=2),
        make("round_floor", run=lambda t, x: (t.round(x * 8), t.floor(x * 8), t.trunc(x * 8))),
        make("nan_to_num", run=lambda t, x: t.nan_to_num(t.where(x > 1, x * float("nan"), x), nan=0.5)),
        make("integer_bits", run=lambda t, i, j: (i & j, i ^ j, i << 2, i // 7, i % 7),
            inputs=(whole(N, high=4096), whole(N, high=4096)), dtypes=("int64",)),
        make("cast", run=lambda t, x: (x.to(t.float32), x.to(t.int32).to(t.float32)), inputs=(normal(N, scale=100.0),)),
        two("inplace_chain", run=lambda t, x, y: x.clone().add_(y).mul_(0.5).sub_(y), steps=3),
    ]  # fmt: skip


def _reductions() -> list[Check]:
    make = functools.partial(Check, family="reduction", inputs=(normal(*ROWS),), terms=1024, grow=16)
    over = functools.partial(make, inputs=(positive(*ROWS),))
    return [
        make("sum_rows", run=lambda t, x: x.sum(-1), grad=True, by_row=True),
        over("sum_all", run=lambda t, x: x.float().sum() if x.dtype == t.float16 else x.sum(), terms=N, grad=True),
        make("mean_columns", run=lambda t, x: x.mean(0), grad=True),
        make("var_std", run=lambda t, x: (x.var(-1), x.std(-1)), grad=True, steps=2),
        make("max_min", run=lambda t, x: (x.amax(-1), x.amin(0), x.max()), terms=1),
        make("argmax", run=lambda t, x: x.gather(-1, x.argmax(-1, keepdim=True)), terms=1),
        make("norm", run=lambda t, x: t.linalg.vector_norm(x, dim=-1), grad=True),
        make("logsumexp", run=lambda t, x: t.logsumexp(x, -1), grad=True),
        make("prod", run=lambda t, x: x[:, :16].prod(-1), inputs=(positive(*ROWS, low=0.5, high=1.5),), terms=16,
            steps=4),
        make("cumsum", run=lambda t, x: x.cumsum(-1), grad=True, steps=16, dtypes=("float32", "float16")),
        make("any_all_count", run=lambda t, x: ((x > 3).any(-1), (x > -3).all(-1), (x > 0).sum(-1)), terms=1),
        make("median", run=lambda t, x: x.median(-1).values, terms=1),
    ]  # fmt: skip


def _indexing() -> list[Check]:
    make = functools.partial(Check, family="indexing")
    table, rows = normal(4096, 256), whole(2048, high=4096)
    return [
        make("index_select", run=lambda t, x, i: x.index_select(0, i), inputs=(table, rows), grad=True, terms=64,
            steps=4),
        make("gather", run=lambda t, x, i: x.gather(1, i), inputs=(normal(*ROWS), whole(256, 256, high=1024)),
            grad=True, terms=16, steps=4),
        make("scatter_add", run=lambda t, x, i, y: x.scatter_add(0, i, y),
            inputs=(normal(512, 128), whole(1024, 128, high=512), normal(1024, 128)), steps=8, terms=16),
        make("index_add", run=lambda t, x, i, y: x.index_add(0, i, y),
            inputs=(normal(512, 128), whole(1024, high=512), normal(1024, 128)), steps=8, terms=16),
        make("index_put_accumulate", run=lambda t, x, i, y: x.index_put((i,), y, accumulate=True),
            inputs=(normal(512, 64), whole(1024, high=512), normal(1024, 64)), steps=8, terms=16),
        make("advanced_indexing", run=lambda t, x, i, j: x[i, j], inputs=(table, rows, whole(2048, high=256)),
            grad=True, steps=4),
        make("masked_fill", run=lambda t, x, m: x.masked_fill(m, -1e4), inputs=(normal(*ROWS), boolean(*ROWS)),
            grad=True),
        make("boolean_mask", run=lambda t, x, m: x[m], inputs=(normal(N), boolean(N)), waits=True),
        make("nonzero", run=lambda t, m: m.nonzero(), inputs=(boolean(*ROWS),), dtypes=("bool",), waits=True),
        make("cat_stack_split", run=lambda t, x, y: t.cat([*t.stack([x, y]).unbind(0), x.split(256, 1)[1]], -1),
            inputs=(normal(*ROWS), normal(*ROWS)), grad=True),
        make("transpose_copy", run=lambda t, x: x.transpose(0, 2).contiguous(), inputs=(normal(32, 128, 128),),
            grad=True),
        make("roll_flip_pad", run=lambda t, x: t.nn.functional.pad(x.roll(3, -1).flip(0), (1, 2, 3, 4)),
            inputs=(normal(*ROWS),)),
        make("repeat_interleave", run=lambda t, x: x.repeat_interleave(4, dim=1), inputs=(normal(512, 8, 64),),
            grad=True, steps=2),
        make("tril_mask", run=lambda t, x: x.masked_fill(t.ones_like(x, dtype=t.bool).triu(1), 0),
            inputs=(normal(*ROWS),)),
    ]  # fmt: skip


def _sorting() -> list[Check]:
    make = functools.partial(Check, family="sorting", inputs=(normal(64, 4096),))
    return [
        make("sort", run=lambda t, x: x.sort(-1).values),
        make("argsort_stable", run=lambda t, x: x.gather(-1, t.argsort(x, dim=-1, descending=True, stable=True))),
        make("topk", run=lambda t, x: x.topk(50, -1).values),
        make("topk_vocabulary", run=lambda t, x: x.topk(40, -1).values, inputs=(normal(4, 151936),)),
        make("kthvalue", run=lambda t, x: x.kthvalue(100, -1).values),
        make("unique", run=lambda t, i: t.unique(i, return_counts=True), inputs=(whole(65536, high=1000),),
            dtypes=("int64",), waits=True),
        make("searchsorted", run=lambda t, x, y: t.searchsorted(x.sort(-1).values, y),
            inputs=(permutation(4096), permutation(4096)), dtypes=("int64",)),
        make("bincount", run=lambda t, i: t.bincount(i, minlength=1000), inputs=(whole(65536, high=1000),),
            dtypes=("int64",), waits=True),
    ]  # fmt: skip


CHECKS = [*_creation(), *_elementwise(), *_reductions(), *_indexing(), *_sorting()]
