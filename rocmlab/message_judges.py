"""What does an error message mean? Judges of the signs that torch, HIP, HSA, the driver and Windows leave in a text.

Pure functions from one `Log` to a finding, or None when the log does not hold such a message.
"""

from __future__ import annotations

from collections.abc import Callable

from rocmlab.findings import Finding, finding
from rocmlab.libraries import Log, Sign

SHOWN = 6  # names listed in a sentence; the numbers hold the full count


def listed(names: list[str]) -> str:
    """Return the first names, each once, and how many more there are."""
    shown = list(dict.fromkeys(names))
    return ", ".join(shown[:SHOWN]) + (f", +{len(shown) - SHOWN}" if len(shown) > SHOWN else "")


def first(signs: dict[str, Sign]) -> Sign:
    """Return the sign that came first."""
    return min(signs.values(), key=lambda s: s.line)


def count(signs: dict[str, Sign]) -> int:
    """Return how often these signs came."""
    return sum(s.count for s in signs.values())


def _kernels_missing(log: Log) -> Finding | None:
    signs = log.named("no_code_object")
    if not signs:
        return None
    archs = listed([s.words["arch"] for s in signs.values() if s.words["arch"]]) or log.arch
    cuda = first(signs).words["backend"] == "CUDA"
    variant = "message_cuda" if cuda else "message" if archs else "message_no_target"
    return finding("KERNELS_MISSING", variant=variant, arch=archs)


def _out_of_memory(log: Log) -> Finding | None:
    signs = log.named("out_of_memory")
    if not signs:
        return None
    told = min(signs.values(), key=lambda s: (s.words["asked_gib"] is None, s.line))
    numbers = {k: v for k, v in told.words.items() if k.endswith("_gib")}
    for key in [k for k, v in numbers.items() if v is None]:
        numbers[f"{key}_reason"] = "not in the message"
    asked, free, unused = (numbers[k] for k in ("asked_gib", "free_gib", "reserved_unused_gib"))
    cuda = told.words["backend"] == "CUDA"
    variant: str | None
    if asked is None:
        variant = "no_sizes"
    elif free is None or unused is None:
        variant = "parts_unknown"
    elif free + unused < asked:
        variant = "cuda" if cuda else None
    else:
        variant = "fragmented_cuda" if cuda else "fragmented"
    return finding("OUT_OF_MEMORY", numbers=numbers, variant=variant)


def _gpu_fault(log: Log) -> Finding | None:
    signs = log.named("gpu_fault")
    if log.named("hsa_init"):  # a runtime that never started ran out of resources in no queue
        signs = {key: sign for key, sign in signs.items() if sign.words["kind"] != "resources"}
    if not signs:
        return None
    words = first(signs).words
    variant = words["kind"] or ("cuda" if words["backend"] == "CUDA" else None)
    return finding("GPU_FAULT", numbers={"gpu_faults": count(signs)}, variant=variant, text=words["text"])


def _gpu_hang(log: Log) -> Finding | None:
    signs = log.named("gpu_hang")
    if not signs:
        return None
    return finding("GPU_HANG", numbers={"driver_lines": count(signs)}, text=listed(list(signs)))


def _hsa_init(log: Log) -> Finding | None:
    signs = log.named("hsa_init")
    return finding("HSA_INIT_FAILED", text=first(signs).words["text"]) if signs else None


def _driver_mismatch(log: Log) -> Finding | None:
    modules = log.named("crash_module")
    if not modules or not log.named("access_violation"):
        return None
    return finding("DRIVER_WHEEL_MISMATCH", module=first(modules).words["module"])


def _not_implemented(log: Log) -> Finding | None:
    signs = log.named("not_implemented")
    if not signs:
        return None
    pairs = [f"{s.words['operator']} ({s.words['dtype']})" for s in signs.values()]
    return finding("OPERATOR_NOT_IMPLEMENTED", operators=listed(pairs))


def _sdpa(log: Log) -> Finding | None:
    signs = log.named("sdpa")
    if not signs:
        return None
    reasons: dict[str, set[str]] = {}
    for sign in signs.values():
        reasons.setdefault(sign.words["which"], set()).add(sign.words["why"])
    which = listed(list(reasons))
    if not {"flash", "memory-efficient"} <= reasons.keys():
        rest = ", ".join(name for name in ("flash", "memory-efficient") if name not in reasons)
        return finding("SDPA_PATH_MISSING", which=which, rest=rest)
    flags = set().union(*reasons.values())
    variant = "flag" if "flag" in flags else "target" if "no_target" in flags else None
    return finding("SDPA_MATH_ONLY", variant=variant, which=which)


def _numeric(log: Log) -> Finding | None:
    signs = {k: s for k, s in log.named("numeric").items() if (s.words["rel_err"] or 0) > 0.1}
    if not signs:
        return None
    worst = max(signs.values(), key=lambda s: s.words["rel_err"])
    numbers = {"max_abs_err": worst.words["abs_err"], "max_rel_err": worst.words["rel_err"]}
    return finding("WRONG_VALUE", numbers=numbers, variant="log", what=worst.words["what"])


def _allocator(log: Log) -> Finding | None:
    return finding("ALLOCATOR_OPTION_IGNORED") if log.named("expandable_segments") else None


JUDGES: tuple[Callable[[Log], Finding | None], ...] = (
    _kernels_missing, _out_of_memory, _gpu_hang, _gpu_fault, _hsa_init, _driver_mismatch, _numeric, _not_implemented,
    _sdpa, _allocator,
)  # fmt: skip
