# ruff: noqa: E501 (lines of logs are as long as they are)
"""Logs of every library and messages of every kind: what is counted, what is found, and what is left alone."""

import codecs
import random
import string

import pytest
from cases import answer, differences, expected
from hypothesis import given, settings
from hypothesis import strategies as st

from rocmlab import findings, libraries, library_judges, readers
from rocmlab.readers import logs

G = "G"
MESSAGES = ("ops-06-oom-8gb.txt", "att-01-sdpa-warnings.txt")


def codes(log, status=None):
    return [f["code"] for f in library_judges.judge(log) if status is None or f["status"] in status]


def gemm_rows(log):
    return [(r["library"], r["m"], r["n"], r["k"], r["batch"], r["dtype"], r["compute"], r["calls"])
            for r in libraries.rows(log) if r["kind"] == "gemm"]  # fmt: skip


# ---- the further cases and samples


def test_every_case_of_this_kind(shared):
    entries = expected(shared, G) | {k: v for k, v in expected(shared, "BD").items() if k in MESSAGES}
    wrong = {name: found for name, e in entries.items() if (found := differences(shared / "cases" / name, e))}
    assert not wrong
    assert len(entries) >= 12


def test_every_sample_can_be_offered_and_those_of_this_kind_are_read(shared):
    kinds = {}
    for path in sorted((shared / "amd-samples").glob("*.*")):
        evidence = readers.Evidence(path)
        if logs.recognise(evidence):
            reading = logs.read(evidence)
            kinds[path.name] = reading.kind
            for lang in findings.LANGUAGES:
                findings.paragraph(reading.findings, lang)
    assert len(kinds) >= 35 and set(kinds.values()) == {"log", "message"}
    theirs = (
        "rocminfo",
        "hipinfo",
        "hipconfig",
        "rocm-smi",
        "amd-smi",
        "clinfo",
        "collect-env",
        "rocprof",
        "torch-profiler",
    )
    assert not [name for name in kinds if name.startswith(theirs)]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("dmesg-gpu-hang.txt", ["GPU_HANG", "GPU_FAULT"]),
        ("gpu-page-fault-messages.txt", ["GPU_FAULT"]),
        ("hip-fatbin-no-code-object.txt", ["KERNELS_MISSING"]),
        ("hip-no-binary-for-gpu.txt", ["KERNELS_MISSING"]),
        ("hsa-exception-0x1016.txt", ["GPU_FAULT"]),
        ("hsa-init-out-of-resources-gfx1032-linux.txt", ["HSA_INIT_FAILED"]),
        ("miopen-hiprtc-limits-naiveconv-linux.txt", ["RUNTIME_COMPILE_FAILED"]),
        ("miopen-hiprtc-rocrand-linux-gfx942.txt", ["RUNTIME_COMPILE_FAILED"]),
        ("miopen-hiprtc-type-traits-gru-windows-gfx1151.txt", ["RUNTIME_COMPILE_FAILED"]),
        ("miopen-loglevel-info-conv-windows-gfx1100.txt", ["NAIVE_CONVOLUTION"]),
        ("op-not-implemented-fp8-windows-gfx1201.txt", ["OPERATOR_NOT_IMPLEMENTED"]),
        ("rocblas-sgemm-silent-wrong-result.txt", ["WRONG_VALUE"]),
        ("rocblas-tensile-missing-library.txt", ["NO_BLAS_KERNELS"]),
        ("sdpa-warnings-aotriton-experimental.txt", ["SDPA_MATH_ONLY"]),
        ("sdpa-warnings-not-compiled.txt", ["SDPA_PATH_MISSING"]),
        ("torch-hip-error-invalid-device-function.txt", ["KERNELS_MISSING"]),
        ("torch-hip-oom.txt", ["OUT_OF_MEMORY"]),
        ("windows-event-log-dll-mismatch-crash.txt", ["DRIVER_WHEEL_MISMATCH"]),
    ],
)
def test_what_a_sample_means(shared, name, found):
    assert codes(logs.parse(shared / "amd-samples" / name), ("broken", "unknown", "warn")) == found


# ---- MIOpen

CONV = "-n 2 -c 16 -H 40 -W 24 -k 8 -y 5 -x 3 -p 2 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1"
COMMANDS = [
    f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv {CONV} -F 1 -t 1",
    f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv {CONV} -F 2 -t 1",
    f"MIOpen: Command [LogCmdConvolution] MIOpenDriver.exe convbfp16 {CONV.replace('-k 8', '-k 9')} -F 4 -t 1 -S 85",
    f"MIOpen: Command [LogCmdFindConvolution] MIOpenDriver.exe conv {CONV} -F 1 -t 1",
    "MIOpen(HIP): Command [LogCmdBNorm] MIOpenDriver.exe bnorm -n 4 -c 8 -D 3 -H 2 -W 2 -m 1 --forw 1 -b 0 -r 1 -s 1",
    "MIOpen(HIP): Command [LogCmdConvolution] MIOpenDriver.exe conv -n 2 -c 16 -H 40 -W",
    "MIOpen(HIP): Command [LogCmdConvolution] MIOpenDriver.exe conv " + CONV + " -F",
    "MIOpen(HIP): Comma",
    "step 12 done",
]


def test_miopen_commands_are_counted_apart_from_searches_and_cut_lines():
    numbers = libraries.numbers(logs.parse_text("\n".join(COMMANDS)))
    assert (numbers["convolutions"], numbers["convolution_shapes"], numbers["searches"]) == (3, 2, 1)
    assert (numbers["batch_norms"], numbers["rnns"]) == (1, 0)
    assert (numbers["damaged_lines"], numbers["other_lines"]) == (3, 1)


def test_a_naive_convolution_backwards_is_found_by_each_kind_of_evidence():
    for line in (
        "MIOpen(HIP): Info [FillFindReturnParameters] BW Chosen Algorithm: ConvDirectNaiveConvBwd , 0, 1.25",
        "MIOpen(HIP): Info2 [run] kernel_name = naive_conv_nonpacked_bwd_nchw_half, global_work_dim = { 4096, 1, 1 }",
        "MIOpen: Info2 [GetSolutionsFallback] id: 86, algo: 1, time: 1000, ws: 0, name: ConvDirectNaiveConvBwd",
    ):
        assert codes(logs.parse_text(line))[0] == "NAIVE_CONVOLUTION"


def test_a_naive_candidate_that_loses_is_no_finding():
    log = logs.parse_text(
        "MIOpen(HIP): Info2 [GetSolutionsFallback] maxSolutionCount = 9, available = 2\n"
        "MIOpen(HIP): Info2 [GetSolutionsFallback] id: 85, algo: 1, time: 1000, ws: 0, name: ConvDirectNaiveConvFwd\n"
        "MIOpen(HIP): Info2 [GetSolutionsFallback] id: 91, algo: 0, time: 12.5, ws: 147456, name: GemmFwdRest\n"
    )
    assert codes(log) == ["SOLVERS_LOGGED"]


HIPRTC = """MIOpen(HIP): Error [Compile] 'hiprtcCompileProgram(prog.get(), 1)' MIOpenSoftmaxAttn.cpp: HIPRTC_ERROR_COMPILATION (6)
MIOpen(HIP): Error [BuildHip] HIPRTC status = HIPRTC_ERROR_COMPILATION (6), source file: MIOpenSoftmaxAttn.cpp
MIOpen(HIP): Warning [BuildHip] In file included from /tmp/comgr-9/input/MIOpenSoftmaxAttn.cpp:30:
/tmp/comgr-9/include/x.hpp:12:10: fatal error: 'cstdint' file not found
1 error generated when compiling for gfx1010:xnack-.
MIOpen Error: /src/hipoc_program.cpp:299: Code object build failed. Source: MIOpenSoftmaxAttn.cpp
RuntimeError: miopenStatusUnknownError
"""


def test_a_failed_compilation_names_header_source_target_and_next_step(tmp_path):
    found = answer(tmp_path, HIPRTC)
    assert (found["verdict"], found["numbers"]["compile_errors"]) == ("RUNTIME_COMPILE_FAILED", 1)
    assert [f["code"] for f in found["findings"]] == ["RUNTIME_COMPILE_FAILED"]
    for word in ("cstdint", "softmax", "MIOpenSoftmaxAttn.cpp", "gfx1010:xnack-"):
        assert word in found["sentence"]
    assert "MIOpen switched off" in found["advice"]
    twice = answer(tmp_path, HIPRTC + HIPRTC.replace("SoftmaxAttn", "PoolingND"))
    assert twice["numbers"]["compile_errors"] == 2


def test_a_cache_path_outside_ascii_is_the_fault_also_in_gbk(tmp_path):
    text = (
        "MIOpen Error: C:/b/sqlite_db.cpp:160: Cannot open database file:C:\\Users\\王小明\\.miopen\\gfx1200_16.ukdb\n"
    )
    for data in (text.encode(), text.encode("gbk"), text.encode("utf-16")):
        found = answer(tmp_path, data)
        assert found["verdict"] == "NON_ASCII_PATH"
        assert "王小明" in found["sentence"]
        assert "MIOPEN_USER_DB_PATH" in found["advice"]


def test_workspace_warnings_by_solver():
    line = (
        "MIOpen(HIP): Warning [IsEnoughWorkspace] [X] Solver <{}>, workspace required: 900, provided ptr: 0x1 size: {}"
    )
    log = logs.parse_text("\n".join(line.format(*x) for x in (("ConvWinoX", 0), ("ConvWinoX", 80), ("ConvWinoX", 90))))
    (found,) = library_judges.judge(log)
    assert found["numbers"] == {
        "workspace_warnings": 3, "without_workspace": 1, "too_little_workspace": 2, "convwinox": 3,
    }  # fmt: skip


# ---- rocBLAS and hipBLASLt

BENCH = (
    "./rocblas-bench -f gemm_ex --transposeA T --transposeB N -m 96 -n {n} -k 64 --alpha 1 --a_type bf16_r --lda 64 "
    "--b_type bf16_r --ldb 64 --beta 0 --c_type bf16_r --ldc 96 --d_type bf16_r --ldd 96 --compute_type f32_r --algo 0 "
    "--solution_index 0 --flags 0"
)
TRACE = (
    "rocblas_gemm_ex,T,N,96,1,64,1,0x7be6,bf16_r,64,0x7be7,bf16_r,64,0,0x7be8,bf16_r,96,0x7be8,bf16_r,96,f32_r,0,0,none,"
    "atomics_allowed"
)
BATCHED = (
    "rocblas_gemm_strided_batched_ex,N,N,32,5,16,1,0x1,f32_r,32,512,0x2,f32_r,16,80,0,0x3,f32_r,32,160,0x3,f32_r,32,160,"
    "12,f32_r,0,0,none,atomics_allowed"
)
PROFILE = (
    '- { rocblas_function: "rocblas_gemm_ex", atomics_mode: atomics_allowed, a_type: "bf16_r", compute_type: "f32_r", '
    "transA: 'T', transB: 'N', M: 96, N: 1, K: 64, alpha: 1.0, lda: 64, call_count: 2 }"
)


def test_one_call_in_several_layers_is_counted_once():
    log = logs.parse_text("\n".join([TRACE, BENCH.format(n=1), TRACE, BENCH.format(n=1), PROFILE, BATCHED]))
    assert gemm_rows(log) == [
        ("rocBLAS", 96, 1, 64, 1, "bfloat16", "float32", 2),
        ("rocBLAS", 32, 5, 16, 12, "float32", "float32", 1),
    ]
    assert libraries.numbers(log)["gemm_calls"] == 3


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("rocblas_hgemm,N,T,7,3,5,1,0x1,7,0x2,3,0,0x3,7,atomics_not_allowed", (7, 3, 5, 1, "float16")),
        (
            "rocblas_sgemm_strided_batched,N,N,7,3,5,1,0x1,7,35,0x2,5,15,0,0x3,7,21,6,atomics_allowed",
            (7, 3, 5, 6, "float32"),
        ),
        ("rocblas_sgemv,T,300,20,1,0x1,300,0x2,1,0,0x3,1,atomics_allowed", (20, 1, 300, 1, "float32")),
        (
            "./rocblas-bench -f gemv -r f32_r --transposeA N -m 300 -n 20 --alpha 1 --lda 300",
            (300, 1, 20, 1, "float32"),
        ),
        (
            "rocblas-bench.exe -f gemm -r f64_r --transposeA N --transposeB N -m 7 -n 3 -k 5 --lda 7",
            (7, 3, 5, 1, "float64"),
        ),
    ],
)
def test_other_forms_of_a_product(line, shape):
    (row,) = gemm_rows(logs.parse_text(line))
    assert row[1:6] == shape


def test_housekeeping_is_no_call_and_no_library_is_none():
    numbers = libraries.numbers(logs.parse_text("rocblas_create_handle,atomics_allowed\nrocblas_set_stream,0x0\n"))
    assert numbers["rocblas_calls"] == numbers["hipblaslt_calls"] == numbers["gemm_calls"] == 0
    assert numbers["other_lines"] == 2
    assert "gemm_calls" not in libraries.numbers(logs.parse_text("MIOpen(HIP): Info [Handle] stream: 0, device_id: 0"))


def test_a_product_that_rocblas_hands_to_hipblaslt_is_one_product():
    text = "\n".join(
        [
            BENCH.format(n=1),
            "rocblas_internal,rocblas_gemm_hipblaslt_backend,T,N,96,1,64,1,0x1,64,0x2,64,0,0x3,96,0x3,96,atomics_allowed",
            "hipblaslt-bench --api_method c -m 96 -n 1 -k 64 --lda 64 --transA T --transB N --batch_count 1 --a_type bf16_r "
            "--b_type bf16_r --c_type bf16_r --d_type bf16_r --compute_type f32_r --algo_method index --any_stride",
        ]
    )
    numbers = libraries.numbers(logs.parse_text(text))
    assert (numbers["gemm_calls"], numbers["rocblas_calls"], numbers["hipblaslt_calls"]) == (1, 1, 1)


def test_internal_lines_alone_are_evidence_too():
    line = "rocblas_internal,rocblas_gemm_source_backend,T,N,96,1,64,1,0x1,64,0x2,64,0,0x3,96,0x3,96,atomics_allowed"
    log = logs.parse_text(f"{line}\n{line}")
    assert libraries.numbers(log)["gemm_calls"] == 2
    assert codes(log)[0] == "FALLBACK_KERNEL"


def test_a_missing_tensile_library_lists_what_is_there(tmp_path):
    text = (
        "rocBLAS error: Cannot read /opt/x/rocblas/library/TensileLibrary.dat: Illegal seek for GPU arch: gfx1035\r\n"
        ' List of available TensileLibrary Files : \r\n"/opt/x/TensileLibrary_lazy_gfx908.dat"\r\n'
        '"/opt/x/TensileLibrary_lazy_gfx90a.dat"\r\n"/opt/x/TensileLibrary_lazy_gfx11-generic.dat"\r\n'
    )
    found = answer(tmp_path, text)
    assert (found["verdict"], found["kind"], found["numbers"]["library_archs"]) == ("NO_BLAS_KERNELS", "log", 3)
    assert "gfx1035" in found["sentence"] and "gfx11-generic" in found["sentence"]
    alone = answer(tmp_path, text.splitlines()[0])
    assert alone["numbers"]["library_archs"] is None and alone["numbers"]["library_archs_reason"]


def test_a_wrapped_trace_record_and_an_unread_api_call():
    text = """[2026-03-01 10:00:00][HIPBLASLT][Api][rocblaslt_matmul] A=... B=... workSpaceSizeInBytes=0
[2026-03-01 10:00:00][HIPBLASLT][Trace][rocblaslt_matmul]
  A=[type=R_16F rows=640 cols=80 ld=640]
  B=[type=R_16F rows=640 cols=1 ld=640]
  D=[type=R_16F rows=80 cols=1 ld=80]
  computeDesc=[computeType=COMPUTE_32F scaleType=R_32F transA=OP_T transB=OP_N]
  alpha=1 beta=0
done
"""
    log = logs.parse_text(text)
    assert gemm_rows(log) == [("hipBLASLt", 80, 1, 640, 1, "float16", "float32", 1)]
    assert log.other == 1
    only_api = logs.parse_text(text.splitlines()[0])
    assert libraries.numbers(only_api)["gemm_calls_shape_unknown"] == 1


def test_tunableop_results_are_choices_not_calls():
    log = logs.parse_text(
        "Validator,PT_VERSION,2.9.0\n"
        "GemmTunableOp_Half_TN,tn_3072_1_1024,Gemm_Rocblas_42,0.021\n"
        "GemmStridedBatchedTunableOp_BFloat16_NN,nn_64_1_40_B_16,Default,0.008\n"
        "GemmTunableOp_float_TN,tn_3072_37_1024_ld_1024_1024_3072,Gemm_Hipblaslt_7,0.3\n"
    )
    numbers = libraries.numbers(log)
    assert [numbers[f"tuned_{x}"] for x in ("shapes", "rocblas", "hipblaslt", "default")] == [3, 1, 1, 1]
    assert "gemm_calls" not in numbers and log.other == 0


# ---- the HIP runtime

RUNTIME = """:3:hip_module.cpp           :470 : 3052704804 us: [pid:31 tid:0x15]  hipExtModuleLaunchKernel ( 0x1, 768, 66, 1, 256 )
:3:hip_module.cpp           :471 : 3052704809 us: [pid:31 tid:0x15] hipExtModuleLaunchKernel: Returned hipSuccess :
:3:hip_memory.cpp           :827 : 1223390500 us:   hipMemcpyWithStream ( 0253, 054F, 3276800, hipMemcpyDeviceToHost, 0 )
:3:hip_memory.cpp           :844 : 1223391398 us:  hipMemcpyWithStream: Returned hipSuccess : : duration: 898 us
:3:hip_stream.cpp :100 : 5617 : [7fad295dd840] hipStreamSynchronize: Returned hipSuccess
training... :3:hip_module.cpp:791 : hipLaunchKernel: Returned hipErrorLaunchFailure
:3:rocvirtual.cpp           :798 : 305 us: [pid:31 tid: 0x15] ShaderName : Cijk_Ailk_Bljk_HHS_BH_MT128x128x16
:3:hip_module.cpp :99 : 77 us: [pid:1 tid:0x1] hipModuleLoad ( 0x1, /x/TensileLibrary_Type_HH_Contraction_l_fallback_gfx1032.hsaco )
"""


def test_the_runtime_log_counts_each_call_once_in_every_form():
    log = logs.parse_text(RUNTIME)
    numbers = libraries.numbers(log)
    assert (numbers["launches"], numbers["copies"], numbers["read_backs"], numbers["synchronisations"]) == (2, 1, 1, 1)
    assert (numbers["hip_calls"], numbers["hip_errors"]) == (5, 1)
    assert [r["kernel"] for r in libraries.rows(log) if r["kind"] == "kernel"] == ["Cijk_Ailk_Bljk_HHS_BH_MT128x128x16"]
    assert codes(log, ("broken", "warn")) == ["GPU_FAULT", "FALLBACK_KERNEL"]


# ---- NVIDIA and the CPU

CUBLAS = """I! cuBLAS (v13.1.0) function cublasStatus_t cublasCreate_v2(cublasContext**) called:
i!  handle: type=cublasHandle_t; val=POINTER (IN HEX:0x0x2d3af900)
i!Process=1; Thread=2; GPU=0; Handle=POINTER (IN HEX:0x(nil))
I! cuBLAS (v13.1.0) function cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, int) called:
i!  transa: type=cublasOperation_t; val=CUBLAS_OP_T(1)
i!  transb: type=cublasOperation_t; val=CUBLAS_OP_N(0)
i!  m: type=int; val=1024
i!  n: type=int; val=1
i!  k: type=int; val=3072
i!  Atype: type=cudaDataType_t; val=CUDA_R_16F(2)
i!  computeType: type=cublasComputeType_t; val=CUBLAS_COMPUTE_32F(68)
i! Time: 2026-09-11T18:11:38 elapsed from start 0.0 minutes or 1.0 seconds
i!Process=1; Thread=2; GPU=0; Handle=0x1; StreamId=0x2
i! COMPILED WITH: a compiler
I! cuBLAS (v13.1.0) function cublasStatus_t cublasSgemv_v2(cublasHandle_t, int) called:
i!  trans: type=cublasOperation_t; val=CUBLAS_OP_T(1)
i!  m: type=int; val=64
i!  n: type=int; val=128
i!Process=1; Thread=2; GPU=0
I! cuBLAS (v13.1.0) function cublasStatus_t cublasGemmEx(cublasHandle_t) called:
i!  m: type=int; val=10
"""
LT = (
    "[2026-05-04 15:08:47][cublasLt][53055][Trace][{}] A=0X32F Adesc=[type=R_16F rows=3072 cols=1024 ld=3072] B=0X32E "
    "Bdesc=[type=R_16F rows=3072 cols=1 ld=3072] C=0X1 Cdesc=[type=R_16F rows=1024 cols=1 ld=1024] D=0X1 Ddesc=[type=R_16F "
    "rows=1024 cols=1 ld=1024] computeDesc=[computeType=COMPUTE_32F scaleType=R_32F transa=OP_T] "
    "algo=[algoId=67 tile=MATMUL_TILE_64x32 stages=MATMUL_STAGES_64xAUTO customOption=29] workSpace=0X0 beta=0"
)


def test_cublas_records_over_many_lines():
    log = logs.parse_text(CUBLAS)
    assert gemm_rows(log)[:2] == [
        ("cuBLAS", 1024, 1, 3072, 1, "float16", "float32", 1),
        ("cuBLAS", 128, 1, 64, 1, "float32", "", 1),
    ]
    assert log.damaged == 1


def test_cublaslt_names_its_algorithm_and_inner_calls_are_not_added():
    direct = logs.parse_text(LT.format("cublasLtMatmul"))
    assert gemm_rows(direct) == [("cuBLASLt", 1024, 1, 3072, 1, "float16", "float32", 1)]
    assert [r["kernel"] for r in libraries.rows(direct)] == ["algo 67 tile 64x32 stages 64xAUTO"]
    both = logs.parse_text(CUBLAS.rsplit("I! cuBLAS", 2)[0] + LT.format("cublasLtHSHMatmul"))
    assert libraries.numbers(both)["gemm_calls"] == 1


def cudnn(function, *arguments, at="09:00:00.000000"):
    """One record as cuDNN 9 writes it."""
    lines = [f"I! CuDNN (v91200 7) function {function}() called:", *(f"i!     {one}" for one in arguments)]
    return "\n".join(
        [*lines, f"i! Time: 2026-02-03T{at} (0d+0h+0m+0s since start)", "i! Process=9; Thread=9; GPU=0.", "", ""]
    )


OK = "status: type=cudnnStatus_t; val=CUDNN_STATUS_SUCCESS (0);"


def tensor(name, dims, dtype="HALF"):
    return (
        f"{name}Desc: type=CUDNN_BACKEND_TENSOR_DESCRIPTOR:",
        f"type: type=cudnnDataType_t; val=CUDNN_DATA_{dtype} (2);",
        f"dimA: type=int; val=[{dims}];",
    )


def plan(*operations, engine, **knobs):
    """The arguments of a record that shows a plan: operations as (name, tensors), the engine, its knobs."""
    shown = ["executionPlan: type=CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:"]
    for name, *tensors in operations:
        shown.append(f"operation: type=CUDNN_BACKEND_OPERATION_{name}_DESCRIPTOR:")
        shown += [line for one in tensors for line in one]
    shown += [f"engine_id: type=int; val={engine};", "knobDesc: type=cudnnBackendDescriptor_t:"]
    return [*shown, *(f"CUDNN_KNOB_TYPE_{name}: type=int; val={value};" for name, value in knobs.items())]


CONVOLVED = plan(
    ("CONVOLUTION_FORWARD", tensor("x", "4,8,10,10"), tensor("w", "16,8,3,3"), ("mathPrec: type=x; val=CUDNN_DATA_FLOAT (0);",)),
    engine=31, TILE_SIZE=2, KBLOCK=4,
)  # fmt: skip
SDPA = plan(("SDPA_FWD", tensor("q", "1,6,1,32"), tensor("k", "1,3,77,32")), engine=5, KERNEL_CFG=1)
COMPOSITE = plan(
    ("MATMUL", tensor("a", "1,6,9,32"), tensor("b", "1,3,32,9")),
    ("REDUCTION", tensor("x", "1,6,9,9", "FLOAT")),
    engine=2,
)


def cudnn_rows(text):
    rows = libraries.rows(logs.parse_text(text))
    return [
        (r["kind"], r["shape"], r["dtype"], r["kernel"], r["calls"])
        for r in rows
        if r["kind"] not in ("api", "plan_made")
    ]


def test_cudnn_tells_the_engine_that_ran_with_its_settings_and_shapes_once_a_call():
    heuristic = cudnn(
        "cudnnBackendSetAttribute", "attributeName: val=CUDNN_ATTR_ENGINE_GLOBAL_INDEX (301);", "[0]: val=99;"
    )
    inside = cudnn(
        "cudnnBackendExecuteInternal", "operation: type=internalType; val=CONV_FORWARD;", "engine_id: type=int; val=31;"
    )
    one = heuristic + cudnn("cudnnBackendExecute", *CONVOLVED) + inside + cudnn("cudnnBackendExecute", OK)
    other = cudnn("cudnnBackendExecute", *SDPA) + cudnn("cudnnBackendExecute", OK)
    assert cudnn_rows(one * 2 + other) == [
        ("convolution", "x 4x8x10x10, w 16x8x3x3", "float16", "engine 31 (tile size 2, kblock 4)", 2),
        ("attention", "q 1x6x1x32, k 1x3x77x32", "float16", "engine 5 (kernel cfg 1)", 1),
    ]
    log = logs.parse_text(one + other)
    assert (log.other, log.damaged) == (0, 0)
    (said,) = [f for f in library_judges.judge(log) if f["code"] == "CUDNN_RAN"]
    assert "engine 31 (tile size 2, kblock 4) x1" in said["words"]["operations"]


def test_a_plan_of_small_operations_is_named_by_the_mode_that_cudnn_found():
    run = cudnn("cudnnBackendExecute", *COMPOSITE)
    mode = cudnn(
        "cudnnBackendExecuteGraphVisualize",
        'apiLog: type=json; val={"operationGraph":{"finalizeMode":"SDPA_FWD","x":1}};',
    )
    other = mode.replace("SDPA_FWD", "INVALID_OPERATION_MODE")
    assert [r[:3] for r in cudnn_rows(run + mode)] == [("attention", "a 1x6x9x32, b 1x3x32x9", "float16")]
    assert [r[0] for r in cudnn_rows(run + other)] == ["plan"] == [r[0] for r in cudnn_rows(run)]


def test_older_layers_of_cudnn_count_once_and_a_warning_about_one_is_no_call():
    norm = cudnn(
        "cudnnBatchNormalizationForwardTrainingEx", "mode: val=CUDNN_BATCHNORM_SPATIAL (1);", *tensor("x", "3,5,7,7")
    )
    warning = norm.replace("I! ", "W! ").replace("i! ", "w! ")
    size = norm.replace("BatchNorm", "GetBatchNorm")
    assert cudnn_rows(size + norm + warning) == [("batch_norm", "x 3x5x7x7", "float16", "", 1)]


def test_a_plan_made_is_counted_with_the_time_that_its_log_gives():
    made = cudnn(
        "cudnnBackendFinalize",
        "descriptor: type=CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:",
        *SDPA[1:],
        at="23:59:59.990000",
    )
    made += cudnn("cudnnBackendFinalize", OK, at="00:00:00.015000")
    tensor_only = cudnn("cudnnBackendFinalize", "descriptor: type=CUDNN_BACKEND_TENSOR_DESCRIPTOR:") + cudnn(
        "cudnnBackendFinalize", OK
    )
    (row,) = [r for r in libraries.rows(logs.parse_text(tensor_only + made + tensor_only)) if r["kind"] == "plan_made"]
    assert (row["shape"], row["calls"], row["stage"], row["time_ms"]) == ("attention", 1, "search", pytest.approx(25))


def test_a_product_stands_in_the_call_that_handed_it_on_by_the_order_of_lines():
    outer = CUBLAS.split("I! ")[2]
    gemm, inner = f"I! {outer}", LT.format("cublasLtHSHMatmul") + "\n"
    log = logs.parse_text(gemm + inner + gemm)
    assert [(r["library"], r["kernel"], r["calls"]) for r in libraries.rows(log)] == [
        ("cuBLAS", "cuBLASLt algo 67 tile 64x32 stages 64xAUTO", 1), ("cuBLAS", "", 1),
    ]  # fmt: skip
    apart = logs.parse_text(gemm.replace("val=3072", "val=96") + inner)
    assert [r["library"] for r in libraries.rows(apart)] == ["cuBLASLt", "cuBLAS"]
    parted = logs.parse_text(gemm + f"{logs.MARK}next\n" + inner)
    assert [(r["library"], r["phase"]) for r in libraries.rows(parted)] == [("cuBLAS", ""), ("cuBLASLt", "next")]
    direct = LT.format("cublasLtMatmul") + "\n"
    engine = cudnn("cudnnBackendExecute", *CONVOLVED) + direct + cudnn("cudnnBackendExecute", OK)
    log = logs.parse_text(engine + direct)
    assert [(r["library"], r["kind"], r["calls"]) for r in libraries.rows(log)] == [
        ("cuDNN", "convolution", 1), ("cuBLASLt", "gemm", 1),
    ]  # fmt: skip
    assert libraries.rows(log)[0]["kernel"].endswith(" -> cuBLASLt algo 67 tile 64x32 stages 64xAUTO")


def test_cublaslt_says_into_how_many_parts_it_cut_the_inner_dimension():
    cut = LT.format("cublasLtMatmul").replace(" customOption", " reductionScheme=X numSplitsK=6 customOption")
    assert [r["kernel"] for r in libraries.rows(logs.parse_text(cut))] == [
        "algo 67 tile 64x32 stages 64xAUTO split-k 6"
    ]


def test_a_plan_that_only_the_front_end_names_is_counted_once_and_its_headings_belong_to_it():
    front = (
        "[cudnn_frontend] INFO: Executing ___eng9_k2=1...\n{run}[cudnn_frontend] INFO: Executed ___eng9_k2=1.\n"
        "========\n[cudnn_frontend] ||| === EXECUTE PLAN ALL OK == = |||\n========\n"
        "[cudnn_frontend] CUDNN_BACKEND_TENSOR_DESCRIPTOR :\n                    Dims 4\n"
    )
    assert cudnn_rows(front.format(run="")) == [("plan", "", "", "eng9_k2=1", 1)]
    told = front.format(run=cudnn("cudnnBackendExecute", *SDPA) + cudnn("cudnnBackendExecute", OK))
    assert [r[0] for r in cudnn_rows(told)] == ["attention"]
    assert logs.parse_text(told).other == 0


def test_cudnn_names_algorithm_or_engine():
    log = logs.parse_text(
        "I! CuDNN (v91002 17) function cudnnConvolutionForward() called:\n"
        "i!     algo: type=cudnnConvolutionFwdAlgo_t; val=CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD (6);\n"
        "I! CuDNN (v91002 17) function cudnnBackendExecute() called:\ni!     handle: type=cudnnHandle_t; streamId=0x0;\n"
        '[cudnn_frontend] INFO: Executing "eng14_k2=2" plan with workspace 262144\n'
    )
    found = {(r["kind"], r["kernel"]) for r in libraries.rows(log)}
    assert ("convolution", "CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD") in found and ("plan", "eng14_k2=2") in found


@pytest.mark.parametrize(
    "line",
    [
        "onednn_verbose,v1,primitive,exec,cpu,matmul,brg:avx512,undef,src:bf16::blocked:ab::f0 wei:bf16::blocked:ba::f0 "
        "dst:bf16::blocked:ab::f0,attr-scratchpad:user,,3x64:64x128,0.02",
        "onednn_verbose,v1,1693533460193.34,primitive,exec,cpu,matmul,brg:avx512,undef,src:bf16::blocked:ab::f0 x,,,3x64:64x128,1",
        "dnnl_verbose,exec,cpu,inner_product,gemm:jit,forward_inference,src_bf16::blocked:ab:f0 wei_bf16::x,,,mb3ic64oc128,0.1",
    ],
)
def test_onednn_old_and_new(line):
    assert gemm_rows(logs.parse_text(line)) == [("oneDNN", 128, 3, 64, 1, "bfloat16", "", 1)]


def test_mkl_gives_shapes_except_for_batches():
    log = logs.parse_text(
        "MKL_VERBOSE oneMKL 2024.0 Update 2 Product build 20240605 for Intel(R) 64 architecture\n"
        "MKL_VERBOSE SGEMM(T,N,128,1,64,0x7f,0x55,64,0x56,64,0x7f,0x57,128) 850.08us CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:2\n"
        "MKL_VERBOSE GEMM_BF16BF16F32(N,N,16,1,32,0x7f,0x55) 4.60us CNR:OFF\n"
        "MKL_VERBOSE SGEMM_BATCH(N,N,0x7fff204300b8,0x7fff204300b4,0x7f) 151.43us CNR:OFF\n"
    )
    assert gemm_rows(log) == [
        ("MKL", 128, 1, 64, 1, "float32", "", 1),
        ("MKL", 16, 1, 32, 1, "bfloat16", "float32", 1),
        ("MKL", None, None, None, 1, "float32", "", 1),
    ]
    assert libraries.rows(log)[0]["time_ms"] == pytest.approx(0.85008)
    assert log.damaged == log.other == 0


# ---- messages


def test_out_of_memory_old_and_new_wording(tmp_path):
    new = (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 4.00 GiB of "
        "which 300.00 MiB is free. Of the allocated memory 2.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by "
        "PyTorch but unallocated."
    )
    found = answer(tmp_path, new)
    assert (found["kind"], found["verdict"], found["numbers"]["asked_gib"]) == ("message", "OUT_OF_MEMORY", 0.5)
    assert found["numbers"]["other_gib"] == pytest.approx(4 - 300 / 1024 - 3.5)
    assert "fragmentation is possible" in found["sentence"]
    old = (
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.12 GiB already "
        "allocated; 15.06 MiB free; 6.30 GiB reserved in total by PyTorch)"
    )
    assert answer(tmp_path, old)["numbers"]["reserved_unused_gib"] == pytest.approx(0.18)
    bare = answer(tmp_path, "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.")
    assert bare["numbers"]["free_gib"] is None and bare["numbers"]["free_gib_reason"]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("x.py:3: UserWarning: Flash Efficient attention on Current AMD GPU is still experimental. Enable it\n"
         "x.py:3: UserWarning: Mem Efficient attention on Current AMD GPU is still experimental. Enable it", "SDPA_MATH_ONLY",
         "experimental"),
        ("UserWarning: Flash attention was not compiled for current AMD GPU architecture.\nUserWarning: Memory efficient "
         "attention was not compiled for current AMD GPU architecture.", "SDPA_MATH_ONLY", "no code for this GPU"),
        ("UserWarning: 1Torch was not compiled with memory efficient attention.", "SDPA_PATH_MISSING", "nothing about flash"),
        ("torch.AcceleratorError: HIP error: invalid device function", "KERNELS_MISSING", "no kernels"),
        ("RuntimeError: HIP error: no kernel image is available for execution on the device", "KERNELS_MISSING", ""),
        ("Memory access fault by GPU node-2 (Agent handle: 0x1) on address 0x7f. Reason: Unknown.", "GPU_FAULT", "node-2"),
        ('NotImplementedError: "sort_cuda" not implemented for \'Float8_e5m2\'', "OPERATOR_NOT_IMPLEMENTED", "Float8_e5m2"),
        ("[ 9.1] amdgpu 0000:03:00.0: amdgpu: ring sdma1 timeout, signaled seq=1\namdgpu: GPU reset begin!", "GPU_HANG", "sdma1"),
        ("RuntimeError: miopenStatusInternalError", "LIBRARY_ERROR", "miopenStatusInternalError"),
        ("RuntimeError: HIP error: the launch timed out and was terminated", "LIBRARY_ERROR", "timed out"),
        ("Enum not found! gfx1034", "OK", "hipBLASLt"),
        ("UserWarning: expandable_segments not supported on this platform", "OK", "expandable_segments"),
    ],
)  # fmt: skip
def test_what_a_message_means(tmp_path, text, code, said):
    found = answer(tmp_path, text)
    assert found["verdict"] == code
    assert said in found["sentence"]


# ---- form: encodings, interleaving, size, and what is left alone


def test_the_same_log_in_every_encoding_and_line_end(tmp_path):
    plain = "\n".join([*COMMANDS, "载入模型 ...", ""])
    forms = [plain.encode(), plain.replace("\n", "\r\n").encode("gbk"), plain.encode("utf-8-sig")]
    forms += [codecs.BOM_UTF16_LE + plain.encode("utf-16-le"), codecs.BOM_UTF16_BE + plain.encode("utf-16-be")]
    forms += [plain.replace("\n", "\r\n").encode("utf-16-le"), f"\x1b[31m{plain[:-1]}\x1b[0m\n".encode()]
    answers = [answer(tmp_path, form) for form in forms]
    assert all(a["numbers"] == answers[0]["numbers"] and a["verdict"] == "DAMAGED_LINES" for a in answers)
    assert answers[0]["numbers"]["other_lines"] == 2


def test_output_mixed_into_one_line_is_read_part_by_part():
    whole = BENCH.format(n=1)
    log = logs.parse_text(f"step 3 los{COMMANDS[0]}\n{whole[:60]}{COMMANDS[1]}\nLoading 50%|###\r{whole}")
    numbers = libraries.numbers(log)
    assert (numbers["convolutions"], numbers["gemm_calls"], numbers["damaged_lines"]) == (2, 1, 1)
    assert log.damaged_line == 2


def test_a_line_that_lost_its_beginning_is_damaged_not_other():
    lost = [BENCH.format(n=1)[30:], COMMANDS[0][12:], "-bench --api_method c -m 96 -n 1 -k 64 --a_type bf16_r"]
    log = logs.parse_text("\n".join(lost))
    assert (log.damaged, log.other, log.calls) == (3, 0, {})


def test_a_program_that_prints_headings_between_its_log_lines_is_still_a_log(tmp_path):
    path = tmp_path / "run.log"
    path.write_text(
        "## epoch 1\nfrom cache\n" + "\n".join([BENCH.format(n=1)] * 3) + "\n## epoch 2\n", encoding="utf-8"
    )
    assert logs.recognise(readers.Evidence(path))


def test_marks_divide_a_log_into_phases():
    log = logs.parse_text(f"{logs.MARK}prefill\n{BENCH.format(n=37)}\n{logs.MARK}decode\n{BENCH.format(n=1)}\n" * 2)
    assert [(r["phase"], r["n"], r["calls"]) for r in libraries.rows(log)] == [("prefill", 37, 2), ("decode", 1, 2)]
    assert log.phases == {"prefill": 2, "decode": 2} and log.other == 0


@pytest.mark.parametrize(
    "text",
    [
        "╔════════╤═══════╗\n║ Prompt │ tok/s ║\n╚════════╧═══════╝\n步长 33.3 ms，启动 45 µs: ok\n",
        "# Notes\n\nThe log says `rocBLAS error: Cannot read TensileLibrary.dat: x for GPU arch: gfx803`.\n\n## More\n",
        "| Text | Meaning |\n|---|---|\n| `HIP error: invalid device function` | no code |\n",
        'import torch\n\ndef test():\n    assert "HIP out of memory. Tried to allocate 2.00 GiB" in text\n',
        '{"traceEvents": [{"name": "MIOpen(HIP): Info [x] y"}]}',
        '[\n {"name": "rocblas_gemm_ex,T,N,1,1,1"}]',
        "Name,Calls,TotalDurationNs\nCijk_Ailk_Bljk_SB_MT64x64x8,3,1200\n",
        "PyTorch version: 2.9.1+rocm7.2\nROCM used to build PyTorch: 7.2\nHIP runtime version: 7.2\n",
        "",
        "\x00\x01\x02\x03" * 50,
        "训练完成，耗时 3 分钟。GPU 温度 61 度。\n",
    ],
)
def test_what_is_no_log_is_left_to_others(tmp_path, text):
    path = tmp_path / "other.txt"
    path.write_bytes(text.encode())
    assert not logs.recognise(readers.Evidence(path))


def test_an_error_far_below_a_program_s_own_output_is_found(tmp_path):
    noise = "".join(f"epoch {i}: loss {i / 7:.3f}\n" for i in range(20_000))
    found = answer(tmp_path, noise + "RuntimeError: HIP error: invalid device function\n")
    assert (found["verdict"], found["numbers"]["other_lines"]) == ("KERNELS_MISSING", 20_000)


def test_a_line_without_end_does_not_fill_the_memory(tmp_path):
    path = tmp_path / "long.log"
    path.write_bytes(BENCH.format(n=1).encode() + b"\n" + b"x" * 5_000_000)
    log = logs.parse(path)
    assert libraries.numbers(log)["gemm_calls"] == 1
    assert log.lines < 100


# ---- shuffled and cut logs

CORPUS = (
    COMMANDS + cudnn("cudnnBackendExecute", *CONVOLVED).split("\n")[:-2] + cudnn("cudnnBackendExecute", OK).split("\n")[:-2] + HIPRTC.splitlines() + RUNTIME.splitlines() + CUBLAS.splitlines() + [TRACE, BATCHED, BENCH.format(n=1)]
    + [LT.format("cublasLtMatmul"), "Enum not found! gfx1034", "HIP out of memory. Tried to allocate 2.00 GiB"]
    + ["MKL_VERBOSE SGEMM(T,N,128,1,64,0x7f,0x55,64) 850.08us CNR:OFF", "[x][HIPBLASLT][Trace][rocblaslt_matmul] A=[type="]
    + ["onednn_verbose,v1,primitive,exec,cpu,matmul,brg,undef,src:bf16::x wei:bf16::x,,,3x64:64x128,0.02", "  alpha=1", "}"]
)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from(["cut", "shuffle", "glue", "noise"]))
def test_damage_never_raises_and_counts_never_exceed_lines(seed, count, damage):
    rng = random.Random(seed)
    picked = [rng.choice(CORPUS) for _ in range(count)]
    if damage == "cut":
        picked = [line[rng.randrange(len(line) + 1) :][: rng.randrange(len(line) + 1)] for line in picked]
    elif damage == "noise":
        picked = [_noisy(line, rng) for line in picked]
    text = ("" if damage == "glue" else "\n").join(picked)
    log = logs.parse_text(text)
    found = library_judges.judge(log)
    for lang in findings.LANGUAGES:
        findings.paragraph(found, lang)
    records = len(picked) if damage == "glue" else len(text.splitlines())
    assert sum(t.calls for (c, _), t in log.calls.items() if c.kind in ("gemm", "convolution", "launch")) <= records
    assert log.other + log.damaged <= log.lines + 2 and log.known <= log.lines


def _noisy(line, rng):
    letters = list(line)
    for _ in range(rng.randrange(6)):
        letters[rng.randrange(len(letters))] = rng.choice(string.printable + "\ufffd中\x00") if letters else ""
    return "".join(letters)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.binary(max_size=400), st.sampled_from(["", "utf-16-le", "gbk"]))
def test_any_bytes_can_be_read(tmp_path_factory, data, encoding):
    path = tmp_path_factory.mktemp("bytes") / "any.log"
    start = "MIOpen(HIP): Info [x] 中\n"
    path.write_bytes(start.encode(encoding or "utf-8") + data)
    logs.recognise(readers.Evidence(path))
    log = logs.parse(path)
    library_judges.judge(log)
    assert log.lines >= 1
