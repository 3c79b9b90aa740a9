"""Operator, library, kernel, evidence: what the logs of notebook 08 tell, on one table, and what they cannot tell.

Pure functions from the records `library_runs` (one row a child) and `library_calls` (tidy rows) to tables; the findings
are in `backend_judges`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rocmlab import gemms, words

Row = dict[str, Any]

# Parts of a decode step that are no matrix product; no library in KINDS logs them, so the table says so by name.
NOT_PRODUCTS = (
    "embedding",
    "RMSNorm",
    "KV cache append",
    "SiLU times up",
    "residual add",
    "argmax",
)
ROTARY = "rotary embedding"
# torch's own names of its back ends, and what the table says.
CHOICES = {
    "Native": "native", "Cudnn": "cuDNN", "Miopen": "MIOpen", "MATH": "math", "FLASH_ATTENTION": "flash",
    "EFFICIENT_ATTENTION": "memory-efficient", "CUDNN_ATTENTION": "cuDNN",
}  # fmt: skip
SHORT = {"scaled_dot_product_attention": "attention"}  # for a column that must fit a phone
CHOOSERS = ("scaled_dot_product_attention", "batch_norm")  # operators for which torch can be asked
# What each further part consists of, and which kinds of logged call are evidence for it.
PARTS = {
    "attention": (("scaled_dot_product_attention", ("attention", "plan")),),
    "resnet_block": (("convolution", ("convolution", "convolution_gemm", "plan")), ("batch_norm", ("batch_norm",))),
    "batch_norm": (("batch_norm", ("batch_norm",)),),
}


def work(runs: Iterable[Row]) -> Row | None:
    """Return what the children worked on (dtypes, steps, config), from the first that could say; None if none could."""
    return next((run["work"] for run in runs if run.get("work") and run["work"].get("config")), None)


def once(calls: list[Row]) -> list[Row]:
    """Drop products that stand in two libraries' logs because one handed them to the other; the outer one is kept.

    cuBLAS calls cuBLASLt under inner names; rocBLAS names its hipBLASLt back end. The inner kernel is the outer row's.
    """
    inner = {_shape(c): c for c in calls if c["kind"] == "gemm" and c["routine"].startswith("inner")}
    handed = {_shape(c) for c in calls if c["kind"] == "backend" and c["routine"] == "hipblaslt"}
    outer = {_shape(c) for c in calls if c["library"] in ("cuBLAS", "rocBLAS") and c["kind"] == "gemm"}
    backends = {_shape(c): c["kernel"] for c in calls if c["kind"] == "backend"}
    kept = []
    for call in calls:
        shape = _shape(call)
        if call["kind"] == "gemm" and shape in outer:
            if call in inner.values() or (call["library"] == "hipBLASLt" and shape in handed):
                continue
            kernel = call["kernel"] or backends.get(shape, "") or inner.get(shape, {}).get("kernel", "")
            kept.append({**call, "kernel": kernel})
        else:
            kept.append(call)
    return kept


def _shape(call: Row) -> tuple[Any, ...]:
    return (call["phase"], call["m"], call["n"], call["k"])


def choice(done: Row, part: str, dtype: str) -> str | None:
    """Return in words which back end torch said it chooses for a part; None where it could not be asked."""
    name = (done.get("choices") or {}).get(f"{part} {dtype}")
    return CHOICES.get(name, name) if name else None


def needed(done: Row) -> tuple[list[gemms.Needed], str]:
    """Return the products of one token and where that list comes from: the config, else the model's linear modules."""
    try:
        return gemms.required(done["config"]), "config"
    except ValueError:
        found = [(key.split(" "), count) for key, count in done["linears"].items()]
        return [gemms.Needed(name, int(m), int(k), count) for (name, m, k), count in found], "linear modules"


def reconciled(done: Row, calls: list[Row], dtype: str, phase: str = "decode") -> gemms.Reconciled:
    """Lay the logged products of one phase and dtype beside those that the model needs."""
    wanted, _ = needed(done)
    config = done["config"]
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rows = [c for c in once(calls) if c["phase"] == f"{phase} {dtype}"]
    steps, n = (done["steps"], 1) if phase == "decode" else (1, done["prompt_tokens"])
    return gemms.reconcile(rows, wanted, steps=steps, n=n, head_dim=head_dim)


def table(runs: list[Row], calls: list[Row]) -> list[Row]:
    """Return one row an operator: part, dtype, operator, calls_a_step, library (null: no log mentions it), kernel
    (null: that library's log names none), as evidence file, first line and calls logged, and `chosen`, torch's word."""
    done = work(runs)
    if done is None:
        return []
    rows: list[Row] = []
    for dtype in done["dtypes"]:
        rows += _decode(done, calls, dtype)
        for part, operators in PARTS.items():
            for operator, kinds in operators:
                chosen = choice(done, part, dtype) if operator in CHOOSERS else None
                rows += [{**row, "chosen": chosen} for row in _part(part, operator, kinds, dtype, calls)]
    return rows


def grouped(rows: list[Row]) -> list[Row]:
    """Return the table for readers: operators of one part that one library served with one kernel share a row."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        product = " x " in row["operator"]
        key = (row["part"], row["dtype"], row["library"], row["kernel"], product, row["operator"] == "attention")
        groups.setdefault(key, []).append(row)
    several = len({row["dtype"] for row in rows}) > 1
    found = []
    for (part, dtype, library, kernel, *_), members in groups.items():
        counts = [m["calls_a_step"] for m in members if m["calls_a_step"]]
        bare = [m["operator"].split(" (")[0] for m in members]
        names = ", ".join(SHORT.get(name, name) for name in bare)
        found.append(
            {
                "operators": words.both(f"part_{part}", operators=names, dtype=f" {dtype}" if several else ""),
                "calls_a_step": sum(counts) or None,
                "library": library,
                "kernel": kernel,
                "evidence": evidence(members),
            }
        )
    return found


def evidence(members: list[Row]) -> dict[str, str]:
    """Return in both languages the first line that proves a row, and how many calls were logged; else torch's choice,
    where it could be asked."""
    lines = [m["line"] for m in members if m["line"]]
    if lines:
        calls = sum(m["calls_logged"] for m in members if m["calls_logged"])
        log = members[0]["file"].split("/")[-1].removesuffix(".log").partition("-")[2]
        return words.both("evidence_line", log=log or members[0]["file"], line=min(lines), calls=calls)
    chosen = members[0]["chosen"]
    return words.both("untold_chosen", chosen=chosen) if chosen else words.both("untold")


def _row(part: str, dtype: str, operator: str, count: int | None, found: list[Row], shown: int = 0) -> Row:
    libraries = ", ".join(dict.fromkeys(c["library"] for c in found)) or None
    kernels = "; ".join(dict.fromkeys(c["kernel"] for c in found if c.get("kernel"))) or None
    return {
        "part": part,
        "dtype": dtype,
        "operator": operator,
        "calls_a_step": count,
        "library": libraries,
        "kernel": kernels,
        "file": found[0]["file"] if found else None,
        "line": found[0]["line"] if found else None,
        "calls_logged": shown if found else None,
        "chosen": None,
    }


def _decode(done: Row, calls: list[Row], dtype: str) -> list[Row]:
    result = reconciled(done, calls, dtype)
    in_phase = [c for c in once(calls) if c["phase"] == f"decode {dtype}" and c["kind"] == "gemm"]
    rows = []
    for one in result.projections:
        found = [c for c in in_phase if (c["m"], c["n"], c["k"]) == (one["m"], 1, one["k"])] if one["seen"] else []
        name = f"{one['name']} ({one['m']} x {one['k']})"
        rows.append(_row("decode", dtype, name, one["count"], found, one["seen"]))
    shapes = {(one["m"], one["k"]) for one in result.projections}
    rest = [c for c in in_phase if (c["m"], c["k"]) not in shapes]
    angles = [c for c in rest if c["k"] == 1] if result.rotary else []
    inside = [c for c in rest if c not in angles] if result.attention else []
    fused = [c for c in calls if c["phase"] == f"decode {dtype}" and c["kind"] in ("attention", "plan")]
    for name, found in (("attention", [*inside, *(c for c in fused if c["stage"] == "run")]), (ROTARY, angles)):
        logged = sum(c["calls"] for c in found)
        rows.append(_row("decode", dtype, name, logged // result.steps or None, found, logged))
    return rows + [_row("decode", dtype, name, None, []) for name in NOT_PRODUCTS]


def _part(part: str, operator: str, kinds: tuple[str, ...], dtype: str, calls: list[Row]) -> list[Row]:
    here = [c for c in once(calls) if c["phase"] == f"{part} {dtype}" and c["stage"] == "run"]
    found = [c for c in here if c["kind"] in kinds]
    solvers = [c for c in here if c["kind"] in ("solver", "kernel") and _serves(c["kernel"], operator)]
    found = [*found, *solvers]
    if not found and operator in ("convolution", "scaled_dot_product_attention"):
        found = [c for c in here if c["kind"] == "gemm"]
        operator += " (as matrix products)" if found else ""
    count = sum(c["calls"] for c in found if c["kind"] not in ("solver", "kernel")) or None
    return [_row(part, dtype, operator, count, found, sum(c["calls"] for c in found))]


def _serves(kernel: str, operator: str) -> bool:
    is_norm = kernel.startswith("Bn") or "atchNorm" in kernel
    return is_norm if operator == "batch_norm" else not is_norm and operator == "convolution"


def counts(runs: list[Row], calls: list[Row]) -> list[Row]:
    """Return one row a dtype and phase: products needed and seen a step, by library; prefill apart from decode."""
    done = work(runs)
    if done is None:
        return []
    rows = []
    for dtype in done["dtypes"]:
        for phase in ("decode", "prefill"):
            result = reconciled(done, calls, dtype, phase)
            by_library: dict[str, int] = {}
            for one in result.projections:
                if one["library"]:
                    by_library[one["library"]] = by_library.get(one["library"], 0) + one["seen"] // result.steps
            rows.append(
                {
                    "dtype": dtype,
                    "phase": phase,
                    "gemms_required": result.required,
                    "gemms_seen": result.seen,
                    "by_library": ", ".join(f"{name} {count}" for name, count in by_library.items()) or None,
                    "attention_gemms": result.attention // result.steps if result.attention else None,
                    "unexplained": len(result.unexplained),
                }
            )
    return rows


def launches(runs: list[Row]) -> list[Row]:
    """Return HIP launches, copies and waits a decode step, from the runtime log (grade C of the ledger); [] without."""
    rows = []
    for run in runs:
        for dtype, found in (run.get("per_step") or {}).items():
            rows.append({"dtype": dtype, "grade": "C", **found})
    return rows
