"""What can the profiler see on this build, and what does one decode step look like through it?

`probe(run, device)` asks in a child process; `study(run, model, device, dtype, ...)` measures in another: the same
decode steps clean, between device events, and under torch.profiler, each an arm of its own. Rows go to the table
"profiler", the trace to `traces/`.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import inspect
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocmlab import isolate, lanes, models, profiler, results, sensors, timing, trace_judge
from rocmlab.prompts import PROMPTS, prompt_ids
from rocmlab.readers import traces
from rocmlab.results import Run
from rocmlab.timeline import Timeline

TABLE = "profiler"
TRACE = "07_decode.json.gz"
PROBE_LIMIT_S = 120
TOP = 10
# What a trace says about the machine it came from, in its header.
PERSONAL = re.compile(r'"(host_name|trace_id|traceName)"\s*:\s*"(?:[^"\\]|\\.)*"')
STRINGS = re.compile(r'(?:"(?:[^"\\]|\\.)*"\s*:\s*)?"(?:[^"\\]|\\.)*"')


# ---- what can it see


def probe(run: Run, device: str) -> dict[str, Any]:
    """Profile one small product in a child process; record and return what the profiler recorded of it."""
    outcome = isolate.call("rocmlab.tracing:look", {"device": device}, limit_s=PROBE_LIMIT_S)
    row = {
        "what": "probe",
        "device": device,
        "status": outcome.status,
        "words": outcome.words,
        **(outcome.result or {}),
    }
    run.append(TABLE, row)
    return row


def look(device: str) -> dict[str, Any]:
    """Return what this build says that it can record, and what it did record."""
    import torch

    value = torch.randn(256, 256, device=device)
    (value @ value).sum().item()
    with profile(device) as prof:
        (value @ value).sum().item()
        timing.synchronise(device)
    with tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "probe.json")
        prof.export_chrome_trace(str(path))
        trace = traces.load(path)
    seen = {
        "device_events": traces.DEVICE,
        "runtime_calls": (traces.CALL,),
        "operators": (traces.OP,),
    }
    return {
        "torch": torch.__version__,
        "kineto": bool(torch.autograd.kineto_available()),
        "activities": sorted(str(a).rsplit(".", 1)[-1] for a in torch.profiler.supported_activities()),
        "form": trace.form,
        "linked": bool(Timeline(trace).linked.any()),
        **{name: len(trace.of(*cats)) for name, cats in seen.items()},
    }


def profile(device: str) -> Any:
    """Return a torch.profiler context without shapes and stacks, which would slow the host most."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device != "cpu" else [])
    return profile(activities=activities, record_shapes=False, with_stack=False, profile_memory=False)


# ---- one decode step


def study(run: Run, model: str, device: str, dtype: str, *, limit_s: float, **plan: Any) -> dict[str, Any]:
    """Run `measure` in a process of its own; record and return how it ended. `plan`: prompt, steps, repeats."""
    given = run.where() | {"model": model}
    outcome = isolate.call(
        "rocmlab.tracing:measure", given | {"device": device, "dtype": dtype} | plan, limit_s=limit_s
    )
    return isolate.record(run, TABLE, "process", outcome)


def measure(
    run_dir: str,
    notebook: str,
    attempt: str,
    model: str,
    device: str,
    dtype: str,
    prompt: str,
    steps: int,
    repeats: int,
) -> dict[str, Any]:
    """Measure decode steps clean, with device events, then under the profiler; append rows and write the trace.

    Every arm visits the same lengths, and all of them were visited before: some builds pay tens of milliseconds at the
    first visit of a length.
    """
    run = Run(Path(run_dir), notebook, attempt)
    loaded = models.load(model, device, dtype)
    ids = prompt_ids(loaded, PROMPTS[prompt])
    header: dict[str, Any] = {
        "model": loaded.name,
        "model_spec": loaded.spec,
        "model_hash": loaded.model_hash,
        "device": device,
    }
    header |= {"dtype": dtype, "batch": 1, "prompt_id": prompt, "prompt_tokens": len(ids), "steps": steps}
    header |= {"clock": "perf_counter", "evidence_grade": "D", "load": timing.load()}
    for _ in range(2):
        decode(loaded, device, ids, steps)
    for repeat in range(repeats):
        with timing.OtherWork() as others:
            times = decode(loaded, device, ids, steps)
        row = {"what": "steps", "arm": "clean", "repeat": repeat, "others_cpu_pct": others.pct}
        row["sensor"] = sensors.reading(device)  # no clock runs here
        run.append(TABLE, header | row | {"prefill_ms": times[0], "itl_ms": times[1:]})
    if device != "cpu":
        events = decode_between_events(loaded, device, ids, steps)
        run.append(TABLE, header | {"what": "steps", "arm": "events", "evidence_grade": "B", "itl_ms": events})
    _profiled(run, header, loaded, device, ids, steps)
    return {"load": header["load"]}


@contextlib.contextmanager
def unmarked(_: str) -> Any:
    """Stand for record_function where nothing is to be recorded."""
    yield


def decode(
    loaded: models.Loaded, device: str, ids: list[int], steps: int, mark: Callable[[str], Any] = unmarked
) -> list[float]:
    """Prefill a prompt and decode `steps` tokens greedily; return milliseconds: prefill first, then each step.

    A step ends when its token's number is on the host. `mark(name)` gives the context that each part runs in.
    """
    import torch

    tokens = torch.tensor([ids], device=device)
    # transformers renamed past_key_values to cache in 5.x; both have to work.
    name = "cache" if "cache" in inspect.signature(loaded.model.forward).parameters else "past_key_values"
    cache, times = None, []
    timing.synchronise(device)
    with torch.inference_mode():
        for number in range(steps + 1):
            began = time.perf_counter()
            with mark(f"decode_step#{number - 1}" if number else "prefill"):
                out = loaded.model(input_ids=tokens, use_cache=True, **{name: cache})
                cache, tokens = out[name], out.logits[:, -1:].argmax(dim=-1)
                tokens.item()
            times.append(round(1000 * (time.perf_counter() - began), 4))
    return times


def decode_between_events(loaded: models.Loaded, device: str, ids: list[int], steps: int) -> list[float]:
    """Return milliseconds of each decode step as the device's own events give them."""
    import torch

    found: list[float] = []

    @contextlib.contextmanager
    def between(_: str) -> Any:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        end.synchronize()
        found.append(round(begin.elapsed_time(end), 4))

    decode(loaded, device, ids, steps, between)
    return found[1:]


def _profiled(run: Run, header: dict[str, Any], loaded: models.Loaded, device: str, ids: list[int], steps: int) -> None:
    from torch.profiler import record_function

    with profile(device) as prof:
        times = decode(loaded, device, ids, steps, record_function)
        timing.synchronise(device)
    row = {"what": "steps", "arm": "profiled", "repeat": 0, "prefill_ms": times[0], "itl_ms": times[1:]}
    run.append(TABLE, header | row)
    path = keep(prof, run.path / "traces" / TRACE)
    trace = traces.load(path)
    run.append(TABLE, header | {"what": "operators", "evidence_grade": "A", "rows": operators(trace)})
    found = summary(trace)
    run.append(TABLE, header | {"what": "trace", "evidence_grade": "A", "file": f"traces/{TRACE}", **found})
    given = trace_judge.evidence(found["metrics"])
    run.append(TABLE, header | {"what": "evidence", "evidence_grade": "A", **given})


def keep(prof: Any, path: Path) -> Path:
    """Write the profiler's trace, packed, without the names of user, host and folders."""
    with tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True) as folder:
        raw = Path(folder, "trace.json")
        prof.export_chrome_trace(str(raw))
        text = raw.read_text(encoding="utf-8", errors="replace")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(_redacted(text).encode(), compresslevel=6, mtime=0))
    return path


def _redacted(text: str) -> str:
    """Return a trace's text without names of user, host and folders: string by string, each with its key, because a
    trace says the same hundred thousand times and the patterns over the whole of it would take seconds."""
    known = functools.cache(results.redact)
    return STRINGS.sub(lambda match: known(match.group()), PERSONAL.sub(r'"\1": ""', text))


def operators(trace: traces.Trace) -> list[dict[str, Any]]:
    """Return the ten operators with most host time of their own, prefill included: name, calls, host microseconds.

    An operator's own time is its time less that of the operators it calls, on the same thread.
    """
    rows = trace.of(traces.OP)
    own = trace.end[rows] - trace.start[rows]
    open_: dict[int, list[int]] = {}
    for at, row in enumerate(rows):
        callers = open_.setdefault(int(trace.thread[row]), [])
        while callers and trace.end[rows[callers[-1]]] <= trace.start[row]:
            callers.pop()
        if callers:
            own[callers[-1]] -= trace.end[row] - trace.start[row]
        callers.append(at)
    count, us = Counter[str](), Counter[str]()
    for at, row in enumerate(rows):
        count[trace.called(row)] += 1
        us[trace.called(row)] += int(own[at])
    found = [name for name, _ in us.most_common() if name.startswith("aten::")][:TOP]
    return [{"name": name, "n": count[name], "self_cpu_us": round(us[name] / traces.TICKS, 3)} for name in found]


def summary(trace: traces.Trace) -> dict[str, Any]:
    """Return the metrics of a trace and the lanes of its middle decode step."""
    return {"metrics": profiler.measure(trace), "lanes": lanes.lanes(trace)}
