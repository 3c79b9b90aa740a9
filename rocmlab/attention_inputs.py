"""What attention is tried on: the shapes of one model, tensors laid out as the model lays them out, and right values.

A `Case` is one shape; `make(case, head)` gives its tensors, `value(...)` compares a result with float64 on the CPU.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rocmlab import bundled, models, random_weights, tolerance

CPU_BYTES = 512 << 20  # of all caches together; on a card a quarter of what is free
PREFILL_SETS = 2
CHECKED_ROWS = 32  # of a prefill's queries: the first, the last and some between; a reference of all takes too long
STEPS = 8  # roundings between input and result, as for the attention operators of notebook 02


@dataclass(frozen=True)
class Case:
    """One shape: decode or prefill, positions in the cache, K and V as they are (`gqa`) or repeated, mask none or
    explicit."""

    phase: str
    length: int
    gqa: bool
    mask: str = "none"
    usual: bool = True  # what transformers passes for a text without padding

    @property
    def causal(self) -> bool:
        """Whether the call asks for a causal mask by its flag."""
        return self.phase == "prefill" and self.mask == "none"

    def fields(self) -> dict[str, Any]:
        names = ("phase", "length", "gqa", "mask", "usual", "causal")
        return {name: getattr(self, name) for name in names} | {"queries": 1 if self.phase == "decode" else self.length}


@dataclass
class Inputs:
    """Tensors of one case: the queries and `sets` caches, one a layer. `calls` runs attention over them."""

    case: Case
    queries: Any
    caches: list[tuple[Any, Any]]
    groups: int
    attend: Callable[..., Any]
    views: dict[int, tuple[Any, list[tuple[Any, Any]], Any]] = field(default_factory=dict)
    right: Any = None

    @property
    def sets(self) -> int:
        return len(self.caches)

    def at(self, length: int) -> tuple[Any, list[tuple[Any, Any]], Any]:
        """Return (queries, caches, mask) for a length up to the case's own; only the newest is kept."""
        if length not in self.views:
            self.views = {length: (*self._cut(length), self._mask(length))}
        return self.views[length]

    def _cut(self, length: int) -> tuple[Any, list[tuple[Any, Any]]]:
        def cut(whole: Any) -> Any:
            heads, size = whole.shape[1], whole.shape[3]
            return whole.reshape(-1)[: heads * length * size].view(1, heads, length, size)

        queries = self.queries if self.case.phase == "decode" else self.queries[:, :, :length]
        return queries, [(cut(keys), cut(values)) for keys, values in self.caches]

    def _mask(self, length: int) -> Any:
        import torch

        if self.case.mask == "none":
            return None
        rows = 1 if self.case.phase == "decode" else length
        seen = torch.ones(rows, length, dtype=torch.bool, device=self.queries.device)
        return (seen if rows == 1 else seen.tril())[None, None]

    def calls(self, length: int, count: int, start: int = 0) -> Any:
        """Call attention `count` times less `start`, over one cache after the other; return the last result."""
        queries, caches, mask = self.at(length)
        out = None
        for number in range(start, count):
            out = self.once(queries, *caches[number % self.sets], mask)
        return out

    def once(self, queries: Any, keys: Any, values: Any, mask: Any) -> Any:
        """Call attention once, as a layer does; repeating K and V is part of it where the case repeats them."""
        if self.groups == 1:
            return self.attend(queries, keys, values, attn_mask=mask, is_causal=self.case.causal)
        if self.case.gqa:
            options = {"attn_mask": mask, "is_causal": self.case.causal, "enable_gqa": True}
            return self.attend(queries, keys, values, **options)
        keys, values = repeated(keys, self.groups), repeated(values, self.groups)
        return self.attend(queries, keys, values, attn_mask=mask, is_causal=self.case.causal)


def repeated(x: Any, groups: int) -> Any:
    """Return (1, heads, length, size) with each K or V head copied `groups` times, as transformers does it."""
    one, heads, length, size = x.shape
    return x[:, :, None].expand(one, heads, groups, length, size).reshape(one, heads * groups, length, size)


# ---- shapes


def header(spec: str, arm: dict[str, str]) -> dict[str, Any]:
    """Return what every row repeats: the model's attention, the device, versions, and what transformers would pass."""
    import torch

    shape = shape_of(spec)
    device = torch.device(arm["device"])
    name = None if arm["device"] == "cpu" else torch.cuda.get_device_name(device)
    found = {**arm, "model_spec": spec, "model_hash": models.identity(spec), **shape, "device_name": name}
    found |= {"threads": torch.get_num_threads(), "torch": torch.__version__, "hip": torch.version.hip}
    return found | {"cuda": torch.version.cuda, "transformers_gqa": passes_grouped(arm, shape)}


def shape_of(spec: str) -> dict[str, int]:
    """Return {layers, heads, kv_heads, head_dim} of a model without loading its weights."""
    kind, _, rest = spec.partition(":")
    if kind == "random":
        config = random_weights.PRESETS[rest]
    else:
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(str(bundled.folder()) if spec == "bundled" else spec).to_dict()
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv_heads = config.get("num_key_value_heads") or heads
    return {"layers": config["num_hidden_layers"], "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}


def passes_grouped(arm: dict[str, str], shape: dict[str, int]) -> bool | None:
    """Return whether this transformers hands K and V over as they are (enable_gqa) for a text without padding; None
    where it cannot be asked."""
    try:
        import torch
        from transformers.integrations.sdpa_attention import use_gqa_in_sdpa

        key = torch.empty(1, shape["kv_heads"], 1, shape["head_dim"], device=arm["device"])
        several = len(inspect.signature(use_gqa_in_sdpa).parameters) > 2
        return bool(use_gqa_in_sdpa(None, key, *([key] if several else [])))
    except (ImportError, TypeError, AttributeError):
        return None


def cases(lengths: list[int], head: dict[str, Any], settings: bool) -> list[Case]:
    """Return the cases: every length as transformers passes it; the other settings at the shortest and the longest."""
    usual = head["transformers_gqa"] is not False and head["heads"] != head["kv_heads"]
    phases = ("decode", "prefill")
    found = [Case(phase, length, usual) for phase in phases for length in lengths]
    if settings:
        ends = sorted({min(lengths), max(lengths)})
        if head["heads"] != head["kv_heads"]:
            found += [Case(phase, length, not usual, usual=False) for phase in phases for length in ends]
        found += [Case(phase, length, False, "explicit", usual=False) for phase in phases for length in ends]
    return found


def make(case: Case, head: dict[str, Any]) -> Inputs:
    """Return normally distributed tensors: Q as a layer leaves it (position before head), a contiguous cache a layer.

    Raises RuntimeError where they do not fit into memory.
    """
    import torch

    device, dtype = torch.device(head["device"]), getattr(torch, head["dtype"])
    heads, kv_heads, size = head["heads"], head["kv_heads"], head["head_dim"]
    rows = 1 if case.phase == "decode" else case.length
    generator = torch.Generator().manual_seed(case.length)
    queries = torch.randn(1, rows, heads, size, generator=generator).to(device, dtype).transpose(1, 2)
    first = [torch.randn(1, kv_heads, case.length, size, generator=generator).to(device, dtype) for _ in range(2)]
    sets = _sets(case, head["layers"], 2 * first[0].numel() * first[0].element_size(), device)
    caches = [(first[0], first[1])]
    caches += [(torch.randn_like(first[0]), torch.randn_like(first[1])) for _ in range(sets - 1)]
    attend = torch.nn.functional.scaled_dot_product_attention
    return Inputs(case, queries, caches, heads // kv_heads, attend)


def _sets(case: Case, layers: int, bytes_each: int, device: Any) -> int:
    """Return how many caches are made: one a layer, as in a model, or as many as fit."""
    import torch

    if case.phase == "prefill":
        return PREFILL_SETS
    most = CPU_BYTES if device.type == "cpu" else torch.cuda.mem_get_info(device)[0] // 4
    return max(1, min(layers, most // bytes_each))


# ---- values


def value(case: Case, inputs: Inputs, head: dict[str, Any]) -> dict[str, Any]:
    """Compare one result with the same attention in float64 on the CPU, over some of its rows."""
    got = inputs.calls(case.length, 1)
    rows = _rows(got.shape[2])
    if inputs.right is None:
        inputs.right = reference(*inputs.at(case.length)[:2], rows, inputs.groups, case.phase)
    found = tolerance.compare(got[:, :, rows], inputs.right, head["dtype"], terms=case.length, steps=STEPS)
    told = {"error_vs_float64": found.get("max_abs_err"), "over_tolerance": found["over_tolerance"]}
    return told | {"not_finite": found.get("not_finite"), "checked_rows": len(rows), "reference": "CPU, float64"}


def _rows(count: int) -> list[int]:
    step = max(1, count // CHECKED_ROWS)
    return sorted({*range(0, count, step), count - 1})


def reference(queries: Any, caches: list[tuple[Any, Any]], rows: list[int], groups: int, phase: str) -> Any:
    """Return attention of the first cache in float64 on the CPU, for some rows: (1, heads, rows, size)."""
    import torch

    keys, values = (x.to("cpu", torch.float64).repeat_interleave(groups, 1) for x in caches[0])
    chosen = queries[:, :, rows].to("cpu", torch.float64)
    scores = chosen @ keys.transpose(-2, -1) / queries.shape[-1] ** 0.5
    if phase == "prefill":
        hidden = torch.arange(keys.shape[2])[None, :] > torch.tensor(rows)[:, None]
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ values
