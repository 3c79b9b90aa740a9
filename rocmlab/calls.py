"""What does this host call do: launch, wait, copy, allocate, load code? For HIP and CUDA alike, by name.

Names are those of hip_runtime_api.h and of the CUDA runtime and driver API. ROCm has no sync events in a trace: a
blocking copy is one call (hipMemcpyWithStream), where CUDA shows cudaMemcpyAsync and cudaStreamSynchronize.
"""

from __future__ import annotations

import functools
import re

# Innermost host activity, by instant of a thread.
ACTIVITIES = (
    "untracked",
    "python",
    "aten",
    "annotation",
    "profiler",
    "launch_api",
    "sync_api",
    "alloc_api",
    "copy_api",
    "module_load_api",
    "other_api",
)

KINDS = (
    ("launch_api", r"^(?:hip|cuda|cu)\w*Launch(?!HostFunc)"),
    ("sync_api", r"^(?:hip|cuda|cu)(?:Device|Stream|Event|Ctx)Synchronize|^hipMemcpyWithStream"),
    ("copy_api", r"^(?:hip|cuda|cu)(?:Memcpy|Memset)\w*Async"),
    ("sync_api", r"^(?:hip|cuda|cu)Memcpy"),
    ("copy_api", r"^(?:hip|cuda|cu)Memset"),
    (
        "alloc_api",
        r"^(?:hip|cuda|cu)\w*(?:Malloc|Free|MemAlloc|MemCreate|MemMap|HostAlloc|HostRegister|MemRelease|MemUnmap)",
    ),
    ("module_load_api", r"^(?:hip|cuda|cu)(?:Module|Library)(?:Load|Get)|^hiprtc|^nvrtc"),
)
COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in KINDS)
GRAPH = re.compile(r"GraphLaunch")

# Operators that need a value on the host, or a size that only the device knows.
SYNC_OPS = frozenset(
    f"aten::{name}"
    for name in (
        "item", "_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "unique", "_unique2", "unique_dim",
        "unique_consecutive", "equal", "allclose", "bincount",
    )
)  # fmt: skip

# Operators that launch nothing by design: views, allocations, questions.
IDLE_OPS = re.compile(
    r"^aten::(?:_?(?:unsafe_)?(?:view|reshape|as_strided|transpose|permute|expand|squeeze|unsqueeze|select|slice|narrow|split|"
    r"chunk|unbind|unfold|detach|alias|diagonal|movedim|flatten|unflatten|t|numpy_T|mT|real|imag)(?:_as|_as_real|_copy|"
    r"_alias|_with_sizes|_symint)?_?|empty\w*|new_empty\w*|resize\w*|set_|result_type|item|is_\w+|lift\w*|to|_to_copy|contiguous|"
    r"data|requires_grad_|size|stride|numel|dim|record_stream|pin_memory|_pin_memory|_has_\w+|promote_types|can_cast|"
    r"broadcast_tensors|meshgrid|atleast_\dd|_reshape_alias|_version|output_nr|retain_grad|dropout|_nested_tensor_size)$"
)


@functools.lru_cache(maxsize=4096)
def kind(name: str) -> str:
    """Return the activity of a host call, one of ACTIVITIES that end in _api."""
    return next((found for found, pattern in COMPILED if pattern.search(name)), "other_api")


@functools.lru_cache(maxsize=4096)
def is_graph(name: str) -> bool:
    """Tell whether a launch call replays a graph: one call, many kernels."""
    return bool(GRAPH.search(name))


@functools.lru_cache(maxsize=65536)
def launches_nothing(operator: str) -> bool:
    """Tell whether an operator is a view, an allocation or a question, which no device works on."""
    return bool(IDLE_OPS.match(operator))
