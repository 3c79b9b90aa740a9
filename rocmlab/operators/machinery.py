"""What surrounds the kernels: recurrent nets, linear algebra, random numbers,
sampling, copies, streams, graphs and torch.compile."""

from __future__ import annotations

import functools
from typing import Any

from rocmlab.operators.check import SINGLE, SIXTEEN, Check, normal, positive, whole

DRAWS = 1 << 17
SIX_SIGMA = 6.0  # a right generator fails one such bound in a billion draws of the test


# ---- recurrent nets and linear algebra


def _recurrent() -> list[Check]:
    kinds = ("float32", "float16")
    make = functools.partial(Check, family="recurrent", terms=64, steps=16, library="dnn", dtypes=kinds)
    layer = (normal(12, 4, 32), normal(4 * 48, 32, scale=0.1), normal(4 * 48, 48, scale=0.1))
    gated = (normal(12, 4, 32), normal(3 * 48, 32, scale=0.1), normal(3 * 48, 48, scale=0.1))
    return [make("lstm", run=_rnn("LSTM"), inputs=layer), make("gru", run=_rnn("GRU"), inputs=gated)]


def _rnn(kind: str) -> Any:
    def run(t: Any, x: Any, inward: Any, across: Any) -> Any:
        layer = getattr(t.nn, kind)(32, 48, bias=False, device=x.device, dtype=x.dtype)
        with t.no_grad():
            layer.weight_ih_l0.copy_(inward)
            layer.weight_hh_l0.copy_(across)
        return layer(x)[0]

    return run


def _linear_algebra() -> list[Check]:
    make = functools.partial(Check, family="linear algebra", dtypes=SINGLE, terms=1024, steps=64)
    return [
        make("cholesky", run=lambda t, x: t.linalg.cholesky(_definite(t, x)), inputs=(normal(128, 128),), waits=True),
        make("solve", run=lambda t, x, y: t.linalg.solve(_definite(t, x), y), inputs=(normal(128, 128), normal(128, 8)),
            waits=True),
        make("qr", run=_qr, inputs=(normal(128, 64),), waits=True),
        make("singular_values", run=lambda t, x: t.linalg.svdvals(x), inputs=(normal(64, 48),), waits=True),
        make("fft", run=lambda t, x: t.fft.irfft(t.fft.rfft(x) * 2, n=x.shape[-1]), inputs=(normal(64, 1024),)),
        make("fft2", run=lambda t, x: t.fft.fft2(x), inputs=(normal(8, 64, 64),), terms=4096),
    ]  # fmt: skip


def _definite(t: Any, x: Any) -> Any:
    return x @ x.t() / x.shape[0] + 2 * t.eye(x.shape[0], dtype=x.dtype, device=x.device)


def _qr(t: Any, x: Any) -> Any:
    """Q times R and Q'Q, which are unique where Q and R by themselves are not."""
    q, r = t.linalg.qr(x)
    return q @ r, q.t() @ q


# ---- random numbers: no reference but the distribution


def _statistics(t: Any, x: Any) -> Any:
    x = x.double() if x.device.type != "mps" else x.float()
    return t.stack([x.mean(), x.square().mean()])


def _expected(mean: float, second: float) -> Any:
    return lambda t, *_: t.tensor([mean, second], dtype=t.float64)


def _random() -> list[Check]:
    make = functools.partial(Check, family="random", inputs=(normal(8),), atol=SIX_SIGMA * 1.5 / DRAWS**0.5)
    return [
        make("randn", run=lambda t, x: _statistics(t, t.randn(DRAWS, dtype=x.dtype, device=x.device)),
            reference=_expected(0, 1)),
        make("rand", run=lambda t, x: _statistics(t, t.rand(DRAWS, dtype=x.dtype, device=x.device)),
            reference=_expected(1 / 2, 1 / 3), dtypes=("float32", "float16")),
        make("bernoulli",
            run=lambda t, x: _statistics(t, t.bernoulli(t.full((DRAWS,), 0.25, dtype=x.dtype, device=x.device))),
            reference=_expected(0.25, 0.25)),
        make("dropout",
            run=lambda t, x: _statistics(t,
            t.nn.functional.dropout(t.ones(DRAWS, dtype=x.dtype, device=x.device), 0.5)), reference=_expected(1, 2)),
        make("randint_uniform_", run=lambda t, x: _statistics(t, t.randint(0, 4, (DRAWS,), device=x.device)),
            reference=_expected(1.5, 3.5), dtypes=SINGLE, atol=SIX_SIGMA * 3.3 / DRAWS**0.5),
        make("randperm", run=lambda t, x: t.randperm(4096, device=x.device).sort().values,
            reference=lambda t, *_: t.arange(4096), dtypes=("int64",), inputs=(whole(8, high=8),)),
        make("same_seed_same_values", run=_twice, reference=lambda t, *_: t.zeros(1024, dtype=t.float64),
            dtypes=SINGLE),
    ]  # fmt: skip


def _twice(t: Any, x: Any) -> Any:
    drawn = []
    for _ in range(2):
        made = t.Generator(device=x.device).manual_seed(7)
        drawn.append(t.randn(1024, generator=made, device=x.device))
    return drawn[0] - drawn[1]


def _sampling() -> list[Check]:
    make = functools.partial(Check, family="sampling", dtypes=SINGLE)
    bound = SIX_SIGMA * 0.5 / 16384**0.5
    return [
        make("greedy", run=lambda t, x: x.argmax(-1), inputs=(normal(8, 32000),), dtypes=("float32", "float16")),
        make("multinomial", run=_frequencies, reference=lambda t, p: p / p.sum(), inputs=(positive(32),), atol=bound),
        make("top_k_sampling", run=_top_k, reference=lambda t, x: t.ones(64, dtype=t.bool), inputs=(normal(64, 4096),)),
        make("top_p_filter", run=_top_p, inputs=(normal(8, 1024),), terms=1024, steps=2),
    ]


def _frequencies(t: Any, p: Any) -> Any:
    drawn = t.multinomial(p, 16384, replacement=True)
    return t.nn.functional.one_hot(drawn, p.numel()).double().mean(0)


def _top_k(t: Any, x: Any) -> Any:
    """Draw from the 20 best of each row; every draw must be one of them."""
    best, index = x.topk(20, -1)
    chosen = index.gather(-1, t.multinomial(best.softmax(-1), 1))
    return (x.gather(-1, chosen) >= best[:, -1:]).squeeze(-1)


def _top_p(t: Any, x: Any) -> Any:
    """Probabilities of the smallest set that holds 0.9, others zero; the set's edge is kept off rounding's reach."""
    ordered, index = x.softmax(-1).sort(-1, descending=True)
    kept = ordered * (ordered.cumsum(-1) - ordered < 0.9 + 1e-4)
    return t.zeros_like(kept).scatter(-1, index, kept).sum(-1)


# ---- copies, streams, graphs, compile


def _movement() -> list[Check]:
    make = functools.partial(Check, family="copies and streams", inputs=(normal(1 << 19),))
    card = functools.partial(make, needs="accelerator", dtypes=SINGLE)
    return [
        make("copy_device_to_device", run=lambda t, x: t.empty_like(x).copy_(x)),
        make("copy_strided", run=lambda t, x: x.view(512, 1024)[::2, ::3].contiguous()),
        make("fill_and_zero", run=lambda t, x: (x.clone().fill_(0.5), x.clone().zero_())),
        card("copy_to_host_and_back", run=lambda t, x: x.cpu().to(x.device), dtypes=("float32", *SIXTEEN), waits=True),
        card("copy_pinned", run=lambda t, x: x.cpu().pin_memory().to(x.device, non_blocking=True) if x.is_cuda else x,
            waits=True),
        card("side_stream", run=_side_stream),
        card("events_in_order", run=_events, reference=lambda t, x: t.ones(1, dtype=t.bool), waits=True),
        card("graph_replay", run=_graph, waits=True, inputs=(normal(4096),), timed=False),
    ]  # fmt: skip


def _side_stream(t: Any, x: Any) -> Any:
    if not x.is_cuda:
        return x * 2 + 1
    side = t.cuda.Stream(x.device)
    side.wait_stream(t.cuda.current_stream(x.device))
    with t.cuda.stream(side):
        made = x * 2 + 1
    t.cuda.current_stream(x.device).wait_stream(side)
    made.record_stream(t.cuda.current_stream(x.device))
    return made


def _events(t: Any, x: Any) -> Any:
    """Two events around some work: the time between them must not be negative."""
    before, after = (t.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    for _ in range(10):
        x = x * 1.0001
    after.record()
    after.synchronize()
    return t.tensor([before.elapsed_time(after) > 0], device=x.device)


def _graph(t: Any, x: Any) -> Any:
    """Capture three small operators, change the input in place, replay: the output must follow."""
    if not x.is_cuda:
        return (x + 1) * 2 - x
    static = t.zeros_like(x)
    graph = t.cuda.CUDAGraph()
    with t.cuda.graph(graph):
        out = (static + 1) * 2 - static
    static.copy_(x)
    graph.replay()
    return out.clone()


def _compiled() -> list[Check]:
    run = functools.partial(Check, family="compile", dtypes=SINGLE, inputs=(normal(256, 256), normal(256)))
    return [run("torch_compile", run=_compile, steps=4, needs="compiler", limit_s=90)]


@functools.cache
def _compiled_function() -> Any:
    import torch

    return torch.compile(lambda x, y: torch.nn.functional.gelu(x * y + 1).sum(-1), dynamic=False)


def _compile(t: Any, x: Any, y: Any) -> Any:
    if x.dtype == t.float64:
        return t.nn.functional.gelu(x * y + 1).sum(-1)
    return _compiled_function()(x, y)


CHECKS = [*_recurrent(), *_linear_algebra(), *_random(), *_sampling(), *_movement(), *_compiled()]
