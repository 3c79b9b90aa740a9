"""The decode step as it is measured: the twin has the same operators, the graph the same logits, nothing is left."""

import types

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rocmlab import (
    clock,
    decode,
    isolate,
    ledger,
    ledger_quantities,
    prefilled,
    random_weights,
    replay,
    results,
    rig,
    step_device,
    steps,
    timing,
    twin,
)

CPU = {"device": "cpu", "dtype": "float32"}


def small(kind="qwen3", **changes):
    """A model of two layers with another number of key heads than of heads."""
    values = {"model_type": kind, "vocab_size": 300, "hidden_size": 216, "intermediate_size": 160}
    values |= {"num_hidden_layers": 2, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 24}
    torch.manual_seed(0)
    dtype = changes.pop("dtype", torch.float32)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(**values | changes), dtype=dtype).eval()


# ---- the twin


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_twin_dispatches_the_same_operators_in_the_same_order(kind, dtype):
    model = small(kind, dtype=getattr(torch, dtype))
    with torch.inference_mode():
        names = []
        for one in (model, twin.make(model, "cpu", dtype)):
            made = rig.ready(one, "cpu", 8)
            names.append(steps.dispatched(lambda made=made: rig.step(made)))
    assert names[0] == names[1] and len(names[0]) > 50


def test_the_twin_is_tiny_and_keeps_layers_and_queries_a_key_head():
    model = small()
    config = twin.config_of(model.config)
    assert config.num_hidden_layers == model.config.num_hidden_layers
    assert (config.num_attention_heads // config.num_key_value_heads, config.hidden_size) == (3, 96)
    assert model.config.hidden_size == 216  # the model's own is untouched


def test_other_operators_are_seen_by_the_count():
    with torch.inference_mode():
        plain, eager = (
            rig.ready(small(attn_implementation=how), "cpu", 8) for how in ("sdpa", "eager")
        )  # fmt: skip
        fused, unfused = (steps.dispatched(lambda one=one: rig.step(one)) for one in (plain, eager))
        half = rig.ready(small(dtype=torch.float16), "cpu", 8)
        copies = steps.dispatched(lambda: rig.step(half)).count("aten::to")
    assert len(unfused) >= len(fused) + 2 * 3
    assert copies > fused.count("aten::to") + 2 * 4  # the norms go through float32


def test_fewer_layers_for_a_moment():
    model = small()
    kinds = list(model.config.layer_types)
    with twin.shallow(model, 1), torch.inference_mode():
        one = steps.dispatched(lambda: rig.step(rig.ready(model, "cpu", 4)))
    with torch.inference_mode():
        two = steps.dispatched(lambda: rig.step(rig.ready(model, "cpu", 4)))
    assert len(one) < len(two)
    assert (model.config.num_hidden_layers, len(model.model.layers), model.config.layer_types) == (2, 2, kinds)


# ---- the rig


def test_every_way_goes_back_to_where_it_began():
    with torch.inference_mode():
        one = rig.ready(small(), "cpu", 8)
        before = decode.forward(one.model, one.state)
        rig.back(one, 1)
        for way in (rig.stamped, rig.queued):
            assert way(one, 3)["ms"] > 0
            assert torch.equal(decode.forward(one.model, one.state), before)
            rig.back(one, 1)


def test_the_parts_of_a_stamped_step_are_the_step():
    with torch.inference_mode():
        found = rig.stamped(rig.ready(small(), "cpu", 8), 2)
    assert found["ms"] == pytest.approx(found["forward_ms"] + found["choose_ms"] + found["read_ms"])


# ---- the replay


@pytest.mark.parametrize("how", ["sdpa", "eager"])
def test_the_step_over_a_static_cache_has_the_logits_of_the_eager_one_every_time(how):
    model = small(attn_implementation=how)
    with torch.inference_mode():
        one = rig.ready(model, "cpu", 8)
        eager = decode.forward(model, one.state)
        still = replay.static(model, "cpu", 8, one.first)
        for _ in range(2):
            still.reset()
            assert torch.allclose(still.work(), eager, atol=1e-5)
            for _ in range(replay.REPLAYS):
                still.work()  # as many as lie between two resets


def graph(work):
    """A graph that runs eagerly."""
    return types.SimpleNamespace(replay=work)


def test_a_replay_that_computes_something_else_is_seen():
    model = small()
    with torch.inference_mode():
        one = rig.ready(model, "cpu", 8)
        still = replay.static(model, "cpu", 8, one.first)
        eager, logits = decode.forward(model, one.state), still.work()
        made = replay.Captured(graph(lambda: None), still.reset, logits, still.work)
        assert replay.error(made, "cpu", eager) < 1e-5
        made.logits = logits + 0.5 * eager.abs().max()
        assert replay.error(made, "cpu", eager) == pytest.approx(0.5, abs=1e-3)
        assert replay.nodes(made) is None


# ---- a device that works by itself


class Device:
    """A simulated queue on a clock of its own: work is handed over at once and done later, piece after piece."""

    def __init__(self, monkeypatch, cycles_a_ms=1e6):
        self.now, self.free, self.rate = 0.0, 0.0, cycles_a_ms
        device = self

        class Event:
            def __init__(self, enable_timing=True):
                self.at = 0.0

            def record(self):
                self.at = max(device.now, device.free)

            def elapsed_time(self, other):
                return 1000 * (other.at - self.at)

        monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: self.work(cycles / self.rate))
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(timing, "synchronise", self.wait)
        monkeypatch.setattr(clock, "synchronise", self.wait)
        for module in (prefilled, clock):
            monkeypatch.setattr(module, "time", types.SimpleNamespace(perf_counter=self.read))

    def read(self):
        self.now += 1e-7
        return self.now

    def host(self, ms):
        self.now += ms / 1000

    def work(self, ms):
        self.free = max(self.now, self.free) + ms / 1000

    def wait(self, _=None):
        self.now = max(self.now, self.free)


@pytest.mark.parametrize("rate", [100_000, 2_000_000])
def test_spins_are_calibrated_against_the_wall_clock(monkeypatch, rate):
    Device(monkeypatch, rate)
    assert prefilled.cycles_a_ms("cuda:0") == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize("events", [True, False])
def test_work_behind_a_spin_is_read_without_the_host(monkeypatch, events):
    device = Device(monkeypatch)

    def work():
        for _ in range(4):
            device.host(3.0)  # the host is slower than the device
            device.work(0.5)

    found = prefilled.read("cuda:0", work, 60.0, 1e6, events)
    assert found["ms"] == pytest.approx(2.0, abs=0.01) and found["enqueue_ms"] == pytest.approx(12.0, abs=0.01)
    assert found["spin_ms"] == pytest.approx(60.0, abs=0.01)
    short = prefilled.read("cuda:0", work, 2.0, 1e6, events)
    assert short["ms"] > 8  # the device ran dry: the host is what this reads
    assert not ledger_quantities.queue_counts({"enqueue_ms": [short["enqueue_ms"]], "spin_ms": 2.0})


@pytest.mark.parametrize("events", [True, False])
def test_a_spin_calibrated_at_low_clocks_is_taken_as_long_as_it_was(monkeypatch, events):
    device = Device(monkeypatch, 4e6)  # four times the clock at which it was calibrated: 60 ms take 15

    def work():
        for _ in range(4):
            device.host(3.0)
            device.work(0.5)

    found = prefilled.read("cuda:0", work, 60.0, 1e6, events)
    assert found["enqueue_ms"] == pytest.approx(12.0, abs=0.01)
    row = {"enqueue_ms": [found["enqueue_ms"]], "spin_ms": 60.0}
    assert ledger_quantities.queue_counts(row)  # by what was meant it would count
    assert not ledger_quantities.queue_counts(row | {"spin_seen_ms": [found["spin_ms"]]})
    assert ledger_quantities.spin_ms(row | {"spin_seen_ms": [found["spin_ms"]]}) == pytest.approx(15.0, abs=0.01)


def test_a_build_whose_sleep_does_not_spin_is_said(monkeypatch):
    Device(monkeypatch)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    with pytest.raises(RuntimeError, match="does not spin"):
        prefilled.cycles_a_ms("cuda:0")


def test_no_spin_is_longer_than_a_driver_allows(monkeypatch):
    device = Device(monkeypatch)
    prefilled.read("cuda:0", lambda: None, 5000.0, 1e6, True)
    assert device.now < 2


def test_a_step_of_several_texts_is_the_same_step_for_each():
    model = small()
    with torch.inference_mode():
        one = rig.ready(model, "cpu", 8, 3)
        three = replay.static(model, "cpu", 8, one.first)
        assert one.first.shape == (3, 1)
        eager, still = decode.forward(model, one.state), three.work()
        assert eager.shape[0] == 3 and torch.allclose(eager, still, atol=1e-5)
        rig.back(one, 1)
        assert rig.stamped(one, 2)["ms"] > 0


def test_queue_and_graphs_write_their_rows(monkeypatch, tmp_path):
    Device(monkeypatch)
    stands_in = lambda work, reset=lambda: None: replay.Captured(graph(work), reset, work(), work)  # noqa: E731
    monkeypatch.setattr(replay, "capture", stands_in)
    monkeypatch.setattr(clock, "qualify", lambda device: {"tick_ns": 1, "wait_ms": 0.0})
    run = results.start("11", str(tmp_path))
    notes = steps.Notes(run, CPU | {"context": 8})
    model = small(num_hidden_layers=4)
    with torch.inference_mode():
        rigs = {"T": rig.ready(model, "cpu", 8), "H": rig.ready(twin.make(model, "cpu", "float32"), "cpu", 8)}
        step_device.queue(notes, rigs["T"], model, samples=2)
        step_device.graphs(notes, rigs, 2, 3)
    rows = run.rows("step")
    queued = [row for row in rows if row["quantity"] == "D_queue"]
    assert [row["layers"] for row in queued] == [4, 2, 1] and all(row["of_layers"] == 4 for row in queued)
    for row in queued:
        assert row["spin_seen_ms"] == pytest.approx([row["spin_ms"]] * 2, rel=0.01)
    made = {row["quantity"]: row for row in rows}
    assert {"chain_queue", "chain_graph", "D_graph", "H_graph"} <= set(made)
    for name in ("D_graph", "H_graph"):
        assert made[name]["valid"] and made[name]["logits_error"] < 1e-3
        assert len(made[name]["samples_ms"]) == len(made[name]["beside_ms"]) == 3


def test_a_graph_with_other_logits_is_timed_and_does_not_count(monkeypatch, tmp_path):
    Device(monkeypatch)

    def wrong(work, reset=lambda: None):
        out = work()
        return replay.Captured(graph(work), reset, out if out is None else -out, work)

    monkeypatch.setattr(replay, "capture", wrong)
    run = results.start("11", str(tmp_path))
    with torch.inference_mode():
        rigs = {"T": rig.ready(small(), "cpu", 8)}
        step_device.graphs(steps.Notes(run, CPU | {"context": 8}), rigs, 2, 3)
    (row,) = [row for row in run.rows("step") if row["quantity"] == "D_graph"]
    assert row["valid"] is False and "not the step" in row["reason"] and len(row["samples_ms"]) == 3
    assert row["logits_error"] == pytest.approx(2.0, abs=0.01)


# ---- the whole, on a CPU


@pytest.mark.parametrize("kind", [RuntimeError, AssertionError, ZeroDivisionError, IndexError, MemoryError])
def test_a_part_that_fails_is_a_row_with_its_reason(tmp_path, kind):
    run = results.start("11", str(tmp_path))
    notes = steps.Notes(run, {})

    def fails():
        raise kind("operation not permitted when stream is capturing")

    assert notes.part("D_graph", fails) is None
    (row,) = run.rows("step")
    assert not row["valid"] and "capturing" in row["reason"] and row["samples_ms"] == []
    assert ledger.build([row])["quantities"]["D_graph"]["ms"] is None


def holds(rows, most):
    """A rig for as many texts as fit, and torch's words for more."""
    if rows > most:
        raise torch.OutOfMemoryError("HIP out of memory. Tried to allocate 29.36 GiB.")
    return rows


@pytest.mark.parametrize(("asked", "most", "kept"), [(256, 256, 256), (256, 100, 64), (256, 1, 1), (1, 1, 1)])
def test_texts_that_do_not_fit_are_halved_until_they_do_and_it_is_said(monkeypatch, asked, most, kept):
    for place in ("ready", "queued"):  # the prefill does not fit, or the step behind it
        monkeypatch.setattr(rig, "ready", lambda model, device, context, rows: rows)
        monkeypatch.setattr(rig, "queued", lambda made, count: None)
        refusing = {"ready": lambda model, device, context, rows: holds(rows, most),
                    "queued": lambda made, count: holds(made, most)}  # fmt: skip
        monkeypatch.setattr(rig, place, refusing[place])
        said(asked, kept)


def said(asked, kept):
    found, refused = steps.fitting(None, "cpu", 1024, asked)
    assert found == kept and (refused is None) is (kept == asked)
    if refused:
        assert f"{asked} texts of 1024 tokens" in refused and f"has {kept}" in refused


def test_one_text_that_does_not_fit_and_other_errors_are_raised(monkeypatch):
    monkeypatch.setattr(rig, "ready", lambda model, device, context, rows: holds(rows, 0))
    with pytest.raises(torch.OutOfMemoryError):
        steps.fitting(None, "cpu", 1024, 8)

    def broken(*_):
        raise RuntimeError("HIP error: invalid device function")

    monkeypatch.setattr(rig, "ready", broken)
    with pytest.raises(RuntimeError, match="invalid device function"):
        steps.fitting(None, "cpu", 1024, 8)


@pytest.mark.parametrize(
    ("seconds", "last", "blocks"), [(0.1, 1e9, 16), (1.0, 1e9, 6), (4.0, 20.0, 3), (60.0, 20.0, 1)]
)
def test_a_slow_step_keeps_the_blocks_that_it_has(monkeypatch, tmp_path, seconds, last, blocks):
    now = [0.0]

    def stamped(one, count):
        now[0] += seconds
        return {"ms": 1000 * seconds, "forward_ms": 1.0, "choose_ms": 1.0, "read_ms": 1.0}

    monkeypatch.setattr(rig, "stamped", stamped)
    monkeypatch.setattr(steps.time, "perf_counter", lambda: now[0])
    run = results.start("11", str(tmp_path))
    steps.in_turns(steps.Notes(run, {}), {"T": types.SimpleNamespace(device="cpu")}, 1, 16, 5.0, last)
    (row,) = [row for row in run.rows("step") if row["quantity"] == "T"]
    assert row["n"] == blocks


def test_a_study_of_the_cpu_gives_an_account(tmp_path):
    run = results.start("11", str(tmp_path))
    (ended,) = steps.study(run, "random:tiny", CPU, limit_s=120, context=16, steps=2, blocks=6)
    assert ended["status"] == "OK", ended
    rows = {row["quantity"]: row for row in run.rows("step")}
    assert {"T", "H", "smallest", "dispatches", "conditions"} <= set(rows)
    assert not {"E1", "D_graph", "D_queue", "H_cpu", "launches"} & set(rows)
    assert rows["T"]["n"] == 6 and rows["T"]["context"] == 16 and rows["T"]["model_hash"]
    account = ledger.of_run(run.path)
    assert account["regime"] == "undecided" and account["launches"] is None  # operators were not timed apart


def test_a_model_that_cannot_be_loaded_is_a_row(tmp_path):
    run = results.start("11", str(tmp_path))
    (ended,) = steps.study(run, "random:none", CPU, limit_s=60)
    assert ended["status"] == "ERROR" and "random:none" in ended["words"]
    assert isolate.meaning(1)[0] == "ERROR" and ledger.of_run(run.path) is None


def test_presets_have_a_twin():
    for name, values in random_weights.PRESETS.items():
        config = AutoConfig.for_model(**{k: v for k, v in values.items() if k != "rope_theta"})
        assert twin.config_of(config).num_hidden_layers == values["num_hidden_layers"], name
