"""The catalogue of a model's operators is the model: the calls of a real forward pass, right, with bytes by hand."""

from collections import Counter

import pytest

from rocmlab import model_operators, model_shape, random_weights, shape_judges, shapes
from rocmlab.model_shape import DECODE, PREFILL

torch = pytest.importorskip("torch")

# Operators that only look at memory in another way; none of them computes or copies.
VIEWS = {"view", "transpose", "unsqueeze", "slice", "expand", "t", "_unsafe_view", "select", "alias", "detach",
         "squeeze", "lift_fresh"}  # fmt: skip
QWEN = {
    "model_type": "qwen3", "vocab_size": 300, "head_dim": 16, "num_key_value_heads": 2, "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture(scope="module", params=[("tiny", "float32"), ("qwen", "float16"), ("qwen", "bfloat16")], ids="-".join)
def model(request):
    name, dtype = request.param
    patch = pytest.MonkeyPatch()
    patch.setitem(random_weights.PRESETS, "qwen", QWEN)
    made = random_weights.random_model(name, dtype, "cpu").eval()
    patch.undo()
    return made


def dispatched(call):
    """Count every operator that torch runs, without views."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = Counter()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen[str(function.overloadpacket).removeprefix("aten.")] += 1
            return function(*args, **(kwargs or {}))

    with Counting() as counting, torch.no_grad():
        call()
    return Counter({name: n for name, n in counting.seen.items() if name not in VIEWS})


def real_pass(model, phase):
    """Count what a prefill of eight tokens, or the second step after it, really runs."""
    from rocmlab import decode

    ids, mask = decode.padded([[1, 2, 3, 4, 5, 6, 7, 8]], "cpu")
    states = []

    def fill():
        logits, state = decode.prefill(model, ids, mask)
        decode.choose(state, logits)
        states.append(state)

    def step():
        decode.choose(states[0], decode.forward(model, states[0]))

    filled = dispatched(fill)
    with torch.no_grad():
        step()
    return filled if phase == PREFILL else dispatched(step)


@pytest.mark.parametrize("phase", [DECODE, PREFILL])
def test_the_operators_are_those_of_a_real_forward_pass_one_by_one(model, phase):
    """Every operator that torch runs in a step stands in the catalogue as often as it is called: nothing is missing
    from the sum, and nothing is counted twice."""
    mine: Counter = Counter()
    for make in model_operators.operators(model, phase, 8, 10):
        made = make()
        for name, n in dispatched(lambda made=made: made.call(made.parts[0])).items():
            mine[name] += n * made.count
    assert +mine == real_pass(model, phase)


@pytest.mark.parametrize("phase", [DECODE, PREFILL])
def test_every_value_agrees_with_float64(model, phase):
    dtype = str(model.dtype).removeprefix("torch.")
    for make in model_operators.operators(model, phase, 70, 90):  # more rows than are compared
        with torch.no_grad():
            made = make()
            value = shapes.compared(made, dtype)
        assert not shape_judges.is_wrong(value), (made.name, value)


def test_a_wrong_value_is_seen(model):
    """Wrong by a little in one element, by another causal mask, by a head that reads its neighbour's key."""
    makers = {made.name: made for made in (make() for make in model_operators.operators(model, PREFILL, 8, 8))}
    dtype = str(model.dtype).removeprefix("torch.")
    with torch.no_grad():
        for name in ("q_proj", "layer_norms", "rope", "sdpa", "silu_mul", "kv_append", "lm_head"):
            made = makers[name]
            taken = made.taken

            def spoilt(result, taken=taken):
                got = taken(result).clone()
                got.flatten()[-1] += got.abs().max()
                return got

            made.taken = spoilt
            assert shape_judges.is_wrong(shapes.compared(made, dtype)), name
        made = makers["sdpa"]
        made.taken = lambda result: result.roll(1, dims=2)[:, : model_shape.CHECKED]
        assert shape_judges.is_wrong(shapes.compared(made, dtype))


def test_bytes_and_flops_by_hand(model):
    item = model.dtype.itemsize
    made = {one.name: one for one in (make() for make in model_operators.operators(model, DECODE, 8, 100))}
    assert made["gate_proj"].flops == 2 * 64 * made["gate_proj"].shape["out"]
    assert made["lm_head"].bytes == item * (64 * model.config.vocab_size + 64 + model.config.vocab_size)
    assert made["sdpa"].bytes == item * (2 * 2 * 100 * 16 + 2 * 4 * 16)  # keys, values, query, result
    assert made["sdpa"].flops == 4 * 4 * 16 * 100
    assert made["kv_append"].bytes == item * 2 * 2 * 2 * 16  # one position read and written
    assert made["kv_append"].facts["copied_bytes"] == 100 * made["kv_append"].bytes
    fill = {one.name: one for one in (make() for make in model_operators.operators(model, PREFILL, 8, 100))}
    assert fill["sdpa"].flops == 4 * 4 * 16 * 36  # 1 + 2 + ... + 8 pairs
    assert fill["lm_head"].shape["rows"] == 1  # only the last column's logits are asked for


def test_calls_rotate_over_as_many_bytes_as_asked(model):
    made = {one.name: one for one in (make() for make in model_operators.operators(model, DECODE, 8, 100))}
    q = made["q_proj"]
    parts = shapes.rotated(q, 7 * q.part_bytes)
    assert len(parts) == 7 and len({part.weight.data_ptr() for part in parts}) == 7
    assert all(torch.equal(part.weight, q.parts[0].weight) for part in parts[len(q.parts) :])
    assert len(shapes.rotated(q, 1)) == 1  # one weight alone is more than is asked for
    assert len(shapes.rotated(q, 10**12)) == shapes.MOST_COPIES
    assert shapes.rotated(made["residual_add"], 10**9) == [None]
