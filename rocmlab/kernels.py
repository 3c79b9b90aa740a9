"""Which library brought this kernel, going by its name?

`library("Cijk_Alik_Bljk_HHS_BH_UserArgs_MT64x64")` is "hipBLASLt". It names the kernel's library, never the API that
was called: MIOpen launches kernels of composable kernel. A name that fits nothing is "other", and its share is shown.
"""

from __future__ import annotations

import functools
import re

OTHER = "other"
BARE = "Triton (other)"

# First match wins. Sources: the naming schemes of Tensile and TensileLite (Cijk_, with _UserArgs since hipBLASLt),
# AOTriton, composable kernel, MIOpen's kernel sources, inductor (triton_poi_, _red_, _per_, _tem_), ROCclr's blits.
PATTERNS = (
    ("memcpy", r"^Memcpy |rocclr_copyBuffer|rocclr_copyImage"),
    ("memset", r"^Memset |rocclr_fillBuffer|rocclr_fillImage"),
    ("hipBLASLt", r"^(?:Custom_)?Cijk_.*_UserArgs"),
    ("rocBLAS/Tensile", r"^(?:Custom_)?Cijk_"),
    ("rocBLAS", r"rocblas_|rocblas::"),
    ("AOTriton", r"^attn_fwd|bwd_kernel_(?:dk_dv|dq|fuse)|^bwd_preprocess"),
    ("AITER", r"aiter"),
    (
        "vLLM/SGLang custom",
        r"vllm|sgl_|sgl::|paged_attention|rotary_embedding|store_kvcache|resolve_future_token|clamp_position",
    ),
    ("CK", r"^_ZN2ck|ck_tile|(?<![\w])ck::|kernel_grouped_conv"),
    (
        "MIOpen",
        r"^miopen|^igemm_\w*gtc|^batched_transpose|^SubTensorOp|^Op[1-5]d|Im2d?2?Col|^Col2Im|^gridwise_|^naive_conv"
        r"|^transpose_(?:NCHW2CNHW|CNHW2NCHW)|winograd",
    ),
    ("RCCL/NCCL", r"nccl|rccl"),
    ("Triton (inductor)", r"^triton_(?:poi|red|per|tem|mm|for|unk)_"),
    ("cuDNN", r"cudnn"),
    ("cuBLAS/CUTLASS", r"cutlass|cublas|nvjet|xmma|^ampere_|^volta_|^turing_|^maxwell_|^sm\d\d_|^gemv|epilogue::impl"),
    ("PyTorch native", r"at::(?:native|cuda)|at_cuda|N2at6native|c10::"),
    ("rocPRIM/CUB/Thrust", r"rocprim|hipcub|cub::|thrust"),
    (BARE, r"^triton_|^[A-Za-z_]\w*$"),
)
COMPILED = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in PATTERNS)

GEMM = re.compile(r"Cijk_|(?<!i)gemm|gemv|nvjet|_matmul|splitKreduce", re.IGNORECASE)
DECORATION = re.compile(r'^[\s"]*(?:void )?|[\s"]*(?:\[clone \.kd\]|\[\.kd\]|\.kd|\(Custom tuning:[^)]*\))?[\s"]*$')


def plain(name: str) -> str:
    """Return a kernel name without quotes, "void " and the marks that rocprof and hipBLASLt add."""
    return DECORATION.sub("", name)


@functools.lru_cache(maxsize=65536)
def library(name: str) -> str:
    """Return the library of a kernel by its full, unshortened name; "other" where no pattern fits."""
    bare = plain(name)
    return next((found for found, pattern in COMPILED if pattern.search(bare)), OTHER)


@functools.lru_cache(maxsize=65536)
def is_gemm(name: str) -> bool:
    """Tell whether a kernel multiplies matrices, going by its name; implicit GEMMs of convolutions do not count."""
    return bool(GEMM.search(plain(name)))
