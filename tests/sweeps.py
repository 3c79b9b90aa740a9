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
    steps_ms: dict[int, float | str], context: int = 100, first_extra_ms: float = 0.0, alone_ms: float | None = None,
    slow: dict[int, float] | None = None, **changes: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Passes over batches: a time in ms, or the text of an error; every batch takes turns with one text alone.

    `alone_ms` is that text's step where batch 1 is not among them. `slow` multiplies all that was measured while a
    batch had its turn, as a machine with two states does.
    """
    rows: list[dict[str, Any]] = []
    mark = HEAD | {"kind": "item", "context": context, "padded": False, "new_tokens_each": 10, "process": 0} | changes
    alone = steps_ms.get(1, alone_ms)
    for batch, step in steps_ms.items():
        if isinstance(step, str):
            rows.append(mark | {"batch": batch, "error": step})
            continue
        anchor = mark | {
            "kind": "anchor",
            "batch": 1,
            "padded": False,
            "beside": batch,
            "beside_padded": mark["padded"],
        }
        for number in range(7):
            scale = (slow or {}).get(batch, 1.0) * (1 + 0.002 * number)
            timed = {"pass": number, "visit": "steady" if number else "first", "prefill_ms": 50.0}
            ms = scale * step if number else step + first_extra_ms
            rows.append(mark | {"batch": batch, "real_prompt_tokens": batch * context} | timed | {"decode_step_ms": ms})
            if number and batch > 1 and alone:
                rows.append(anchor | timed | {"decode_step_ms": scale * alone})
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
