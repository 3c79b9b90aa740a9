"""Records of attention whose right reading is known."""

HEAD = {"device": "cuda:0", "dtype": "float16", "model_spec": "random:qwen3-0.6b", "layers": 28, "heads": 16}
HEAD |= {
    "kv_heads": 8,
    "head_dim": 128,
    "switch": None,
    "device_name": "a card",
    "evidence_grade": "B",
    "method": "graph",
}
FUSED_OP = {"flash": "_scaled_dot_product_flash_attention", "cudnn": "_scaled_dot_product_cudnn_attention"}
JITTER = (1.0, 0.99, 1.01, 1.0, 1.005, 0.995)


def case(backend, length, ms, phase="decode", path=None, host=None, **changes):
    """One row: `ms` of device time a call (None: refused), the host queues a call in `host` or half of that."""
    row = HEAD | {"what": "case", "backend": backend, "phase": phase, "length": length, "gqa": True, "mask": "none"}
    row |= {"usual": True, "queries": 1 if phase == "decode" else length, "over_tolerance": 0.1, "not_finite": 0}
    if ms is None:
        return row | {"status": "REFUSED", "error": "RuntimeError: No available kernel. Aborting execution."} | changes
    names = [FUSED_OP[path]] if path in FUSED_OP else ["bmm", "_softmax", "bmm"]
    row |= {"status": "OK", "error": None, "path": names, "ops": 1 if path in FUSED_OP else 12, "calls_a_pass": 28}
    row |= {"samples_ms": [ms * j for j in JITTER], "host_samples_ms": [(host or ms / 2) * j for j in JITTER]}
    row |= {"wall_samples_ms": [ms + 0.01] * 6, "first_call_ms": [0.1] * 4, "first_pass_ms": [1.0, 1.01, 1.02, 1.0]}
    return row | {"second_pass_ms": [1.0, 1.0, 1.01, 1.01], "cold_ms": 5.0} | changes


def study(math_ms=1.0, flash_ms=0.2, default="flash", lengths=(64, 1024), default_ms=None, **changes):
    """A whole study: math, flash (None: refused) and the default at every length, in both phases."""
    rows = []
    for phase in ("decode", "prefill"):
        for length in lengths:
            taken = {"flash": flash_ms, "math": math_ms}[default]
            rows += [
                case("default", length, default_ms or taken, phase, default, **changes),
                case("math", length, math_ms, phase, **changes),
                case("flash", length, flash_ms, phase, "flash", **changes),
                case("efficient", length, None, phase, **changes),
            ]
    return rows


def charged(backends, extra=40.0, **changes):
    """Rows of decode in which some back ends pay `extra` ms at the first pass over a new length."""
    rows = study(**changes)
    rows += [case("cudnn", length, 0.2, path="cudnn") for length in (64, 1024)]
    rows += [case("default_without_cudnn", length, 0.25, path="flash") for length in (64, 1024)]
    for row in rows:
        if row["backend"] in backends and row["status"] == "OK":
            row["first_pass_ms"] = [ms + extra for ms in row["second_pass_ms"]]
    return rows
