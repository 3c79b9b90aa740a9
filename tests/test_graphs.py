"""A graph holds addresses only: what a captured step reads must live as long as the graph may be replayed."""

import contextlib
import gc
import types
import weakref

import pytest

from rocmlab import attention_trial, fixed_arms, replay

torch = pytest.importorskip("torch")


class Owned:
    """Stands for a tensor that a captured step reads and nobody else holds."""


class Graph:
    """Like a real one it knows what was captured by address, and keeps nothing of it alive."""

    replayed = 0

    def __init__(self, **_):
        pass

    def replay(self):
        self.replayed += 1

    def capture_begin(self, **_):
        pass

    def capture_end(self):
        pass


@pytest.fixture
def captures(monkeypatch):
    stream = types.SimpleNamespace(wait_stream=lambda other: None)
    fakes = {"CUDAGraph": Graph, "Stream": lambda *_: stream, "current_stream": lambda: stream}
    fakes |= {"synchronize": lambda *_: None, "stream": lambda _: contextlib.nullcontext()}
    fakes["graph"] = lambda _: contextlib.nullcontext()
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)


def step_and_what_it_reads():
    owned = Owned()
    return (lambda: owned is None), weakref.ref(owned)


def test_a_captured_step_of_the_ledger_keeps_what_it_reads(captures):
    step, read = step_and_what_it_reads()
    made = replay.capture(step)
    del step
    gc.collect()
    assert read() is not None
    del made
    gc.collect()
    assert read() is None


def test_a_captured_step_of_an_experiment_keeps_what_it_reads(captures):
    step, read = step_and_what_it_reads()
    take = fixed_arms._captured(step, lambda: None)
    del step
    gc.collect()
    take()
    assert read() is not None
    del take
    gc.collect()
    assert read() is None


def test_a_captured_pass_of_attention_keeps_the_views_of_its_length(captures, monkeypatch):
    monkeypatch.setattr(attention_trial.timing, "synchronise", lambda device: None)
    monkeypatch.setattr(attention_trial.clock, "warm", lambda task, device, **_: [1.0])
    made = {}

    def at(length):
        made["view"] = Owned()  # only the newest length is held, as attention_inputs does
        return made["view"]

    inputs = types.SimpleNamespace(sets=1, calls=lambda *_: None, at=at)
    case = types.SimpleNamespace(phase="decode", length=8)
    run = types.SimpleNamespace(append=lambda *_: None)
    plan = types.SimpleNamespace(head={"device": "cuda:0", "layers": 1}, graphs=True, run=run)
    row = {"backend": "default", "switch": None}
    arm = attention_trial._arm(plan, case, inputs, row, None)
    assert row["method"] == "graph"
    read = weakref.ref(made["view"])
    at(16)
    gc.collect()
    assert read() is not None
    del arm
    gc.collect()
    assert read() is None
