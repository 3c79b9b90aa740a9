"""Matrix products, convolutions, pooling, normalisation: where a library (BLAS, MIOpen, cuDNN, oneDNN) does the work.

Shapes are those of a small language model and of ResNet-like blocks, with odd sizes and single rows beside them:
kernels are chosen, and go wrong, by shape.
"""

from __future__ import annotations

import functools
from typing import Any

from rocmlab.operators.check import Check, integers, normal, outliers, padded

K = 512
TALL = 16  # times a block of rows stands in the tall product


def _gemm() -> list[Check]:
    make = functools.partial(Check, family="gemm", library="blas", terms=K, grad=True)
    square = (normal(256, K), normal(K, 512))
    other = {
        "integers": (integers(256, K), integers(K, 256)),
        "outliers": (outliers(256, K), normal(K, 256)),
        "padded": (padded(256, K), normal(K, 256)),
        "large": (normal(4096, 4096), normal(4096, 2048)),
        "large_cpu": (normal(1024, K), normal(K, 256)),
    }
    weight, row = normal(1024, K), normal(1, K)
    return [
        make("mm", run=lambda t, x, y: x @ y, inputs=square, terms=4096, more=other, by_row=True, timed_on="large",
            flop=_product),
        make("mm_transposed", run=lambda t, x, y: x.t() @ y.t(), inputs=(normal(K, 256), normal(256, K))),
        make("addmm", run=lambda t, b, x, y: t.addmm(b, x, y, beta=0.5, alpha=2.0), inputs=(normal(512), *square),
            steps=2),
        make("bmm", run=lambda t, x, y: x @ y, inputs=(normal(16, 128, 128), normal(16, 128, 128)), terms=128,
            by_row=True, more={"integers": (integers(16, 128, 128), integers(16, 128, 128))}),
        make("baddbmm", run=lambda t, b, x, y: t.baddbmm(b, x, y),
            inputs=(normal(16, 128, 128), normal(16, 128, 64), normal(16, 64, 128)), terms=64, steps=2),
        make("linear", run=_linear, inputs=(normal(128, K), weight, normal(1024)), steps=2, by_row=True,
            flop=_rows_by_weight),
        make("linear_one_row", run=_linear, inputs=(row, weight), flop=_rows_by_weight,
            more={"integers": (integers(1, K), integers(1024, K)), "outliers": (outliers(1, K), weight)}),
        make("linear_vocabulary", run=_linear, inputs=(normal(1, 256), normal(32003, 256)), terms=256, grad=False,
            flop=_rows_by_weight),
        make("linear_odd_shape", run=_linear, inputs=(normal(37, 1001), normal(333, 1001), normal(333)), steps=2,
            by_row=True, more={"integers": (integers(37, 1001), integers(333, 1001), integers(333))}),
        make("linear_few_columns", run=_linear, inputs=(normal(1000, 7), normal(3, 7)), terms=7),
        make("einsum", run=lambda t, x, y: t.einsum("bhqd,bhkd->bhqk", x, y),
            inputs=(normal(2, 8, 64, 64), normal(2, 8, 96, 64)), terms=64),
        make("matmul_broadcast", run=lambda t, x, y: t.matmul(x, y), inputs=(normal(4, 8, 32, 64), normal(64, 48)),
            terms=64),
        make("matrix_vector", run=lambda t, x, y: x.mv(y), inputs=(normal(2048, K), normal(K)), by_row=True),
        make("outer", run=lambda t, x, y: t.outer(x, y), inputs=(normal(1024), normal(1024)), terms=1),
        make("mm_tall", run=_tall, reference=_tall_reference, inputs=(normal(1024, 128), normal(128, 64)), terms=128,
            grad=False, by_row=False),
        make("mm_empty_and_ones", run=_edges, inputs=(normal(1, 1),), terms=1, grad=False),
    ]  # fmt: skip


def _product(shapes: list[Any]) -> float:
    (m, k), (_, n) = shapes[:2]
    return 2.0 * m * k * n


def _rows_by_weight(shapes: list[Any]) -> float:
    (m, k), (n, _) = shapes[:2]
    return 2.0 * m * k * n


def _same_size_convolution(shapes: list[Any]) -> float:
    (batch, _, height, width), (out, inward, high, wide) = shapes[:2]
    return 2.0 * batch * height * width * out * inward * high * wide


def _linear(t: Any, *given: Any) -> Any:
    return t.nn.functional.linear(*given)


def _tall(t: Any, x: Any, y: Any) -> Any:
    """Multiply a block that stands many times one under the other; its copies must all give the same rows.

    Faults that need many rows show as a copy that differs, without a reference of that size.
    """
    got = (x.repeat(TALL, 1) @ y).view(TALL, x.shape[0], y.shape[1])
    return got[0], got[-1], (got - got[:1]).abs().amax()


def _tall_reference(t: Any, x: Any, y: Any) -> Any:
    got = x @ y
    return got, got, got.new_zeros(())


def _edges(t: Any, x: Any) -> Any:
    """Products without rows, and without terms (all zero), beside one of 1 x 1."""
    return x.new_empty(0, 8) @ x.new_ones(8, 4), x.new_empty(3, 0) @ x.new_empty(0, 4), x @ x


def _convolution() -> list[Check]:
    make = functools.partial(Check, family="convolution", library="dnn", grad=True, steps=2)
    image = normal(4, 32, 28, 28)
    kernel = normal(64, 32, 3, 3)
    other = {
        "integers": (integers(4, 32, 28, 28), integers(64, 32, 3, 3)),
        "outliers": (outliers(2, 32, 28, 28), kernel),
        "large": (normal(8, 64, 112, 112), normal(128, 64, 3, 3)),
        "large_cpu": (normal(4, 32, 56, 56), normal(32, 32, 3, 3)),
    }
    conv = functools.partial(make, run=_conv2d(padding=1), inputs=(image, kernel), terms=288)
    return [
        conv("conv2d_3x3", more=other, by_row=True, timed_on="large", compared=2, terms=576,
            flop=_same_size_convolution),
        conv("conv2d_1x1", run=_conv2d(), inputs=(image, normal(64, 32, 1, 1), normal(64)), terms=32, by_row=True),
        conv("conv2d_stride", run=_conv2d(stride=2, padding=3), inputs=(normal(2, 3, 64, 64), normal(32, 3, 7, 7)),
            terms=147),
        conv("conv2d_depthwise", run=_conv2d(padding=1, groups=32), inputs=(image, normal(32, 1, 3, 3)), terms=9),
        conv("conv2d_dilated", run=_conv2d(padding=2, dilation=2), terms=288),
        conv("conv2d_odd_shape", run=_conv2d(padding=1), inputs=(normal(3, 13, 17, 23), normal(19, 13, 3, 3)),
            terms=117),
        conv("conv2d_channels_last", run=_channels_last),
        make("conv_transpose2d", run=lambda t, x, w: t.nn.functional.conv_transpose2d(x, w, stride=2),
            inputs=(normal(2, 32, 14, 14), normal(32, 16, 3, 3)), terms=288),
        make("conv1d", run=lambda t, x, w: t.nn.functional.conv1d(x, w, padding=2),
            inputs=(normal(4, 32, 256), normal(64, 32, 5)), terms=160),
        make("conv3d", run=lambda t, x, w: t.nn.functional.conv3d(x, w, padding=1),
            inputs=(normal(1, 8, 8, 16, 16), normal(8, 8, 3, 3, 3)), terms=216),
    ]  # fmt: skip


def _conv2d(**options: Any) -> Any:
    return lambda t, *given: t.nn.functional.conv2d(*given, **options)


def _channels_last(t: Any, x: Any, w: Any) -> Any:
    last = t.channels_last
    return t.nn.functional.conv2d(x.contiguous(memory_format=last), w.contiguous(memory_format=last), padding=1)


def _pooling() -> list[Check]:
    make = functools.partial(Check, family="pooling", inputs=(normal(4, 32, 56, 56),), grad=True, grow=4)
    return [
        make("max_pool2d", run=lambda t, x: t.nn.functional.max_pool2d(x, 3, 2, 1), library="dnn"),
        make("avg_pool2d", run=lambda t, x: t.nn.functional.avg_pool2d(x, 2), terms=4, library="dnn", steps=2),
        make("adaptive_avg_pool2d", run=lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 1), terms=3136, steps=2),
        make("interpolate_bilinear", run=lambda t, x: t.nn.functional.interpolate(x, scale_factor=1.5, mode="bilinear"),
            inputs=(normal(2, 16, 28, 28),), terms=1024, steps=2),
        make("interpolate_nearest", run=lambda t, x: t.nn.functional.interpolate(x, scale_factor=2),
            inputs=(normal(2, 16, 28, 28),), terms=4, steps=2),
    ]  # fmt: skip


def _normalisation() -> list[Check]:
    make = functools.partial(Check, family="normalisation", grad=True, terms=4096, steps=2, grow=16)
    image, affine = normal(4, 32, 28, 28), (normal(32), normal(32))
    text = (normal(128, 1024), normal(1024), normal(1024))
    batch = functools.partial(make, library="dnn", inputs=(image, *affine))
    return [
        batch("batch_norm_training", run=_batch_norm_training, more={"outliers": (outliers(4, 32, 28, 28), *affine)}),
        batch("batch_norm_inference", run=_batch_norm_inference),
        make("layer_norm", run=lambda t, x, w, b: t.nn.functional.layer_norm(x, (1024,), w, b), inputs=text,
            more={"outliers": (outliers(128, 1024), normal(1024), normal(1024))}, by_row=True),
        make("rms_norm", run=lambda t, x, w: t.nn.functional.rms_norm(x, (1024,), w, 1e-6), inputs=text[:2],
            by_row=True, steps=3),
        make("rms_norm_by_hand", run=_rms_norm, inputs=text[:2], by_row=True, steps=3),
        make("group_norm", run=lambda t, x, w, b: t.nn.functional.group_norm(x, 8, w, b), inputs=(image, *affine)),
        make("instance_norm", run=lambda t, x: t.nn.functional.instance_norm(x), inputs=(image,), library="dnn"),
        make("local_response_norm", run=lambda t, x: t.nn.functional.local_response_norm(x, 5), inputs=(image,),
            terms=5, steps=4),
    ]  # fmt: skip


def _batch_norm_training(t: Any, x: Any, weight: Any, bias: Any) -> Any:
    mean, var = t.zeros_like(weight), t.ones_like(weight)
    return t.nn.functional.batch_norm(x, mean, var, weight, bias, training=True), mean.detach(), var.detach()


def _batch_norm_inference(t: Any, x: Any, weight: Any, bias: Any) -> Any:
    mean, var = t.full_like(weight, 0.25).detach(), t.full_like(weight, 2.0).detach()
    return t.nn.functional.batch_norm(x, mean, var, weight, bias)


def _rms_norm(t: Any, x: Any, weight: Any) -> Any:
    """Normalise as transformers' models do: cast up, eight small operators, cast down."""
    high = x.double() if x.dtype == t.float64 else x.float()
    return weight * (high * t.rsqrt(high.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


CHECKS = [*_gemm(), *_convolution(), *_pooling(), *_normalisation()]
