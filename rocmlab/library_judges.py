"""What does a library log or an error message mean? Pure functions from one `Log` to findings, worst first.

Every judge returns None when its signs are not in the log; the log of a healthy run gives notes only.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rocmlab import libraries
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.libraries import Log, Sign

# Kernel sources of MIOpen, and the operator that a user knows them by.
OPERATORS = (
    ("batchnorm", "batch_norm"), ("dropout", "dropout"), ("neuron", "activation (also inside RNN, GRU, LSTM)"),
    ("softmax", "softmax"), ("pool", "pooling"), ("lrn", "local_response_norm"), ("reduc", "reduction"),
    ("layernorm", "layer_norm"), ("groupnorm", "group_norm"), ("rnn", "RNN"), ("conv", "convolution"),
    ("tensor", "tensor operation"),
)  # fmt: skip
SHOWN = 6  # names listed in a sentence; the numbers hold the full count


def judge(log: Log) -> list[Finding]:
    """Return the findings of one log, worst first."""
    found = [one for look in JUDGES if (one := look(log)) is not None]
    return worst_first(found + _served(log))


def _words(names: list[str]) -> str:
    shown = list(dict.fromkeys(names))
    return ", ".join(shown[:SHOWN]) + (f", +{len(shown) - SHOWN}" if len(shown) > SHOWN else "")


def _first(signs: dict[str, Sign]) -> Sign:
    return min(signs.values(), key=lambda s: s.line)


def _count(signs: dict[str, Sign]) -> int:
    return sum(s.count for s in signs.values())


def operator_of(source: str) -> str:
    """Return the operator whose kernel a source file holds; the file's own name when it is none of the known ones."""
    return next((name for part, name in OPERATORS if part in source.lower()), source)


def _compile_failed(log: Log) -> Finding | None:
    signs = log.named("compile_failed")
    if not signs:
        return None
    # One failure is reported in up to three forms; the most frequent one of a source counts.
    by_source: dict[str, int] = {}
    for sign in signs.values():
        by_source[sign.words["source"]] = max(by_source.get(sign.words["source"], 0), sign.count)
    headers = [s.words["header"] for s in log.named("header").values()]
    archs = [s.words["arch"] for s in log.named("compiled_for").values()] or [log.arch or "?"]
    return finding(
        "RUNTIME_COMPILE_FAILED",
        numbers={"compile_errors": sum(by_source.values())},
        variant=None if headers else "no_header",
        sources=_words(list(by_source)),
        operators=_words([operator_of(s) for s in by_source]),
        header=_words(headers),
        arch=_words(archs),
    )


def _no_blas_kernels(log: Log) -> Finding | None:
    signs = log.named("no_tensile")
    if not signs and not log.named("tensile_failed"):
        return None
    files = [s.words["arch"] for s in log.named("tensile_file").values()]
    numbers: dict[str, object] = {"library_archs": len(files) or None}
    if not files:
        numbers["library_archs_reason"] = "the log does not list the library's files"
    return finding(
        "NO_BLAS_KERNELS",
        numbers=numbers,
        variant=None if files else "no_list",
        arch=_words([s.words["arch"] for s in signs.values()]) or "?",
        archs=", ".join(files),
    )


def _kernels_missing(log: Log) -> Finding | None:
    signs = log.named("no_code_object")
    if not signs:
        return None
    archs = [s.words["arch"] for s in signs.values() if s.words["arch"]]
    return finding("KERNELS_MISSING", variant="message", arch=_words(archs) or log.arch or "?")


def _out_of_memory(log: Log) -> Finding | None:
    signs = log.named("out_of_memory")
    if not signs:
        return None
    numbers = {k: v for k, v in _first(signs).words.items() if k.endswith("_gib")}
    for key in [k for k, v in numbers.items() if v is None]:
        numbers[f"{key}_reason"] = "not in the message"
    asked, free, unused = (numbers[k] for k in ("asked_gib", "free_gib", "reserved_unused_gib"))
    if asked is None or free is None or unused is None:
        variant = "parts_unknown"
    else:
        variant = None if free + unused < asked else "fragmented"
    return finding("OUT_OF_MEMORY", numbers=numbers, variant=variant)


def _gpu_fault(log: Log) -> Finding | None:
    signs = log.named("gpu_fault")
    if not signs:
        return None
    return finding("GPU_FAULT", numbers={"gpu_faults": _count(signs)}, text=_first(signs).words["text"])


def _gpu_hang(log: Log) -> Finding | None:
    signs = log.named("gpu_hang")
    if not signs:
        return None
    return finding("GPU_HANG", numbers={"driver_lines": _count(signs)}, text=_words(list(signs)))


def _hsa_init(log: Log) -> Finding | None:
    signs = log.named("hsa_init")
    return finding("HSA_INIT_FAILED", text=_first(signs).words["text"]) if signs else None


def _driver_mismatch(log: Log) -> Finding | None:
    modules = log.named("crash_module")
    if not modules or not log.named("access_violation"):
        return None
    return finding("DRIVER_WHEEL_MISMATCH", module=_first(modules).words["module"])


def _non_ascii(log: Log) -> Finding | None:
    signs = log.named("non_ascii")
    return finding("NON_ASCII_PATH", path=_first(signs).words["path"]) if signs else None


def _not_implemented(log: Log) -> Finding | None:
    signs = log.named("not_implemented")
    if not signs:
        return None
    pairs = [f"{s.words['operator']} ({s.words['dtype']})" for s in signs.values()]
    return finding("OPERATOR_NOT_IMPLEMENTED", operators=_words(pairs))


def _naive(log: Log) -> Finding | None:
    signs = log.named("naive")
    if not signs:
        return None
    heuristics = log.named("heuristics")
    variant = "heuristics" if heuristics else "no_database" if log.named("kernel_db") else None
    return finding(
        "NAIVE_CONVOLUTION",
        numbers={"naive_convolutions": _count(signs)},
        variant=variant,
        solvers=_words(list(signs)),
        file=_first(heuristics).words["file"] if heuristics else "",
    )


def _fallback(log: Log) -> Finding | None:
    signs = log.named("fallback_kernel")
    if not signs:
        return None
    return finding(
        "FALLBACK_KERNEL",
        numbers={"fallback_lines": _count(signs)},
        variant="log",
        kernels=_words([s.words["kernel"] for s in signs.values()]),
    )


def _sdpa(log: Log) -> Finding | None:
    signs = log.named("sdpa")
    if not signs:
        return None
    reasons: dict[str, set[str]] = {}
    for sign in signs.values():
        reasons.setdefault(sign.words["which"], set()).add(sign.words["why"])
    which = _words(list(reasons))
    if not {"flash", "memory-efficient"} <= reasons.keys():
        rest = ", ".join(name for name in ("flash", "memory-efficient") if name not in reasons)
        return finding("SDPA_PATH_MISSING", which=which, rest=rest)
    flags = set().union(*reasons.values())
    variant = "flag" if "flag" in flags else "target" if "no_target" in flags else None
    return finding("SDPA_MATH_ONLY", variant=variant, which=which)


def _hip_calls(log: Log) -> Finding | None:
    signs = log.named("hip_call_failed")
    if not signs or log.named("gpu_fault"):
        return None
    texts = [f"{s.words['call']}: {s.words['error']}" for s in signs.values()]
    return finding("LIBRARY_ERROR", library="HIP", numbers={"library_errors": _count(signs)}, text=_words(texts))


def _library_error(log: Log) -> Finding | None:
    """Errors that no other judge explains; a status that follows a compile failure is only its consequence."""
    signs = log.named("library_error")
    explained = log.named("compile_failed") or log.named("no_tensile") or log.named("non_ascii")
    if not signs and not explained:
        signs = log.named("status")
    if not signs:
        return None
    first = _first(signs)
    library = first.words.get("library") or first.words["text"].split("_")[0].split("Status")[0]
    return finding(
        "LIBRARY_ERROR", numbers={"library_errors": _count(signs)}, library=library, text=first.words["text"]
    )


def _numeric(log: Log) -> Finding | None:
    signs = {k: s for k, s in log.named("numeric").items() if (s.words["rel_err"] or 0) > 0.1}
    if not signs:
        return None
    worst = max(signs.values(), key=lambda s: s.words["rel_err"])
    numbers = {"max_abs_err": worst.words["abs_err"], "max_rel_err": worst.words["rel_err"]}
    return finding("WRONG_VALUE", numbers=numbers, variant="log", what=worst.words["what"])


def _damaged(log: Log) -> Finding | None:
    if not log.damaged:
        return None
    return finding("DAMAGED_LINES", numbers={"damaged_lines": log.damaged}, variant="log", line=log.damaged_line)


def _workspace(log: Log) -> Finding | None:
    signs = log.named("workspace")
    if not signs:
        return None
    solvers: dict[str, int] = {}
    for sign in signs.values():
        solvers[sign.words["solver"]] = solvers.get(sign.words["solver"], 0) + sign.count
    little = sum(s.count for s in signs.values() if s.words["some"])
    numbers = {"workspace_warnings": _count(signs), "without_workspace": _count(signs) - little}
    numbers |= {"too_little_workspace": little}
    numbers |= {re.sub(r"\W+", "_", name.lower()): count for name, count in solvers.items()}
    return finding("WORKSPACE_WARNINGS", numbers=numbers, solvers=_words([f"{k} {v}" for k, v in solvers.items()]))


def _kernel_db(log: Log) -> Finding | None:
    signs = log.named("kernel_db")
    if not signs:
        return None
    archs = [s.words["arch"] for s in signs.values() if s.words["arch"]]
    return finding("KERNEL_DB_MISSING", arch=_words(archs) or log.arch or "?")


def _hipblaslt(log: Log) -> Finding | None:
    if log.named("hipblaslt_unsupported"):
        return finding("HIPBLASLT_NOT_USED")
    missing = log.named("hipblaslt_missing")
    if missing:
        return finding(
            "HIPBLASLT_NOT_USED", variant="library", what=_words([s.words["what"] for s in missing.values()])
        )
    return None


def _find_mode(log: Log) -> Finding | None:
    return finding("FIND_MODE_DYNAMIC") if log.named("find_mode") else None


def _allocator(log: Log) -> Finding | None:
    return finding("ALLOCATOR_OPTION_IGNORED") if log.named("expandable_segments") else None


def _runtime(log: Log) -> Finding | None:
    numbers = libraries.numbers(log)
    if "hip_calls" not in numbers:
        return None
    kept = ("hip_calls", "launches", "copies", "read_backs", "synchronisations", "hip_errors")
    return finding("RUNTIME_CALLS", numbers={key: numbers[key] for key in kept})


def _miopen(log: Log) -> Finding | None:
    numbers = libraries.numbers(log)
    if "convolutions" not in numbers:
        return None
    kept = ("convolutions", "convolution_shapes", "searches", "batch_norms", "rnns")
    return finding("CONVOLUTIONS_LOGGED", numbers={key: numbers.get(key, 0) for key in kept})


def _tuned(log: Log) -> Finding | None:
    numbers = {k: v for k, v in libraries.numbers(log).items() if k.startswith("tuned_")}
    return finding("GEMMS_TUNED", numbers=numbers) if numbers else None


def _solvers(log: Log) -> Finding | None:
    solvers = log.of_kind("solver", "convolution_gemm")
    if not solvers:
        return None
    return finding("SOLVERS_LOGGED", solvers=_words([f"{c.kernel} ({n})" for c, n in solvers]))


def _benched(log: Log) -> Finding | None:
    results = [(c, t) for (c, _), t in log.calls.items() if c.kind == "bench_result" and c.m and c.n and c.k]
    if not results:
        return None
    rates = {}
    for call, tally in results:
        ms = (tally.time_ms or 0) / tally.calls
        if ms > 0:
            rates[f"{call.m}x{call.n}x{call.k}"] = 2 * call.m * call.n * call.k * call.batch / ms / 1e9
    text = "; ".join(f"{shape}: {rate:.3g} TFLOP/s" for shape, rate in list(rates.items())[:SHOWN])
    return finding("GEMMS_BENCHED", numbers={"bench_results": len(results)}, library=results[0][0].library, rates=text)


def _served(log: Log) -> list[Finding]:
    """Say for each library how many GEMMs it logged, by n."""
    gemms = log.of_kind("gemm")
    found = []
    for library in dict.fromkeys(call.library for call, _ in gemms):
        own = [(c, n) for c, n in gemms if c.library == library]
        types = [f"{c.dtype or '?'}/{c.compute or '?'}" for c, _ in own]
        spread = "; ".join(f"n = {n}: {count}" for n, count in list(libraries.by_n(own).items())[: libraries.MANAGED_N])
        numbers = {f"{library.lower()}_calls": libraries.total(own)}
        found.append(
            finding(
                "GEMMS_LOGGED",
                numbers=numbers,
                library=library,
                calls=libraries.total(own),
                shapes=libraries.shapes(own),
                spread=spread or "?",
                types=_words(types),
            )
        )
    return found


JUDGES: tuple[Callable[[Log], Finding | None], ...] = (
    _compile_failed, _non_ascii, _no_blas_kernels, _kernels_missing, _out_of_memory, _gpu_hang, _gpu_fault, _hsa_init,
    _driver_mismatch, _numeric, _not_implemented, _naive, _fallback, _sdpa, _library_error, _hip_calls, _damaged,
    _workspace, _kernel_db, _hipblaslt, _find_mode, _allocator, _miopen, _solvers, _benched, _runtime, _tuned,
)  # fmt: skip
