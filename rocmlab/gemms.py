"""Which matrix products does a model need for one token, and which of them does a log show?

`required(config)` counts them from a transformers config; `reconcile(...)` lays a log's rows beside them, decode rows
apart from prefill rows; `judge(...)` says whether they agree. What is left over, and what is missing, is listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from rocmlab.findings import Finding, finding

# Model types whose blocks are q, k, v, o and gate, up, down without merging: Llama and those that copied its layout.
LLAMA_LIKE = {
    "llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "olmo", "olmo2", "smollm3", "granite", "stablelm",
    "cohere",
    "ministral", "helium", "seed_oss",
}  # fmt: skip


@dataclass(frozen=True)
class Needed:
    """One projection of the model: m output features, k inputs, and how many layers have it."""

    name: str
    m: int
    k: int
    count: int


def required(config: Mapping[str, Any]) -> list[Needed]:
    """Return the products that one token needs, from a transformers config as a dict.

    Raises ValueError for a model type whose layout is not known here: it is never guessed.
    """
    kind = config.get("model_type")
    if kind not in LLAMA_LIKE:
        raise ValueError(f"the layout of model type {kind!r} is not known here; known: {', '.join(sorted(LLAMA_LIKE))}")
    hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    kv_heads = config.get("num_key_value_heads") or heads
    inner = config["intermediate_size"]
    return [
        Needed("q_proj", heads * head_dim, hidden, layers),
        Needed("k_proj", kv_heads * head_dim, hidden, layers),
        Needed("v_proj", kv_heads * head_dim, hidden, layers),
        Needed("o_proj", hidden, heads * head_dim, layers),
        Needed("gate_proj", inner, hidden, layers),
        Needed("up_proj", inner, hidden, layers),
        Needed("down_proj", hidden, inner, layers),
        Needed("lm_head", config["vocab_size"], hidden, 1),
    ]


def total(needed: Iterable[Needed]) -> int:
    """Return how many products one token needs: 197 for 28 layers of seven and a head."""
    return sum(one.count for one in needed)


class Reconciled(NamedTuple):
    """What a log shows beside what the model needs, for one kind of step. `required` and `seen` are per step.

    Calls logged apart from the projections: `attention`, products with the head size as one side; `rotary`, half the
    head size times the positions (k = 1), the angles of the rotary embedding; `unread`, those of unknown shape.
    """

    required: int
    seen: int
    steps: int
    projections: list[dict[str, Any]]
    attention: int
    unexplained: list[dict[str, Any]]
    unread: int
    rotary: int = 0


def reconcile(
    rows: Iterable[Mapping[str, Any]], needed: list[Needed], *, steps: int, n: int, head_dim: int
) -> Reconciled:
    """Lay GEMM rows (m, n, k, calls, library, line) with this n beside `steps` repeats of the needed ones.

    A shape that several projections share (k and v, gate and up) is divided in their order. Raises ValueError
    for no steps.
    """
    if steps < 1:
        raise ValueError("reconciling needs at least one step")
    gemms = [row for row in rows if row["kind"] == "gemm" and row.get("stage", "run") == "run"]
    pool: dict[tuple[int, int], list[dict[str, Any]]] = {}
    unexplained, attention, rotary, unread = [], 0, 0, 0
    shapes = {(one.m, one.k) for one in needed}
    for row in gemms:
        m, k = row["m"], row["k"]
        if m is None:
            unread += row["calls"]
        elif row["n"] == n and (m, k) in shapes:
            pool.setdefault((m, k), []).append({**row, "left": row["calls"]})
        elif k == 1 and {m, row["n"]} == {head_dim // 2, n}:
            rotary += row["calls"]
        elif head_dim in (m, k):
            attention += row["calls"]
        elif row["n"] == n:
            unexplained.append(dict(row))
    projections = [_projection(one, pool.get((one.m, one.k), []), steps) for one in needed]
    for row in (row for found in pool.values() for row in found):
        if row["left"]:
            unexplained.append({**row, "calls": row["left"]})
    seen = sum(one["seen"] for one in projections)
    return Reconciled(total(needed), round(seen / steps), steps, projections, attention, unexplained, unread, rotary)


def _projection(one: Needed, found: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    """Take what one projection needs from the rows of its shape; the rest stays for the next of the same shape."""
    wanted, libraries, kernels, line = one.count * steps, Counter[str](), [], None
    for row in found:
        taken = min(wanted, row["left"])
        if taken:
            row["left"] -= taken
            wanted -= taken
            libraries[row["library"]] += taken
            kernels.append(row.get("kernel") or "")
            line = line or row.get("line")
    return {
        **asdict(one),
        "seen": one.count * steps - wanted,
        "steps": steps,
        "library": ", ".join(libraries) or None,
        "kernel": ", ".join(dict.fromkeys(k for k in kernels if k)) or None,
        "line": line,
    }


def judge(found: Reconciled, *, dtype: str = "") -> list[Finding]:
    """Return one answer about the projections, and a warning where rows are left that no projection explains."""
    missing = [p["name"] for p in found.projections if p["seen"] < p["count"] * found.steps]
    libraries = Counter[str]()
    for one in found.projections:
        for name in (one["library"] or "").split(", "):
            if name:
                libraries[name] += one["seen"] // found.steps
    numbers = {"gemms_required": found.required, "gemms_seen": found.seen, "gemms_unexplained": len(found.unexplained)}
    words = {"libraries": ", ".join(f"{k} {v}" for k, v in libraries.items()) or "-", "dtype": dtype or "?"}
    if not missing:
        judged = [finding("GEMMS_AS_REQUIRED", numbers=numbers, **words)]
    else:
        variant = "none" if not found.seen else None
        judged = [finding("GEMMS_NOT_LOGGED", numbers=numbers, variant=variant, missing=", ".join(missing), **words)]
    if found.unexplained:
        shapes = "; ".join(f"m={r['m']} n={r['n']} k={r['k']} x{r['calls']}" for r in found.unexplained[:6])
        judged.append(finding("GEMMS_UNEXPLAINED", numbers=numbers, shapes=shapes, **words))
    return judged
