"""Makes small traces for the tests: events in the form that Kineto writes, times in microseconds."""

import json
from typing import Any

BASE_US = 4_100_000_000_000.0  # real traces count from far away, where a double steps by a nanosecond
HOST = {"pid": 70, "tid": 7}

Event = dict[str, Any]


def event(cat: str, name: str, begin: float, end: float, **more: Any) -> Event:
    args = more.pop("args", {})
    where = HOST if cat not in ("kernel", "gpu_memcpy", "gpu_memset") else {"pid": args.get("device", 1), "tid": 0}
    times = {"ts": BASE_US + begin, "dur": round(end - begin, 3)}
    return {"ph": "X", "cat": cat, "name": name, **where, **times, "args": args, **more}


def op(name: str, begin: float, end: float, **more: Any) -> Event:
    return event("cpu_op", name, begin, end, **more)


def mark(name: str, begin: float, end: float, **more: Any) -> Event:
    return event("user_annotation", name, begin, end, **more)


def call(name: str, begin: float, end: float, correlation: int = 0, **args: Any) -> Event:
    return event("cuda_runtime", name, begin, end, args={"correlation": correlation, **args})


def kernel(
    begin: float,
    end: float,
    correlation: int = 0,
    name: str = "void at::native::k<4>(int)",
    device: int = 1,
    **args: Any,
) -> Event:
    details = {"device": device, "stream": 0, "correlation": correlation, **args}
    return event("kernel", name, begin, end, args=details)


def copy(begin: float, end: float, correlation: int = 0, said: str = "DtoD", **args: Any) -> Event:
    details = {"device": 1, "stream": 0, "correlation": correlation, "kind": said, **args}
    return event("gpu_memcpy", f"Memcpy {said} (Device -> Device)", begin, end, args=details)


def launched(at: float, begin: float, end: float, correlation: int, **more: Any) -> list[Event]:
    """A launch call of 5 us and its kernel."""
    return [call("hipLaunchKernel", at, at + 5, correlation), kernel(begin, end, correlation, **more)]


def written(events: list[Event], **header: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, "displayTimeUnit": "ms", **header, "traceEvents": events}).encode()


def two_tokens() -> list[Event]:
    """Two decoded tokens of 120 us: a matrix product, a multiplication that is queued behind it, and a read-back."""
    events = []
    for number in (0, 1):
        t, c = 120.0 * number, 10 * number
        events += [
            mark(f"decode_token#{number}", t, t + 120),
            op("aten::mm", t + 8, t + 30),
            call("hipExtModuleLaunchKernel", t + 15, t + 21, c + 5),
            kernel(t + 33, t + 47, c + 5, name="Cijk_Alik_Bljk_HHS_BH_UserArgs_MT32x64x64_MI16x16x1"),
            op("aten::mul", t + 34, t + 52),
            call("hipLaunchKernel", t + 40, t + 44, c + 6),
            kernel(t + 58, t + 66, c + 6),
            op("aten::item", t + 70, t + 100),
            op("aten::_local_scalar_dense", t + 71, t + 98),
            call("hipMemcpyWithStream", t + 72, t + 96, c + 7, kind=2),
            copy(t + 84, t + 86, c + 7),
        ]
    return events


OPS = (  # operator around, operator inside, launch call, kernel, its microseconds
    ("aten::linear", "aten::mm", "hipExtModuleLaunchKernel", "Cijk_Alik_Bljk_HHS_BH_MT32x16x64_SN_1LDSB0_WS32", 9.0),
    ("aten::mul", "aten::mul", "hipLaunchKernel", "void at::native::elementwise_kernel<128, 4>(int, float*)", 4.0),
)
PERIOD_US, TOKEN_US = 40.0, 60.0  # of one operator; of what a token has besides operators


def decode(tokens: int = 2, operators: int = 120) -> list[Event]:
    """A decode loop as Kineto records it with stacks: Python frames, nested operators, noise calls, launches, flows.

    Each operator takes 40 us of the host and one kernel of 9 or 4 us that starts 8 us after its launch call returned;
    each token ends in a read-back of 25 us with a copy of 2 us.
    """
    events: list[Event] = []
    length = operators * PERIOD_US + TOKEN_US
    for token in range(tokens):
        begin = token * length
        events.append(mark(f"decode_step#{token}", begin, begin + length, args={"External id": 1 + token * 1000}))
        for number in range(operators):
            events += _operator(begin + 10 + number * PERIOD_US, 1 + token * 1000 + number, *OPS[number % 2])
        at, correlation = begin + 10 + operators * PERIOD_US, 900 + token * 1000
        events += [
            op("aten::item", at, at + 40, args={"External id": correlation}),
            call("hipMemcpyWithStream", at + 8, at + 33, correlation, kind=2),
            copy(at + 20, at + 22, correlation),
        ]
    return events


def _operator(
    at: float, correlation: int, outer: str, inner: str, launch: str, name: str, length: float
) -> list[Event]:
    external = {"External id": correlation, "Record function id": 0, "Ev Idx": correlation}
    shape = {"grid": [8, 1, 1], "block": [64, 1, 1], "shared memory": 0}
    flow = {"id": correlation, "pid": 70, "tid": 7, "cat": "ac2g", "name": "ac2g"}
    frame = f"model/layers.py({40 + correlation % 7}): forward"
    return [
        event("python_function", frame, at, at + 38, args={"Python id": correlation, "Python parent id": 0}),
        event("python_function", "<built-in method linear of type object at 0x7f00>", at + 2, at + 36, args=external),
        op(outer, at + 4, at + 34, args=external),
        op(inner, at + 8, at + 30, args=external),
        call("hipGetDevicePropertiesR0600", at + 12, at + 13, correlation + 500_000),
        call(launch, at + 16, at + 21, correlation, **shape),
        {"ph": "s", "ts": BASE_US + at + 16, **flow},
        kernel(at + 29, at + 29 + length, correlation, name=name, **shape),
        {"ph": "f", "ts": BASE_US + at + 29, **flow, "bp": "e"},
    ]
