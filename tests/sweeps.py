"""Made-up records of notebooks 04 and 05: what a machine of known speed would have written."""

from typing import Any

HEAD: dict[str, Any] = {
    "device": "cuda:0",
    "arm": "gpu",
    "dtype": "float16",
    "model": "made-up",
    "model_spec": "random:made-up",
    "weight_bytes": 1_000_000_000,
    "kv_bytes_a_position": 100_000,
    "load": {"load_1min": 0.1, "cores": 8},
}


def text(length: int, tpot_ms: float, **changes: Any) -> dict[str, Any]:
    """One text of 11 tokens after a prefill of length / 10 ms."""
    first = length / 1e4 + 0.001
    new = changes.pop("new_tokens", 11)
    stamps = [first + step * tpot_ms / 1000 for step in range(new)]
    record = HEAD | {
        "schema": "rocmlab-generation-1",
        "kind": "hand",
        "length": length,
        "visit": "steady",
        "process": 0,
        "block": 0,
        "batch": 1,
        "prompt_tokens": length,
        "max_new_tokens": 11,
        "new_tokens": new,
        "t_start_s": 0.0,
        "t_prefill_s": length / 1e4,
        "t_first_token_s": stamps[0],
        "t_end_s": stamps[-1],
        "token_stamps_s": stamps,
    }
    return record | changes


def lengths(
    a_ms: float = 20.0, b_us: float = 1.0, contexts: tuple[int, ...] = (100, 500, 2000), first_extra_ms: float = 0.0,
    jitter: tuple[float, ...] = (0.99, 1.0, 1.01, 1.0, 0.995, 1.005),
) -> list[dict[str, Any]]:  # fmt: skip
    """A whole study: each length twice at first, then steady blocks; TPOT = a + b x (length + half of the text)."""
    rows = [text(5, 3 * a_ms, visit="cold", block=None)]
    for length in contexts:
        usual = a_ms + b_us * (length + 5.5) / 1000
        rows.append(text(length, usual + first_extra_ms, visit="first", block=None))
        rows.append(text(length, usual, visit="second", block=None))
        rows += [text(length, usual * scale, block=block) for block, scale in enumerate(jitter)]
    rows.append(HEAD | {"kind": "conditions", "process": 0, "others_cpu_pct": 0.4})
    return rows


def ways(hand_ms: float, generate_ms: float, blocks: int = 6) -> list[dict[str, Any]]:
    """Texts by hand and by generate(), interleaved, with a drift that both share."""
    pairs = (("by_hand", hand_ms), ("generate", generate_ms))
    return [text(100, ms * (1 + block / 100), kind=kind, block=block) for block in range(blocks) for kind, ms in pairs]


def stamps(case: str, stamped_ms: float, unstamped_ms: float, queued_ms: float, device: str = "cuda:0") -> list[dict]:
    """Blocks of ten steps with and without stamps; `queued_ms` until the first step was queued."""
    return [
        HEAD | {
            "device": device, "case": case, "block": block, "stamped": stamped, "steps": 10, "injected_ms": 0.0,
            "ms": 10 * ms * (1 + 0.001 * block), "first_queued_ms": queued_ms,
        }
        for block in range(6)
        for stamped, ms in ((True, stamped_ms), (False, unstamped_ms))
    ]  # fmt: skip


def batches(
    steps_ms: dict[int, float | str], context: int = 100, first_extra_ms: float = 0.0, **changes: Any
) -> list[dict[str, Any]]:
    """Passes over batches: a time in ms, or the text of an error."""
    rows: list[dict[str, Any]] = []
    mark = HEAD | {"kind": "item", "context": context, "padded": False, "new_tokens_each": 10, "process": 0} | changes
    for batch, step in steps_ms.items():
        if isinstance(step, str):
            rows.append(mark | {"batch": batch, "error": step})
            continue
        for number in range(7):
            ms = step * (1 + 0.002 * number) if number else step + first_extra_ms
            timed = {"pass": number, "visit": "steady" if number else "first", "decode_step_ms": ms, "prefill_ms": 50.0}
            rows.append(mark | {"batch": batch, "real_prompt_tokens": batch * context} | timed)
    return rows


def bandwidth(rates: dict[int, tuple[float, float]], device: str = "cuda:0") -> list[dict[str, Any]]:
    """Rows of the ceiling: {MiB: (copy, read) in GB/s}, eight samples each."""
    rows = []
    for mib, pair in rates.items():
        for way, rate in zip(("copy", "read"), pair, strict=True):
            size = mib << 20
            samples = [size / rate / 1e6 * (1 + 0.001 * n) for n in range(-4, 4)]
            rows.append({"device": device, "way": way, "bytes": size, "passes": 1, "samples_ms": samples})
    return rows
