"""A catalogue of operators that crash, hang, leak, lie or give NaN at one size, and functions for a worker to call."""

import ctypes
import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path

from rocmlab.operators.check import Check, normal

KEPT = []  # what the leaking one never gives back


def give(value):
    return value


def fail(text):
    raise ValueError(text)


def talk(text):
    os.write(1, text.encode())  # as a library does, past Python
    os.write(2, text.encode())
    print(text)
    return "said"


def pid():
    return os.getpid()


def die(number):
    os.kill(os.getpid(), number)


def leave(code):
    os._exit(code)


def hang(seconds=600):
    time.sleep(seconds)


def half_an_answer():
    """Write the beginning of an answer where the worker does, and end."""
    for descriptor in range(3, 20):
        try:
            if str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith("pipe:"):
                os.write(descriptor, b'{"id": 1, "result": 4')
        except OSError:
            continue
    os._exit(5)


def read_a_null_pointer():
    ctypes.string_at(0)


def ask():
    return sys.stdin.read()


def grandchild(marker):
    import subprocess

    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(marker).write_text(str(process.pid), encoding="utf-8")
    os._exit(3)


def first_fails():
    raise RuntimeError("no driver")


# ---- a catalogue in which everything goes wrong that can


def _lies(t, x):
    return x + 1 if x.dtype != t.float64 else x


def _leaks(t, x):
    KEPT.append(bytearray(64 << 20))
    KEPT[-1][::4096] = b"x" * len(KEPT[-1][::4096])
    return x


def _nan_when_large(t, x):
    return x * float("nan") if x.shape[0] > 100 and x.dtype != t.float64 else x


def _wrong_gradient(t, x):
    class Twice(t.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value * 2

        @staticmethod
        def backward(ctx, upstream):
            return upstream * 3

    return x * 2 if x.dtype == t.float64 else Twice.apply(x)


def _warns(t, x):
    if x.dtype != t.float64:
        warnings.warn("a slower path is taken", UserWarning, stacklevel=1)
    return x


def _only_in_float64(action):
    """Do the bad thing on the device only, not in the reference."""
    return lambda t, x: action() if x.dtype != t.float64 else x


def _raise(error):
    raise error


def _mended(t, x):
    """Right only while the file named by the environment is there: a fault that somebody mends between two runs."""
    return x if x.dtype == t.float64 or Path(os.environ["ROCMLAB_TEST_MEND"]).exists() else x + 1


def _slow_library(t, x):
    return x + t.backends.mkldnn.enabled if x.dtype != t.float64 else x


ONE = (normal(16, 4),)
bad = lambda name, run, **more: Check(name, "bad", run, inputs=ONE, dtypes=("float32",), **more)  # noqa: E731

CHECKS = [
    bad("good_before", lambda t, x: x * 2),
    bad("crashes", _only_in_float64(read_a_null_pointer)),
    bad("hangs", _only_in_float64(hang), limit_s=2),
    bad("kills_its_worker", _only_in_float64(lambda: die(signal.SIGKILL if os.name != "nt" else signal.SIGTERM))),
    bad("leaks", _leaks),
    bad("good_after_leak", lambda t, x: x * 2),
    bad("lies", _lies),
    bad("nan_at_one_size", _nan_when_large, more={"large_cpu": (normal(101, 4),)}, by_row=True),
    bad("wrong_gradient", _wrong_gradient, grad=True),
    bad("warns", _warns),
    bad("raises", _only_in_float64(lambda: _raise(RuntimeError("miopenStatusUnknownError")))),
    bad("out_of_memory", _only_in_float64(lambda: _raise(RuntimeError("HIP out of memory. Tried to allocate 2 GiB.")))),
    bad("not_in_this_build", _only_in_float64(lambda: _raise(NotImplementedError('"x" not implemented for \'Half\'')))),
    bad("library_at_fault", _slow_library, library="dnn"),
    bad("needs_a_card", lambda t, x: x, needs="accelerator"),
    bad("good_at_the_end", lambda t, x: x * 2),
]  # fmt: skip


# ---- kernels that are wrong in one place or in one dtype only


def _wrong(change, only=lambda t, x: True):
    """Twice the input, and wrong where `only` says so; right in the float64 reference."""

    def run(t, x):
        made = x * 2
        return change(made) if x.dtype != t.float64 and only(t, x) else made

    return run


def _last_lost(made):
    made = made.clone()
    made.view(-1)[-1] = 0
    return made


def _one_infinite(made):
    made = made.clone()
    made[10, 0] = float("inf")  # of 1000 rows 48 are compared, every 21st
    return made


def _in_place(t, x):
    return x.mul_(2)


def _crash_twice(t, x):
    return x if x.dtype == t.float64 else read_a_null_pointer()


def _ends_later(t, x):
    """Answer, and end the process a moment later, as a driver's own thread does."""
    import threading

    if x.dtype != t.float64:
        threading.Timer(0.2, die, [signal.SIGSEGV]).start()
    return x * 2


def _planted(name, run, size=(37, 41), **more):
    return Check(name, "planted", run, inputs=(normal(*size),), timed=False, **more)


PLANTED = [
    _planted("right", _wrong(lambda made: made)),
    _planted("right_with_many_roundings", _wrong(lambda made: made), steps=8),
    _planted("tail_lost", _wrong(_last_lost)),
    _planted("over_1024", _wrong(_last_lost, lambda t, x: x.numel() > 1024)),
    _planted("over_1024_but_small", _wrong(_last_lost, lambda t, x: x.numel() > 1024), size=(8, 8)),
    _planted("bfloat16_only", _wrong(_last_lost, lambda t, x: x.dtype == t.bfloat16)),
    _planted("a_tenth_in_bfloat16", _wrong(lambda made: made * 1.1, lambda t, x: x.dtype == t.bfloat16), steps=8),
    _planted("last_row_when_large", _wrong(_last_lost, lambda t, x: x.shape[0] > 100),
             more={"large_cpu": (normal(1000, 4),)}, by_row=True),
    _planted("infinite_between_the_rows_compared", _wrong(_one_infinite, lambda t, x: x.shape[0] > 100),
             more={"large_cpu": (normal(1000, 4),)}, by_row=True),
    _planted("in_place", _in_place),
    _planted("crashes_either_way", _crash_twice, library="dnn"),
]  # fmt: skip


def _shouts(t, x):
    """Write what looks like an answer to stdout, past Python."""
    os.write(1, b'{"id": 1, "result": {"inputs": []}}\n')
    return x * 2


FIRST_AND_LAST = [
    bad("crashes_first", _only_in_float64(read_a_null_pointer)),
    bad("good_between", lambda t, x: x * 2),
    bad("shouts", _shouts),
    bad("poisons", _only_in_float64(lambda: _raise(RuntimeError("HIP error: an illegal memory access was met")))),
    bad("good_after_poison", lambda t, x: x * 2),
    bad("hangs_last", _only_in_float64(hang), limit_s=2),
]
LATE = [
    bad("ends_later", _ends_later, timed=False),
    bad("good_after_a_late_end", lambda t, x: x * 2, timed=False),
    bad("ends_later_and_last", _ends_later, timed=False),
]
MENDABLE = [bad("mended_later", _mended), bad("always_good", lambda t, x: x * 2)]


# ---- stand-ins as a case describes them: the device they claim is told apart by a tensor that says so


def _placed(t, values, dtype, device):
    class Placed(t.Tensor):
        @property
        def device(self):
            return t.device("meta" if device == "cpu" else "cpu")  # "cpu" in the case: anywhere but on the subject

    return t.tensor([float(v) for v in values], dtype=getattr(t, dtype)).as_subclass(Placed)


def _behave(item):
    what = item["behaviour"]

    def run(t, x):
        if x.dtype == t.float64:
            return x
        if what["kind"] == "exit":
            signalled = -what["returncode_linux"] if os.name != "nt" else None
            die(signalled) if signalled else leave(what["returncode_windows"])
        if what["kind"] == "sleep":
            hang(what["seconds"])
        if what["kind"] == "raise":
            kind = {"RuntimeError": RuntimeError, "torch.OutOfMemoryError": t.OutOfMemoryError}[what["type"]]
            raise kind(what["message"])
        if what.get("warning"):
            warnings.warn(what["warning"], UserWarning, stacklevel=1)
        return _placed(t, what["value"], what.get("dtype", "float32"), what["device"])

    return run


def described(path):
    """Return a catalogue from a file of stand-in operators."""
    items = json.loads(Path(path).read_text(encoding="utf-8"))["items"]
    made = []
    for item in items:
        dtype = item["behaviour"].get("dtype", "float32")
        wanted = item["reference"] or [0.0]
        reference = lambda t, *_, wanted=wanted: t.tensor(wanted, dtype=t.float64)  # noqa: E731
        made.append(
            Check(item["id"], "described", _behave(item), inputs=(normal(2),), dtypes=(dtype,), reference=reference,
                  limit_s=item["limit_s"], timed=item["behaviour"]["kind"] == "return")
        )  # fmt: skip
    return made


def __getattr__(name):
    if name == "DESCRIBED":
        return described(os.environ["ROCMLAB_TEST_ITEMS"])
    raise AttributeError(name)
