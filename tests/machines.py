"""Machines of known faults: what the records of a whole run would hold on each, as clues and as a run folder.

`h200()` is the host-bound machine of methods section 1; the others are its opposites, one fault each.
"""

import dataclasses
from pathlib import Path
from typing import Any

import made
import steprows
import sweeps

from rocmlab import results
from rocmlab.clues import Clues

GB = 10**9
WEIGHTS = 1_192_000_000
JITTER = steprows.JITTER


# ---- accounts by hand: what the ledger would say


def quantity(ms: float | None, wide: float = 0.01, **more: Any) -> dict[str, Any]:
    """A quantity with an interval of `wide` to each side."""
    ends = {"low": None, "high": None} if ms is None else {"low": ms * (1 - wide), "high": ms * (1 + wide)}
    return {"ms": ms, **ends, "n": 8, "grade": "D", "method": "", "valid": ms is not None, "reason": None, **more}


def part(name: str, ms: float | None, wide: float = 0.02, grade: str = "D") -> dict[str, Any]:
    """A row of a lane."""
    return {"name": name, **{key: quantity(ms, wide)[key] for key in ("ms", "low", "high")}, "grade": grade,
            "how": {"en": f"how {name}", "zh": f"方式 {name}"}}  # fmt: skip


HOST = ("launch", "python_dispatch", "sampling", "readback", "tokeniser", "wait")
DEVICE = ("memory_floor", "excess", "gaps", "idle")


def account(
    step: float, host: float, device: float, regime: str, *, where: str = "cuda:0", dtype: str = "float16",
    T_block: float | None = None, wide: float = 0.02, launches: int | None = 1620, residual: float = 0.0,
    **parts: float,
) -> dict[str, Any]:  # fmt: skip
    """An account of the ledger; `parts` are rows of the lanes by name, in ms."""
    quantities = {"T": quantity(step), "H": quantity(host), "D_graph": quantity(device)}
    if T_block is not None:
        quantities["T_block"] = quantity(T_block)
    return {
        "subject": {"device": where, "dtype": dtype, "model_spec": "random:qwen3-0.6b", "batch": 1, "context": 64},
        "quantities": quantities,
        "device_ms": quantity(device),
        "device_by": "graph",
        "regime": regime,
        "binding": {"host_bound": "host", "device_bound": "device"}.get(regime),
        "host_lane": [part(name, parts.get(name), wide) for name in HOST],
        "device_lane": [part(name, parts.get(name), wide) for name in DEVICE],
        "residual": part("residual", residual),
        "residual_pct": 100 * residual / step,
        "hidden_ms": device,
        "launches": {"count": launches, "grade": "A", "method": "trace"} if launches else None,
        "checks": [],
    }


def host_bound() -> dict[str, Any]:
    """The H200 of methods section 1: T 18.9, launching 11.3, Python 6.9, device 4.53 of which 0.30 is the floor."""
    return account(
        18.9, 18.3, 4.53, "host_bound", T_block=18.8, launch=11.3, python_dispatch=6.9, sampling=0.05, readback=0.1,
        tokeniser=0.0, wait=0.05, memory_floor=0.30, excess=3.08, gaps=1.15, idle=14.37, residual=0.5,
    )  # fmt: skip


def device_bound(step: float, floor: float, gaps: float = 0.0, **changes: Any) -> dict[str, Any]:
    """A card that works nearly all of the step; the host's 4 ms are hidden."""
    given: dict[str, Any] = {"launch": 2.0, "python_dispatch": 1.9, "sampling": 0.05, "readback": 0.1, "tokeniser": 0.0}
    given |= {"wait": step - 4.05, "memory_floor": floor, "excess": 0.98 * step - floor - gaps, "gaps": gaps}
    given |= {"idle": 0.02 * step, "T_block": 0.99 * step, **changes}
    return account(step, 4.0, 0.98 * step, "device_bound", **given)


def cpu_step(step: float, floor: float, python: float, work: float, **changes: Any) -> dict[str, Any]:
    """A CPU: Python and the operators' work follow one another."""
    given: dict[str, Any] = {"python_dispatch": python, "sampling": 0.03, "readback": 0.02, "wait": work}
    given |= {"memory_floor": floor, "excess": work - floor, "idle": python, "launches": None, **changes}
    return account(step, python, work, "device_bound", where="cpu", dtype="float32", **given)


# ---- records


def samples(ms: float, wide: float = 0.004) -> list[float]:
    return [ms * (1 + wide * (n - 2.5) / 2.5) for n in range(6)]


def operator(name: str, kind: str, ms: float, bytes_: float, count: int = 28, **more: Any) -> dict[str, Any]:
    """A line of 06."""
    row = {"kind": "operator", "operator": kind, "name": name, "phase": "decode", "count": count, "bytes": bytes_}
    row |= {"flops": bytes_, "samples_ms": samples(ms), "grade": "B", "evidence_grade": "B", "threads": 2}
    return row | {"value": {"outside": 0, "not_finite": 0, "over_tolerance": 0.2}} | more


def shapes(roof_gb_s: float, reached: float, small_us: float = 3.0, scale: float = 1.0, **more: Any) -> list[dict]:
    """All operators of a step: products at a share of the memory's speed, small ones at `small_us` each.

    `scale` makes the weights smaller or larger than those of the 0.6 B shape.
    """
    sizes = {"q_proj": 4.2e6, "k_proj": 2.1e6, "v_proj": 2.1e6, "o_proj": 4.2e6, "gate_proj": 6.3e6, "up_proj": 6.3e6}
    sizes = {name: size * scale for name, size in (sizes | {"down_proj": 6.3e6}).items()}
    head = 311_164_928.0 * scale
    rows = [operator(name, "linear", size / (reached * roof_gb_s) / 1e6, size, **more) for name, size in sizes.items()]
    rows.append(operator("lm_head", "linear", head / (reached * roof_gb_s) / 1e6, head, count=1, **more))
    for name, count in (("rms_norm", 113), ("rope", 28), ("kv_append", 28), ("residual_add", 56), ("gate", 28)):
        rows.append(operator(name, name, small_us / 1000, 8192.0, count=count, **more))
    rows.append(operator("softmax", "softmax", 5.0, 300_000.0, count=0, **more))  # timed, but no part of the step
    return [*rows, operator("sdpa", "sdpa", 2 * small_us / 1000, 3e5, **more)]


def rates(device: str = "cuda:0", **tflops: float) -> list[dict[str, Any]]:
    """Lines of gemm_rate: TFLOP/s by dtype for products of 4096."""
    flop = 2 * 4096**3
    return [{"dtype": dtype, "m": 4096, "n": 4096, "k": 4096, "flops": flop, "device": device,
             "samples_ms": samples(flop / rate / 1e9)} for dtype, rate in tflops.items()]  # fmt: skip


def attention(default_us: float, **others_us: float) -> list[dict[str, Any]]:
    """Cases of 09 at length 64: device time and host time of one call, the same in both."""
    rows = []
    for backend, us in {"default": default_us, **others_us}.items():
        row = {"what": "case", "phase": "decode", "usual": True, "length": 64, "backend": backend, "status": "OK"}
        row |= {"samples_ms": samples(us / 1000), "host_samples_ms": samples(us / 1000), "layers": 28, "heads": 16}
        row |= {"kv_heads": 8, "head_dim": 128, "dtype": "float16", "device": "cuda:0", "evidence_grade": "B"}
        row |= {"gqa": True, "mask": False, "first_pass_ms": [], "second_pass_ms": [], "calls_a_pass": 28}
        rows.append(row | {"path": ["bmm"] if backend == "default" else None, "cold_ms": None, "first_call_ms": []})
    return rows


def experiment(name: str, ratio: float, kind: str = "question", **more: Any) -> dict[str, Any]:
    """A line of 11 whose ratios scatter by half a percent."""
    row = {"name": name, "kind": kind, "status": "OK", "exists": True, "ratios": samples(ratio), "tokens_per_step": 1.0}
    return row | {"baseline_samples_ms": samples(18.9), "changed_samples_ms": samples(18.9 * ratio)} | more


def remedy(name: str, ratio: float, **more: Any) -> dict[str, Any]:
    given = {"compile_s": 0.0, "memory_gib": 0.0, "logits_error": 0.01, "logits_error_baseline": 0.01}
    return experiment(name, ratio, "remedy", **given | {"logits_max_abs": 20.0} | more)


def tried(op: str, dtype: str = "float16", **changes: Any) -> dict[str, Any]:
    """A line of 02: an operator that ran on the GPU and is right."""
    row = {"set": "curated", "op": op, "dtype": dtype, "family": "gemm", "status": "OK", "device_asked": "cuda:0"}
    row |= {"device": "cuda:0", "inputs": [{"inputs": "random", "not_finite": 0, "outside": 0}], "warnings": []}
    return row | {"gradient": None, "evidence": {}, "steady_ms": [0.01] * 6, "first_ms": 0.02} | changes


def operators(**changes: Any) -> list[dict[str, Any]]:
    return [tried(op, **changes) for op in ("linear_one_row", "rms_norm", "rope", "sdpa_decode", "embedding", "greedy")]


def lengths(
    step: float, first_extra: float = 0.0, device: str = "cuda:0", dtype: str = "float16", weights: float = WEIGHTS
):
    """Lines of 04 at a flat step, of a model of the real size."""
    rows = sweeps.lengths(a_ms=step, b_us=0.0, first_extra_ms=first_extra)
    arm = "cpu" if device == "cpu" else "gpu"
    return [row | {"device": device, "dtype": dtype, "arm": arm, "weight_bytes": weights, "threads": 2} for row in rows]


def reading(use: float | None = 98.0, **fields: Any) -> dict[str, Any]:
    """A sensor reading of a card at work: full clocks unless told otherwise; None is what the source does not give."""
    given = {"source": "amdgpu sysfs", "t_s": 0.0, "integrated": False, "use_percent": use, "limited_by": None}
    given |= {"sclk_mhz": 2600.0, "sclk_max_mhz": 2694.0, "mclk_mhz": 1000.0, "mclk_max_mhz": 1000.0, "temp_c": 64.0}
    given |= {"power_w": 120.0, "power_cap_w": 160.0, "host_mhz": 4600.0, "host_max_mhz": 4700.0}
    return given | {"memory_used_bytes": None, "memory_total_bytes": None, "spilled_bytes": None} | fields


def sensed(rows: list[dict[str, Any]], use: float | None = 98.0, **fields: Any) -> list[dict[str, Any]]:
    """Lines of 04 with a reading after each text; a field may be a function of the block (None: before the steady)."""
    found = []
    for row in rows:
        now = {key: one(row.get("block")) if callable(one) else one for key, one in fields.items()}
        found.append(row | {"sensor": reading(use, **now)} if row.get("kind") == "hand" else row)
    return found


def batches(step: float, growth: float = 1.0, first_extra: float = 0.0, device: str = "cuda:0", **more: Any):
    sizes = {batch: step * (1 + (growth - 1) * (batch - 1) / 31) for batch in (1, 2, 8, 32)}
    return sweeps.batches(sizes, first_extra_ms=first_extra, device=device, weight_bytes=WEIGHTS, **more)


def generation(gpu_step: float | None, cpu_step_: float, gpu_bytes: float = WEIGHTS, cpu_bytes: float = 2 * WEIGHTS):
    """Lines of 03: both arms at known steps; the CPU reads float32."""
    rows = made.study(1000 / gpu_step if gpu_step else None, 1000 / cpu_step_)
    size = {"gpu": gpu_bytes, "cpu": cpu_bytes}
    return [row | {"weight_bytes": size[row["arm"]], "model_spec": "random:qwen3-0.6b"} for row in rows]


def memory(gb_s: float, device: str = "cuda:0", spill_at_mib: int | None = None, spilled_gb_s: float = 14.0):
    """Lines of the ceiling up to 7 GiB; from `spill_at_mib` on at the speed of PCIe."""
    sizes = (16, 512, 1024, 2048, 4096, 6144, 7168)
    rate = {mib: (spilled_gb_s if spill_at_mib and mib >= spill_at_mib else gb_s) for mib in sizes}
    return sweeps.bandwidth({mib: (one * 0.97, one) for mib, one in rate.items()}, device)


def seen(launches: int = 1620, waits: int = 1) -> dict[str, Any]:
    """The line of 07 that the trace gives to others."""
    return {"what": "evidence", "device": "cuda:0", "dtype": "float16", "device_busy_ms_a_token": 3.38,
            "kernels_a_token": launches, "launches_a_token": launches, "sync_calls_a_token": waits}  # fmt: skip


def snapshot(platform: str = "Linux-6.8.0-test", **more: Any) -> dict[str, Any]:
    host = {"cpu": "Test CPU", "cores_logical": 16, "memory_bytes": 64 * 2**30}
    return {"schema": "rocmlab-probe-1", "platform": platform, "python": "3.12.7", "torch_version": "2.11.0",
            "host": host, "devices": [], "env": {}, "power": {"plugged": True}} | more  # fmt: skip


def clues(made_account: dict[str, Any] | None, rows: dict[str, list], *, ops: list | None = None, **more: Any) -> Clues:
    """Clues of a machine; device and dtype are the account's, else those of an accelerator."""
    subject = (made_account or {}).get("subject") or {}
    given = {"device": subject.get("device", "cuda:0"), "dtype": subject.get("dtype", "float16")}
    given |= {"snapshot": snapshot(), "operators": operators() if ops is None else ops}
    return Clues(**{**given, "account": made_account, "rows": rows, **more})


# ---- whole machines


def h200_rows() -> dict[str, list]:
    experiments = [
        experiment("width_x2", 1.02), experiment("float32", 1.02), experiment("batch_32", 1.08),
        remedy("bfloat16", 1.0), remedy("graph", 0.25, memory_gib=0.05), remedy("fused_rmsnorm", 0.72),
        remedy("lean_compiled", 0.1, compile_s=42.0, memory_gib=0.4),
        remedy("broken_one", 0.05, logits_error=9.0),
        {"name": "compiled_autotune", "kind": "remedy", "status": "TIMEOUT", "reason": "no answer", "ratios": []},
    ]  # fmt: skip
    return {
        "generation": generation(19.2, 38.6), "text": [made.text()], "lengths": lengths(18.9, first_extra=39.0),
        "batches": batches(18.9, 1.08, first_extra=38.0), "ceiling": memory(4000.0),
        "ceiling_cpu": memory(120.0, "cpu"), "profiler": [seen()], "shapes": shapes(4000.0, 0.45),
        "gemm_rate": rates(float32=52.0, float16=587.0, bfloat16=590.0), "experiments": experiments,
        "launch_cost": [{"what": "empty_kernel", "layer": "driver", "samples_us": [2.2] * 6}],
        "attention": attention(14.0, math=58.0, flash=15.0, cudnn=14.0),
        "stamps": sweeps.stamps("as_it_is", 18.91, 18.9, 186),
    }  # fmt: skip


def h200() -> Clues:
    """Host-bound: the GPU works 4.5 of 18.9 ms."""
    return clues(host_bound(), h200_rows())


def gfx1032(step: float = 4.73, reached: float = 0.97, **rows: list) -> Clues:
    """A small card near its roof: 90% of 280 GB/s, by a measured ceiling of 260."""
    found = {
        "generation": generation(step * 1.02, 58.0), "text": [made.text()], "lengths": lengths(step),
        "batches": batches(step, 1.2), "ceiling": memory(260.0), "ceiling_cpu": memory(50.0, "cpu"),
        "profiler": [seen(1100)], "shapes": shapes(260.0, reached, small_us=0.5),
        "gemm_rate": rates(float32=9.8, float16=19.0, bfloat16=4.1), "attention": attention(4.0, math=4.0, flash=4.1),
        "experiments": [experiment("width_x2", 2.4), remedy("graph", 0.97)],
    } | rows  # fmt: skip
    return clues(device_bound(step, WEIGHTS / 260.0 / 1e6), found)


def fallback() -> Clues:
    """Fallback GEMM kernels: flat over the batch and far below the roof, but not host-bound."""
    base = gfx1032(33.0, 0.15, batches=batches(33.0, 1.05))
    return clues(device_bound(33.0, WEIGHTS / 260.0 / 1e6), base.rows)


def spilled() -> Clues:
    """7 GB of weights on a card whose memory ends at 6 GiB: the rest lies behind PCIe."""
    weights = 6.9 * 2**30
    slow = (weights - 5 * 2**30) / 14.0 / 1e6
    step = slow + 5 * 2**30 / 260.0 / 1e6
    rows = gfx1032().rows | {"ceiling": memory(260.0, spill_at_mib=6144), "lengths": lengths(step, weights=weights),
                             "generation": generation(step, 300.0, weights, 2 * weights)}  # fmt: skip
    return clues(device_bound(step, weights / 260.0 / 1e6), rows)


def emulated() -> Clues:
    """bfloat16 on a card that only emulates it, bound by its products; float16 would take half the time."""
    rows = gfx1032(10.0, 0.5).rows | {"experiments": [remedy("float16", 0.48), experiment("float32", 0.9)]}
    return clues(device_bound(10.0, WEIGHTS / 260.0 / 1e6, dtype="bfloat16"), rows)


def slow_cpu() -> Clues:
    """Two cores whose one-row product uses one of them: a third of the read ceiling."""
    weights = 538_000_000
    rows = {
        "generation": [row | {"weight_bytes": weights} for row in made.study(None, 17.4)],
        "text": [made.text(device="cpu")],
        "lengths": lengths(57.0, device="cpu", dtype="float32", weights=weights), "ceiling": memory(62.0, "cpu")[:6],
        "shapes": shapes(62.0, 0.20, small_us=8.0, scale=0.45, device="cpu"),
        "batches": batches(57.0, 1.6, device="cpu"),
        "one_row": [{"name": "lm_head", "way": "as_it_is", "threads": n, "samples_ms": samples(9.9)} for n in (1, 2)],
        "gemm_rate": rates("cpu", float32=0.15, bfloat16=0.11),
        "experiments": [remedy("rows_padded", 0.55), remedy("bfloat16", 0.6)],
    }  # fmt: skip
    ops = operators(device="cpu", device_asked="cpu", dtype="float32")
    return clues(cpu_step(55.8, 8.7, 5.6, 47.0, residual=3.2), rows, ops=ops)


def cpu_at_roof() -> Clues:
    """The opposite: a CPU whose products read at the memory's speed."""
    rows = {"shapes": shapes(62.0, 0.97, small_us=0.4, scale=0.45, device="cpu"), "batches": []}
    rows |= {"lengths": lengths(10.2, device="cpu", dtype="float32", weights=538_000_000)}
    rows |= {"generation": [row | {"weight_bytes": 538_000_000} for row in made.study(None, 98.0)]}
    return clues(cpu_step(10.2, 8.7, 0.5, 9.5, residual=0.2), slow_cpu().rows | rows, ops=slow_cpu().operators)


def baseline(gpu_step: float, cpu_step_: float, gpu_gb_s: float = 260.0, cpu_gb_s: float = 50.0) -> Clues:
    """A card and a CPU at known steps and memories; weights 1.192 GB on the card, twice that on the CPU."""
    rows = {
        "generation": generation(gpu_step, cpu_step_),
        "ceiling": memory(gpu_gb_s),
        "ceiling_cpu": memory(cpu_gb_s, "cpu"),
    }
    return clues(None, rows)


# ---- as a run folder


def write(folder: Path, machine: Clues, step: list[dict[str, Any]], *, name: str, arch: str, card: str) -> Path:
    """Write a machine's records, with rows of the ledger's steps, where `rocmlab report` expects a run."""
    marks = {"run": folder.name, "attempt": "1", "method_version": 1}
    tables = {**machine.rows, "operators": machine.operators, "step": step, "snapshot": [machine.snapshot]}
    homes = {"generation": "03", "text": "03", "batches": "05", "operators": "02", "snapshot": "01", "profiler": "07",
             "shapes": "06", "gemm_rate": "06", "launch_cost": "06", "attention": "09"}  # fmt: skip
    homes |= dict.fromkeys(("experiments", "step"), "11")
    for table, rows in tables.items():
        path = folder / "records" / f"{table}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [results.line(marks | {"notebook": homes.get(table, "04")} | row) for row in rows]
        path.write_text("".join(lines), encoding="utf-8", newline="\n")
    subject = {"arch": arch, "device": machine.device, "name": card, "index": 0, "memory_bytes": 8 * 2**30}
    birth = {"schema": results.BIRTH_SCHEMA, "name": name, "method_version": 1, "started": "2026-12-01T09:00:00+00:00",
             "subject": subject, "asked": "auto", "snapshot": machine.snapshot, "notebooks": {}}  # fmt: skip
    results.write_json(folder / "run.json", birth)
    return folder


def head(device: str, dtype: str, weights: float) -> dict[str, Any]:
    return {"device": device, "dtype": dtype, "batch": 1, "context": 64, "threads": 2, "weight_bytes": weights,
            "kv_bytes_a_position": 114688, "model_spec": "random:qwen3-0.6b", "schema": "rocmlab-step-1"}  # fmt: skip


def steps_of_h200() -> list[dict[str, Any]]:
    rows = [*steprows.h200(), steprows.line("T_block", 18.85)]
    return [row | head("cuda:0", "float16", WEIGHTS) for row in rows]


def steps_of_gfx1032() -> list[dict[str, Any]]:
    """A card near its roof on Windows: no trace and no graph, only the prefilled queue and stamps (grade D)."""
    rows = [steprows.step("T", 3.6, 0.05, 1.15), steprows.step("H", 3.55, 0.05, 0.1)]
    rows += [steprows.step("H_cpu", 1.9, 0.02, 0.03), steprows.line("H_graph", 0.9), steprows.line("T_block", 4.75)]
    queue = {"layers": 28, "of_layers": 28, "spin_ms": 60.0, "enqueue_ms": [3.6] * 6}
    rows.append(steprows.line("D_queue", 4.7, **queue))
    return [row | head("cuda:0", "float16", WEIGHTS) for row in rows]


def steps_of_cpu() -> list[dict[str, Any]]:
    return [row | head("cpu", "float32", 538_000_000) for row in steprows.cpu()]


# ---- the same machine with other records


def changed(clues, *, account=None, **rows):
    """The same machine with other records; `account` are entries of the account to replace."""
    other = dict(clues.account or {}) | (account or {})
    return dataclasses.replace(clues, account=other if clues.account else None, rows=clues.rows | rows)


def without_ledger(clues):
    return dataclasses.replace(clues, account=None)


def mixed(clues):
    return changed(clues, account={"regime": "mixed", "binding": None})
