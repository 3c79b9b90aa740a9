"""cuBLAS's and cuDNN's own logs, which go on over many lines a call. (cuBLASLt shares hipBLASLt's record form.)

Switched on by CUBLAS_LOGINFO_DBG=1 with CUBLAS_LOGDEST_DBG, and CUDNN_LOGLEVEL_DBG=3 with CUDNN_LOGDEST_DBG. A record
starts with `I! cuBLAS (v13.4.1) function cublasStatus_t cublasGemmEx(...) called:`; lines `i!  m: type=int; val=2048`
give its arguments, until the next record or the line with the process.
"""

from __future__ import annotations

import re

from rocmlab.libraries import Call, Log

MARKS = ("I! cuBLAS", "I! CuDNN", "I! cuDNN", "i!", "[cudnn_frontend]", "E! ", "W! Cu", "W! cu")

HEAD = re.compile(r"([IWE])! ?(cuBLAS|[cC]uDNN) \(v([^)]*)\) function (?:cublasStatus_t )?(\w+)\(")
ARGUMENT = re.compile(r"i! +(\w+): type=([^;]*); (?:val|streamId)=(.*)$")
GEMM = re.compile(
    r"cublas(?:([SDCZH])|Lt)?[gG]em(m|v)(?:3m)?(StridedBatched|Batched|GroupedBatched)?(Ex)?(?:_v2)?(?:_64)?$"
)
LETTERS = {"S": "float32", "D": "float64", "C": "complex64", "Z": "complex128", "H": "float16"}
CUDA_TYPES = {"16F": "float16", "32F": "float32", "64F": "float64", "16BF": "bfloat16", "8I": "int8", "32I": "int32"}
PLAN = re.compile(r"Executing \"?([\w=]+)\"? plan")
# cuDNN's layers by the names of its older API; the newer one executes a plan and names no layer.
LAYERS = {
    "ConvolutionForward": "convolution", "ConvolutionBiasActivationForward": "convolution",
    "ConvolutionBackwardData": "convolution", "ConvolutionBackwardFilter": "convolution",
    "BatchNormalizationForward": "batch_norm", "BatchNormalizationBackward": "batch_norm",
    "NormalizationForward": "batch_norm", "RNNForward": "rnn", "RNNBackward": "rnn", "PoolingForward": "pooling",
    "SoftmaxForward": "softmax", "ActivationForward": "activation", "MultiHeadAttnForward": "attention",
    "BackendExecute": "plan",
}  # fmt: skip
KEPT = {"m", "n", "k", "transa", "transb", "Atype", "computeType", "batchCount", "trans", "algo", "attributeName",
        "arrayOfElements"}  # fmt: skip


class Parser:
    """Reads cuBLAS and cuDNN records; the one being read is held until it ends."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.held: tuple[str, str, int] | None = None
        self.arguments: dict[str, str] = {}
        self.engine = ""

    def feed(self, text: str, line: int) -> str:
        """Return "known", "damaged", or "" for a line of another library."""
        match = HEAD.search(text)
        if match:
            damaged = self.close()
            level, library, _, function = match.groups()
            library = "cuBLAS" if library == "cuBLAS" else "cuDNN"
            self.log.libraries[library] += 1
            if level == "E":
                self.log.sign("library_error", line, f"{library} {function}", library=library, text=text.strip()[:200])
            self.held, self.arguments = (library, function, line), {}
            return "damaged" if damaged else "known"
        if match := PLAN.search(text):
            self.log.libraries["cuDNN"] += 1
            self.log.add(Call("cuDNN", "plan", "plan", kernel=match[1]), line, "frontend")
            return "known"
        if (at := text.find("i!")) >= 0:
            return self._argument(text[at:])
        return "known" if "[cudnn_frontend]" in text else ""

    def _argument(self, text: str) -> str:
        if self.held is None:
            return "damaged"
        if text.startswith(("i!Process", "i! Process")):
            return "damaged" if self.close() else "known"
        match = ARGUMENT.match(text)
        if match and match[1] in KEPT:
            self.arguments[match[1]] = match[3].strip(" ;")
        return "known"

    def close(self) -> bool:
        """Count the held record; return True when it is a GEMM that was cut before its shape was complete."""
        if self.held is None:
            return False
        (library, function, line), found = self.held, self.arguments
        self.held, self.arguments = None, {}
        if library == "cuDNN":
            self._layer(function, found, line)
            return False
        match = GEMM.match(function)
        if match is None:
            self.log.add(Call(library, function, "api"), line)
            return False
        if not {"m", "n"} <= found.keys() or not ("k" in found or match[2] == "v"):
            # Julia's and some callers' logs name the function only: the call counts, its shape is unknown.
            self.log.add(Call(library, function, "gemm", dtype=_dtype(match[1], found)), line)
            return bool(found)
        self.log.add(_gemm(library, function, match, found), line)
        return False

    def _layer(self, function: str, found: dict[str, str], line: int) -> None:
        if "ENGINE_GLOBAL_INDEX" in found.get("attributeName", ""):
            self.engine = "engine " + found.get("arrayOfElements", "").strip("[]")
        name = function.removeprefix("cudnn")
        kind = next((kind for start, kind in LAYERS.items() if name.startswith(start)), "api")
        kernel = found.get("algo", "").split(" ")[0] or (self.engine if kind == "plan" else "")
        self.log.add(Call("cuDNN", function, kind, kernel=kernel), line)


def _dtype(letter: str | None, found: dict[str, str]) -> str:
    match = re.search(r"CUDA_R_(\w+?)\(", found.get("Atype", ""))
    return CUDA_TYPES.get(match[1], match[1]) if match else LETTERS.get(letter or "", "")


def _gemm(library: str, function: str, match: re.Match[str], found: dict[str, str]) -> Call:
    try:
        m, n = int(found["m"]), int(found["n"])
        k = int(found.get("k", 0))
        batch = int(found.get("batchCount", 1))
    except ValueError:
        return Call(library, function, "gemm", dtype=_dtype(match[1], found))
    trans = "".join(found.get(name, "CUBLAS_OP_N").removeprefix("CUBLAS_OP_")[:1] for name in ("transa", "transb"))
    if match[2] == "v":  # a matrix times one vector: a GEMM with n = 1
        transposed = "OP_N" not in found.get("trans", "CUBLAS_OP_N")
        m, n, k = (n, 1, m) if transposed else (m, 1, n)
    compute = re.search(r"CUBLAS_COMPUTE_(\d+)F|CUDA_R_(\d+)F", found.get("computeType", ""))
    inside = f"float{compute[1] or compute[2]}" if compute else ""
    return Call(library, function, "gemm", trans, m, n, k, batch, _dtype(match[1], found), inside)
