# ruff: noqa: E501 (lines of logs are as long as they are)
"""How long does reading a large log take, and how much memory? `python bench/log_size.py [MB] [file]`

Writes a log of that size (100 MB when none is given) with lines of every library, mixed as a real run mixes them, reads it
in a child process and prints seconds, MB a second and the peak of resident memory.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAYERS = ((2048, 1024), (1024, 1024), (1024, 2048), (3072, 1024), (1024, 3072), (151936, 1024))


def block(rng: random.Random) -> str:
    """Return about 4 kB: one layer of a decode step, as seven logs would show it."""
    lines = []
    for m, k in LAYERS:
        n = rng.choice((1, 1, 1, rng.randrange(2, 512)))
        a, stamp = rng.randrange(1 << 40), rng.randrange(1 << 36)
        lines += [
            f"rocblas_gemm_ex,T,N,{m},{n},{k},1,0x{a:x},f16_r,{k},0x{a + 4096:x},f16_r,{k},0,0x{a + 8192:x},f16_r,{m},"
            f"0x{a + 8192:x},f16_r,{m},f32_r,0,0,none,atomics_allowed",
            f"./rocblas-bench -f gemm_ex --transposeA T --transposeB N -m {m} -n {n} -k {k} --alpha 1 --a_type f16_r --lda "
            f"{k} --b_type f16_r --ldb {k} --beta 0 --c_type f16_r --ldc {m} --d_type f16_r --ldd {m} --compute_type f32_r "
            "--algo 0 --solution_index 0 --flags 0",
            f":3:hip_module.cpp           :470 : {stamp} us: [pid:312732 tid:0x15533460c740]  hipExtModuleLaunchKernel ( "
            f"0x{a:x}, {m}, 1, 1, 256, 1, 1, 0, stream:<null>, char array:<null>, 0x7ffd, event:0, event:0, 0 )",
            f":3:hip_module.cpp           :471 : {stamp + 5} us: [pid:312732 tid:0x15533460c740] hipExtModuleLaunchKernel: "
            "Returned hipSuccess : ",
            f"onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core_bf16,undef,src:bf16::blocked:ab::f0 "
            f"wei:bf16::blocked:ba::f0 dst:bf16::blocked:ab::f0,attr-scratchpad:user,,{n}x{k}:{k}x{m},{rng.random():.6f}",
            f"MKL_VERBOSE SGEMM(T,N,{m},{n},{k},0x{a:x},0x{a:x},{k},0x{a:x},{k},0x{a:x},0x{a:x},{m}) "
            f"{rng.random() * 900:.2f}us CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:2",
            f"MIOpen(HIP): Info2 [GetInvoker] Returning an invoker for problem {m}x{n}x{k} and algorithm X{rng.random():.6f}",
        ]
    lines.append(f"step {rng.randrange(1 << 30)} loss {rng.random():.4f}")
    return "\n".join(lines) + "\n"


def write(path: Path, megabytes: float) -> None:
    """Write a log of about that size, its lines drawn with a fixed seed."""
    rng, size = random.Random(20), 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        while size < megabytes * 1e6:
            text = "".join(block(rng) for _ in range(64))
            size += file.write(text)


CHILD = """
import json, sys, time
import psutil
from pathlib import Path
from rocmlab.readers import Evidence, logs
began = time.perf_counter()
evidence = Evidence(Path(sys.argv[1]))
assert logs.recognise(evidence)
reading = logs.read(evidence)
seconds = time.perf_counter() - began
try:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
except ImportError:
    peak = psutil.Process().memory_info().peak_wset
print(json.dumps({"seconds": seconds, "peak_mb": peak / 1e6, "numbers": reading.numbers}))
"""


def main() -> None:
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 100.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder, "large.log")
        if not path.exists():
            began = time.perf_counter()
            write(path, megabytes)
            print(f"wrote {path.stat().st_size / 1e6:.0f} MB in {time.perf_counter() - began:.1f} s")
        done = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=False)
        print(done.stdout.strip() or done.stderr.strip())


if __name__ == "__main__":
    main()
