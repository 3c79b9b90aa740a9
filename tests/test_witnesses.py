"""Hidden waiting, on a device that is simulated in real time: a queue that is busy until some moment."""

import time

import pytest

from rocmlab import timing, witnesses

torch = pytest.importorskip("torch")


class Device:
    """A queue: work put on it ends at `free`; the host goes on at once unless it synchronises."""

    def __init__(self, ms_per_tick=1e-6, first_s=0.0):
        self.free, self.ms_per_tick, self.first_s = time.perf_counter(), ms_per_tick, first_s

    def work(self, seconds):
        self.free = max(self.free, time.perf_counter()) + seconds

    def sleep(self, ticks):
        time.sleep(self.first_s)  # the first call loads its kernel, on the host
        self.first_s = 0.0
        self.work(ticks * self.ms_per_tick / 1000)

    def synchronise(self, *_):
        time.sleep(max(0.0, self.free - time.perf_counter()))

    def event(self):
        device = self

        class Event:
            def record(self):
                self.at = device.free

            def query(self):
                return time.perf_counter() >= self.at

        return Event()


@pytest.fixture
def simulated(monkeypatch):
    def made(**given):
        device = Device(**given)
        monkeypatch.setattr(torch.cuda, "_sleep", device.sleep, raising=False)
        monkeypatch.setattr(torch.cuda, "Event", device.event)
        monkeypatch.setattr(timing, "synchronise", device.synchronise)
        monkeypatch.setattr(witnesses, "_state", {})
        return device

    return made


def test_a_call_that_only_queues_does_not_wait(simulated):
    device = simulated(first_s=0.05)
    found = witnesses.waits(lambda: device.work(0.0005), "cuda:0")
    assert found["waited"] is False and found["came_back_ms"] < found["spin_ms"]


def test_a_call_that_synchronises_waits(simulated):
    device = simulated()
    found = witnesses.waits(device.synchronise, "cuda:0")
    assert found["waited"] is True and found["came_back_ms"] >= 0.8 * found["spin_ms"]


def test_long_work_on_the_device_is_no_waiting(simulated):
    device = simulated()
    assert witnesses.waits(lambda: device.work(0.01), "cuda:0")["waited"] is False


def test_a_wait_that_does_not_follow_the_clock_says_nothing(simulated, monkeypatch):
    device = simulated()
    monkeypatch.setattr(torch.cuda, "_sleep", lambda ticks: device.work(0.003))  # always the same, whatever was asked
    with pytest.raises(RuntimeError, match="does not follow"):
        witnesses.waits(lambda: None, "cuda:0")
    assert "does not follow" in witnesses._quietly(lambda: witnesses.waits(lambda: None, "cuda:0"))["reason"]


def test_a_wait_that_ends_too_early_says_nothing(simulated, monkeypatch):
    device = simulated()
    monkeypatch.setattr(witnesses, "_ticks_per_ms", lambda _: 1.0)  # as if the calibration had gone wrong
    found = witnesses.waits(lambda: device.work(0.0001), "cuda:0")
    assert "waited" not in found and found["reason"]


def test_a_call_with_much_host_time_is_not_judged(simulated):
    simulated()
    assert "too long" in witnesses.waits(lambda: time.sleep(0.04), "cuda:0")["reason"]


@pytest.mark.parametrize(
    ("seen", "waited", "tries"),
    [([True, True, True], True, 3), ([True, False], False, 2), ([False], False, 1), ([None], None, 1)],
)
def test_a_call_waits_only_if_it_did_so_every_time(monkeypatch, seen, waited, tries):
    """A host that was busy elsewhere looks like a wait once; None: the method could not tell."""
    given = iter(seen)

    def behind(call, device, spin_ms):
        one = next(given)
        return {} if one is None else {"waited": one}

    monkeypatch.setattr(witnesses, "_behind_a_wait", behind)
    found = witnesses.waits(lambda: None, "cpu")
    assert found.get("waited") is waited and len(list(given)) == len(seen) - tries
