"""What does a library log or an error message mean? Pure functions from one `Log` to findings, worst first.

Every judge returns None when its signs are not in the log; the log of a healthy run gives notes only.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rocmlab import libraries, message_judges
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.libraries import Log
from rocmlab.message_judges import SHOWN, count, first, listed

# Kernel sources of MIOpen, and the operator that a user knows them by.
OPERATORS = (
    ("batchnorm", "batch_norm"), ("dropout", "dropout"), ("neuron", "activation (also inside RNN, GRU, LSTM)"),
    ("softmax", "softmax"), ("pool", "pooling"), ("lrn", "local_response_norm"), ("reduc", "reduction"),
    ("layernorm", "layer_norm"), ("groupnorm", "group_norm"), ("rnn", "RNN"), ("conv", "convolution"),
    ("tensor", "tensor operation"),
)  # fmt: skip


def judge(log: Log) -> list[Finding]:
    """Return the findings of one log, worst first."""
    found = [one for look in JUDGES if (one := look(log)) is not None]
    return worst_first(found + _served(log))


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
        sources=listed(list(by_source)),
        operators=listed([operator_of(s) for s in by_source]),
        header=listed(headers),
        arch=listed(archs),
    )


def _no_blas_kernels(log: Log) -> Finding | None:
    signs = log.named("no_tensile")
    if not signs and not log.named("tensile_failed"):
        return None
    files: list[str] = [s.words["arch"] for s in log.named("tensile_file").values()]
    numbers: dict[str, object] = {"library_archs": len(files) or None}
    if not files:
        numbers["library_archs_reason"] = "the log does not list the library's files"
    return finding(
        "NO_BLAS_KERNELS",
        numbers=numbers,
        variant=None if files else "no_list",
        arch=listed([s.words["arch"] for s in signs.values()]) or "?",
        archs=", ".join(files),
    )


def _non_ascii(log: Log) -> Finding | None:
    signs = log.named("non_ascii")
    return finding("NON_ASCII_PATH", path=first(signs).words["path"]) if signs else None


def _naive(log: Log) -> Finding | None:
    signs = log.named("naive")
    if not signs:
        return None
    heuristics = log.named("heuristics")
    variant = "heuristics" if heuristics else "no_database" if log.named("kernel_db") else None
    return finding(
        "NAIVE_CONVOLUTION",
        numbers={"naive_convolutions": count(signs)},
        variant=variant,
        solvers=listed(list(signs)),
        file=first(heuristics).words["file"] if heuristics else "",
    )


def _fallback(log: Log) -> Finding | None:
    signs = log.named("fallback_kernel")
    if not signs:
        return None
    return finding(
        "FALLBACK_KERNEL",
        numbers={"fallback_lines": count(signs)},
        variant="log",
        kernels=listed([s.words["kernel"] for s in signs.values()]),
    )


def _hip_calls(log: Log) -> Finding | None:
    signs = log.named("hip_call_failed")
    if not signs or log.named("gpu_fault"):
        return None
    texts = [f"{s.words['call']}: {s.words['error']}" for s in signs.values()]
    return finding("LIBRARY_ERROR", library="HIP", numbers={"library_errors": count(signs)}, text=listed(texts))


def _library_error(log: Log) -> Finding | None:
    """Errors that no other judge explains; a status that follows a compile failure is only its consequence."""
    signs = log.named("library_error")
    explained = log.named("compile_failed") or log.named("no_tensile") or log.named("non_ascii")
    if not signs and not explained:
        signs = log.named("status")
    if not signs:
        return None
    said = first(signs).words
    library = said.get("library") or said["text"].split("_")[0].split("Status")[0]
    return finding("LIBRARY_ERROR", numbers={"library_errors": count(signs)}, library=library, text=said["text"])


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
    numbers = {"workspace_warnings": count(signs), "without_workspace": count(signs) - little}
    numbers |= {"too_little_workspace": little}
    numbers |= {re.sub(r"\W+", "_", name.lower()): count for name, count in solvers.items()}
    return finding("WORKSPACE_WARNINGS", numbers=numbers, solvers=listed([f"{k} {v}" for k, v in solvers.items()]))


def _kernel_db(log: Log) -> Finding | None:
    signs = log.named("kernel_db")
    if not signs:
        return None
    archs = [s.words["arch"] for s in signs.values() if s.words["arch"]]
    return finding("KERNEL_DB_MISSING", arch=listed(archs) or log.arch or "?")


def _hipblaslt(log: Log) -> Finding | None:
    if log.named("hipblaslt_unsupported"):
        return finding("HIPBLASLT_NOT_USED")
    missing = log.named("hipblaslt_missing")
    if missing:
        return finding(
            "HIPBLASLT_NOT_USED", variant="library", what=listed([s.words["what"] for s in missing.values()])
        )
    return None


def _find_mode(log: Log) -> Finding | None:
    return finding("FIND_MODE_DYNAMIC") if log.named("find_mode") else None


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
    return finding("SOLVERS_LOGGED", solvers=listed([f"{c.kernel} ({n})" for c, n in solvers]))


def _cudnn(log: Log) -> Finding | None:
    """Name the engines that cuDNN ran, by operation, and the plans that it made for them."""
    ran: dict[str, dict[str, int]] = {}
    for call, times in log.of_kind("attention", "convolution", "batch_norm", "plan", "pooling", "rnn"):
        if call.library == "cuDNN":
            kernels = ran.setdefault(call.kind, {})
            kernels[call.kernel or "?"] = kernels.get(call.kernel or "?", 0) + times
    if not ran:
        return None
    shown = [f"{kind}: {listed([f'{k} x{n}' for k, n in kernels.items()])}" for kind, kernels in ran.items()]
    made = libraries.total(log.of_kind("plan_made", stage="search"))
    return finding("CUDNN_RAN", numbers={"cudnn_plans_made": made}, operations="; ".join(shown))


def _benched(log: Log) -> Finding | None:
    results = [(c, t) for (c, _), t in log.calls.items() if c.kind == "bench_result" and c.m and c.n and c.k]
    if not results:
        return None
    rates = {}
    for call, tally in results:
        m, n, k = call.m or 0, call.n or 0, call.k or 0
        ms = (tally.time_ms or 0) / tally.calls
        if ms > 0:
            rates[f"{m}x{n}x{k}"] = 2 * m * n * k * call.batch / ms / 1e9
    text = "; ".join(f"{shape}: {rate:.3g} TFLOP/s" for shape, rate in list(rates.items())[:SHOWN])
    return finding("GEMMS_BENCHED", numbers={"bench_results": len(results)}, library=results[0][0].library, rates=text)


def _served(log: Log) -> list[Finding]:
    """Say for each library how many GEMMs it logged, by n."""
    gemms = log.of_kind("gemm")
    found = []
    for library in dict.fromkeys(call.library for call, _ in gemms):
        own = [(c, n) for c, n in gemms if c.library == library]
        types = ["/".join(name for name in (c.dtype or "?", c.compute) if name) for c, _ in own]
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
                types=listed(types),
            )
        )
    return found


JUDGES: tuple[Callable[[Log], Finding | None], ...] = (
    _compile_failed, _non_ascii, _no_blas_kernels, *message_judges.JUDGES[:-2], _naive, _fallback,
    *message_judges.JUDGES[-2:], _library_error, _hip_calls, _damaged, _workspace, _kernel_db, _hipblaslt, _find_mode,
    _miopen, _solvers, _cudnn, _benched, _runtime, _tuned,
)  # fmt: skip
