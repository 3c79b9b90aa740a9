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
