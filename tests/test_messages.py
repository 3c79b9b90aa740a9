# ruff: noqa: E501 (messages are as long as they are)
"""Whose message is it, what does it mean, and what comes next? Judges of messages and library logs, each way round."""

import pytest
from cases import answer

from rocmlab import findings, libraries, library_judges, readers
from rocmlab.readers import logs


def codes(text):
    return [f["code"] for f in library_judges.judge(logs.parse_text(text))]


def said(text, code):
    (found,) = [f for f in library_judges.judge(logs.parse_text(text)) if f["code"] == code]
    for_zh = findings.say(found, "zh")
    assert for_zh["sentence"]
    spoken = findings.say(found)
    return spoken["sentence"] + " " + spoken["advice"]


# ---- whose message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("RuntimeError: {} error: an illegal memory access was encountered", "GPU_FAULT"),
        ("torch.AcceleratorError: {} error: unspecified launch failure", "GPU_FAULT"),
    ],
)
def test_a_fault_gets_the_advice_of_its_own_vendor(tmp_path, text, code):
    cuda, hip = (answer(tmp_path, text.format(name)) for name in ("CUDA", "HIP"))
    assert cuda["verdict"] == hip["verdict"] == code
    assert "HSA_" not in cuda["advice"] and "AMD_" not in cuda["advice"] and "CUDA_LAUNCH_BLOCKING" in cuda["advice"]
    assert "AMD_SERIALIZE_KERNEL" in hip["advice"] and "CUDA_" not in hip["advice"]


@pytest.mark.parametrize("text", ["cudaErrorIllegalAddress", "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"])
def test_names_of_the_cuda_runtime_are_cuda_too(text):
    assert "CUDA_LAUNCH_BLOCKING" in said(text, "GPU_FAULT")


OOM = (
    "{} out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 12.00 GiB of which {} MiB is free. Of "
    "the allocated memory 10.00 GiB is allocated by PyTorch, and {} MiB is reserved by PyTorch but unallocated."
)


def test_fragmentation_on_cuda_recommends_the_switch_that_rocm_refuses():
    apart = OOM.format("torch.OutOfMemoryError: CUDA", "20.00", "900.00")
    assert "expandable_segments:True" in said(apart, "OUT_OF_MEMORY")
    assert "refused by ROCm" in said(apart.replace("CUDA", "HIP"), "OUT_OF_MEMORY")
    short = OOM.format("CUDA", "20.00", "10.00")
    assert "real shortage" in said(short, "OUT_OF_MEMORY") and "ROCm" not in said(short, "OUT_OF_MEMORY")
    assert "ROCm builds do not have it" in said(short.replace("CUDA", "HIP"), "OUT_OF_MEMORY")


def test_free_and_unused_exactly_as_much_as_asked_is_no_shortage():
    assert "fragmentation is possible" in said(OOM.format("HIP", "32.00", "32.00"), "OUT_OF_MEMORY")


@pytest.mark.parametrize("name", ["HIP", "CUDA"])
def test_an_error_that_nobody_explains_is_its_own_library_s(name):
    found = said(f"RuntimeError: {name} error: the launch timed out and was terminated", "LIBRARY_ERROR")
    assert found.startswith(f"{name} reports an error")


def test_missing_kernels_by_vendor_and_by_what_the_message_names():
    cuda = said("RuntimeError: CUDA error: no kernel image is available for execution on the device", "KERNELS_MISSING")
    assert "rocmlab check" not in cuda and "get_arch_list" in cuda
    unnamed = said("RuntimeError: HIP error: invalid device function", "KERNELS_MISSING")
    assert "?" not in unnamed and "rocmlab check" in unnamed
    named = said("Cannot find CO in the bundle for ISA: amdgcn-amd-amdhsa--gfx1035:xnack-", "KERNELS_MISSING")
    assert "contains gfx1035" in named


# ---- queues, hangs, and a runtime that never starts


def test_a_queue_without_resources_is_a_fault_and_says_which():
    line = ":0:rocdevice.cpp :88: 1 us: Callback: Queue 0x5 aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed. Code: 0x1008"
    assert codes(line) == ["GPU_FAULT"]
    assert "ran out of resources" in said(line, "GPU_FAULT") and "HSA_OVERRIDE" not in said(line, "GPU_FAULT")
    other = line.replace("OUT_OF_RESOURCES", "MEMORY_APERTURE_VIOLATION")
    assert "ran out of resources" not in said(other, "GPU_FAULT")


def test_a_runtime_that_never_started_is_one_finding():
    text = "hsa_init failed with 4104\nHSA_STATUS_ERROR_OUT_OF_RESOURCES: x\nHSA_STATUS_ERROR_NOT_INITIALIZED: y\n"
    assert codes(text) == ["HSA_INIT_FAILED"]
    assert "4104" in said(text, "HSA_INIT_FAILED")
    assert codes("hsa_iterate_agents: HSA_STATUS_ERROR_NOT_INITIALIZED") == ["HSA_INIT_FAILED"]


@pytest.mark.parametrize("reason", ["reason :GPU Hang", "reason: ECC"])
def test_an_exception_of_the_hardware_is_a_lost_gpu(tmp_path, reason):
    found = answer(tmp_path, f"HW Exception by GPU node-3 (Agent handle: 0x77) {reason}\n")
    assert (found["kind"], found["verdict"]) == ("message", "GPU_HANG")
    assert f"node-3: {reason.split(':')[1].strip()}" in found["sentence"]


# ---- out of memory without sizes


@pytest.mark.parametrize(
    "text", ["HIP error: out of memory", "CUDA error: out of memory", "HIP error: hipErrorOutOfMemory"]
)
def test_out_of_memory_without_sizes_is_out_of_memory(tmp_path, text):
    found = answer(tmp_path, f"RuntimeError: {text}")
    assert (found["verdict"], found["numbers"]["asked_gib"]) == ("OUT_OF_MEMORY", None)
    assert found["numbers"]["asked_gib_reason"] and "unknown" not in found["sentence"]


def test_a_message_with_sizes_is_told_even_when_it_comes_second():
    text = "RuntimeError: HIP error: out of memory\n" + OOM.format("HIP", "20.00", "10.00")
    assert "0.06 GiB asked" in said(text, "OUT_OF_MEMORY")
    assert "cannot be told apart" in said("HIP out of memory. Tried to allocate 2.00 GiB.", "OUT_OF_MEMORY")


# ---- attention


FLASH, MEMORY = (
    "Flash Efficient attention on {} GPU is still experimental.",
    "Mem Efficient attention on {} GPU is still experimental.",
)
NO_FLASH, NO_MEMORY = (f"Torch was not compiled with {name} attention." for name in ("flash", "memory efficient"))
NO_TARGET = "Memory efficient attention was not compiled for current AMD GPU architecture."


def test_the_switch_for_attention_is_named_where_it_helps_and_only_there():
    current = [line.format("Current AMD") for line in (FLASH, MEMORY)]
    assert "Set TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1" in said("\n".join(current), "SDPA_MATH_ONLY")
    mixed = said(f"{current[0]}\n{NO_TARGET}", "SDPA_MATH_ONLY")
    assert "Set TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1" in mixed
    target = said(f"{NO_FLASH}\n{NO_TARGET}", "SDPA_MATH_ONLY")
    assert "does not help here" in target and "EXPERIMENTAL" not in target
    built = said(f"{NO_FLASH}\n{NO_MEMORY}", "SDPA_MATH_ONLY")
    assert "built without flash, memory-efficient attention" in built and "EXPERIMENTAL" not in built


def test_one_missing_path_of_attention_leaves_the_other_unknown():
    assert "nothing about memory-efficient" in said(NO_FLASH, "SDPA_PATH_MISSING")
    assert "nothing about flash" in said(NO_TARGET, "SDPA_PATH_MISSING")


# ---- values


@pytest.mark.parametrize(("error", "found"), [("0.2", ["WRONG_VALUE"]), ("0.1", []), ("nan-", [])])
def test_a_value_is_wrong_from_a_tenth_on(error, found):
    assert codes(f"dgemm 64 max abs err 3.5 max rel err {error}") == found


def test_the_worst_value_is_the_one_told():
    text = "sgemm a max abs err 1.0 max rel err 0.5\nsgemm b max abs err 2.0 max rel err 0.9\n"
    assert "sgemm b" in said(text, "WRONG_VALUE")


# ---- lists in sentences


def test_a_long_list_is_cut_and_says_by_how_many():
    lines = [f"\"op{i}_cuda\" not implemented for 'Half'" for i in range(8)]
    assert "op5_cuda (Half), +2" in said("\n".join(lines), "OPERATOR_NOT_IMPLEMENTED")
    assert "+" not in said("\n".join(lines[:6]), "OPERATOR_NOT_IMPLEMENTED")
    assert said("\n".join([lines[0]] * 3), "OPERATOR_NOT_IMPLEMENTED").count("op0_cuda") == 1


# ---- libraries


NAIVE = "MIOpen(HIP): Info [FillFindReturnParameters] FW Chosen Algorithm: ConvDirectNaiveConvFwd , 0, 1.25"
NO_DATABASE = "MIOpen(HIP): Warning [KernDb] database not present"
UNREADABLE = "MIOpen(HIP): Info2 [GetSolutionsFallback] Unable to read heuristics file: /opt/db/gfx1032.tn.model"


def test_a_naive_convolution_is_explained_by_what_the_log_shows():
    alone = said(NAIVE, "NAIVE_CONVOLUTION")
    assert "no other solver applies" in alone
    without = said(f"{NO_DATABASE}\n{NAIVE}", "NAIVE_CONVOLUTION")
    assert "no database for this card" in without and "MIOPEN_FIND_MODE=NORMAL" in without


def test_a_crash_needs_both_the_module_and_the_violation():
    module, violation = "Faulting module name: amdhip64_7.dll", "Exception code: 0xc0000005"
    assert codes(f"{module}\n{violation}") == ["DRIVER_WHEEL_MISMATCH"]
    assert codes(module) == codes(violation) == []


def test_a_status_after_its_explanation_is_no_second_fault():
    failed = "MIOpen(HIP): Error [BuildHip] HIPRTC status = HIPRTC_ERROR_COMPILATION (6), source file: MIOpenPool.cpp"
    status = "RuntimeError: miopenStatusUnknownError"
    assert codes(status) == ["LIBRARY_ERROR"]
    assert "LIBRARY_ERROR" not in codes(f"{failed}\n{status}")


def test_a_failed_call_is_named_unless_the_fault_itself_is():
    call = ":3:hip_module.cpp:791 : hipLaunchKernel: Returned hipErrorOutOfMemory : "
    fault = "Memory access fault by GPU node-1 on address 0x7. Reason: Page not present."
    assert "LIBRARY_ERROR" in codes(call)
    assert codes(f"{call}\n{fault}")[0] == "GPU_FAULT" and "LIBRARY_ERROR" not in codes(f"{call}\n{fault}")


@pytest.mark.parametrize(
    "line", ["rocBLAS warning: hipBlasLT failed, falling back to tensile", "hipBlasLT failed, falling back to tensile"]
)
def test_rocblas_that_takes_over_from_hipblaslt_is_no_error(line):
    log = logs.parse_text(line)
    assert (library_judges.judge(log), log.known, log.other) == ([], 1, 0)
    assert codes("rocBLAS error: something else") == ["LIBRARY_ERROR"]


# ---- public functions of hipBLASLt, and what only looks like a call


API = "[2026-03-01 10:00:00][HIPBLASLT][77][Api][{}] handle=0x1"


def test_public_calls_of_hipblaslt_are_counted_with_unknown_shape():
    numbers = libraries.numbers(logs.parse_text("\n".join([API.format("hipblasLtMatmul")] * 3)))
    assert (numbers["gemm_calls"], numbers["hipblaslt_calls"], numbers["gemm_calls_shape_unknown"]) == (3, 3, 3)


def test_the_public_and_the_inner_record_of_one_product_are_one():
    pair = [API.format("hipblasLtMatmul"), API.format("rocblaslt_matmul")]
    assert libraries.numbers(logs.parse_text("\n".join(pair * 2)))["gemm_calls"] == 2


def test_descriptors_and_heuristics_are_no_products():
    names = ("matmul_desc_create", "matmul_desc_set_attribute", "matmul_algo_get_heuristic", "matmul_preference_create")
    text = "\n".join(API.format(f"rocblaslt_{name}") for name in names)
    assert libraries.numbers(logs.parse_text(text))["gemm_calls"] == 0
    trace = text.replace("[Api]", "[Trace]")
    assert logs.parse_text(trace).damaged == 0
    log = logs.parse_text(text + "\n" + API.format("rocblaslt_matmul"))
    assert libraries.numbers(log)["gemm_calls"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "libraries: [rocblas_rules, rocblas_tables, other_file], wheels: [a, b]\n",
        "sources: rocblas_rules,rocblas_tables,other_file\n",
        "uses rocblas_set_stream, rocblas_get_stream and more\n",
    ],
)
def test_a_list_of_words_is_no_log_of_rocblas(tmp_path, text):
    assert answer(tmp_path, "name: x\n" + text)["verdict"] == "UNKNOWN_CONTENT"


@pytest.mark.parametrize(
    "line",
    [
        "rocblas_create_handle,atomics_allowed",
        "rocblas_set_stream,0x0",
        "rocblas_saxpy,96,1,0x1,1,0x2,1",
        "rocblas_dtrsv,U,N,N,8,00000223F861AEA0,8",
    ],
)
def test_short_records_of_rocblas_are_still_known(line):
    assert logs.parse_text(line).libraries["rocBLAS"] >= 1


def test_the_facts_about_architectures_are_no_log(shared):
    assert readers.answer(shared / "amd-facts" / "archs.yaml")["kind"] == "unknown"


# ---- counts, targets and variants


ARCH = "MIOpen(HIP): Info2 [Handle] Raw device name: gfx1103"
KERNEL_DB = "MIOpen(HIP): Warning [KernDb] database not present"
COMPILE = "MIOpen(HIP): Error [BuildHip] HIPRTC status = HIPRTC_ERROR_COMPILATION (6), source file: MIOpenPooling.cpp"
NO_TENSILE = "rocBLAS error: Cannot read /opt/TensileLibrary.dat: Illegal seek for GPU arch : gfx1034"
HEURISTICS = "MIOpen(HIP): Info2 [GetSolutionsFallback] Unable to load file: /opt/db/gfx1103.tn.model)"


@pytest.mark.parametrize("text", [KERNEL_DB, COMPILE, "HIP error: invalid device function"])
def test_a_target_that_the_log_names_elsewhere_is_said(text):
    code = codes(text)[0]
    assert "gfx1103" not in said(text, code) and "gfx1103" in said(f"{ARCH}\n{text}", code)


def test_what_the_log_does_not_name_is_not_claimed():
    assert "no_header" in [f["variant"] for f in library_judges.judge(logs.parse_text(COMPILE))]
    missing = [f for f in library_judges.judge(logs.parse_text(NO_TENSILE)) if f["code"] == "NO_BLAS_KERNELS"]
    assert [f["variant"] for f in missing] == ["no_list"]
    assert codes("rocBLAS error: Could not initialize Tensile library") == ["NO_BLAS_KERNELS"]
    assert "heuristics file gfx1103.tn.model" in said(f"{HEURISTICS}\n{NAIVE}\n{NO_DATABASE}", "NAIVE_CONVOLUTION")
    partly = OOM.format("HIP", "20.00", "10.00").split("and 10.00 MiB")[0]
    assert "does not hold all parts" in said(partly, "OUT_OF_MEMORY")


@pytest.mark.parametrize("cause", [COMPILE, NO_TENSILE])
def test_a_status_is_a_consequence_of_each_cause(cause):
    assert "LIBRARY_ERROR" not in codes(f"{cause}\nRuntimeError: rocblas_status_internal_error")


@pytest.mark.parametrize(
    ("line", "code", "key"),
    [
        ("Memory access fault by GPU node-1 on address 0x7. Reason: Page not present.", "GPU_FAULT", "gpu_faults"),
        ("amdgpu: GPU reset begin!", "GPU_HANG", "driver_lines"),
        ("RuntimeError: HIP error: unknown error", "LIBRARY_ERROR", "library_errors"),
        (
            ":3:hip_module.cpp:791 : hipLaunchKernel: Returned hipErrorInvalidValue : ",
            "LIBRARY_ERROR",
            "library_errors",
        ),
        (NAIVE, "NAIVE_CONVOLUTION", "naive_convolutions"),
        ("loaded TensileLibrary_Type_HH_fallback_gfx1034.hsaco", "FALLBACK_KERNEL", "fallback_lines"),
    ],
)
def test_what_came_three_times_is_counted_three_times(line, code, key):
    found = {f["code"]: f for f in library_judges.judge(logs.parse_text("\n".join([line] * 3)))}
    assert found[code]["numbers"][key] == 3


def test_the_first_message_is_told_and_a_library_by_its_own_name():
    text = "HIP error: one thing\nHIP error: a second one\n"
    assert "one thing" in said(text, "LIBRARY_ERROR") and "second one" not in said(text, "LIBRARY_ERROR")
    assert said("RuntimeError: miopenStatusUnknownError", "LIBRARY_ERROR").startswith("miopen reports")


def test_notes_of_libraries():
    assert codes("MIOpen(HIP): Info [Find] MIOPEN_FIND_MODE = DYNAMIC_HYBRID(5)") == ["FIND_MODE_DYNAMIC"]
    assert codes("Enum not found! gfx1034") == ["HIPBLASLT_NOT_USED"]
    (tuned,) = library_judges.judge(logs.parse_text("GemmTunableOp_Half_TN,tn_3_1_4,Gemm_Hipblaslt_7,0.02"))
    assert (tuned["numbers"]["tuned_shapes"], tuned["numbers"]["tuned_hipblaslt"]) == (1, 1)


def test_a_bench_result_is_a_rate_of_one_call():
    table = "transA,transB,M,N,K,batch_count,rocblas-Gflops,us\nT,N,{},1000,500,4,1,{}\n"
    text = table.format(1000, "2000.0") * 2 + table.format(3000, "1000.0")
    (found,) = [f for f in library_judges.judge(logs.parse_text(text)) if f["code"] == "GEMMS_BENCHED"]
    assert found["numbers"]["bench_results"] == 2  # two shapes, the first measured twice
    assert "1000x1000x500: 2 TFLOP/s; 3000x1000x500: 12 TFLOP/s" in findings.say(found)["sentence"]  # 2 m n k batch / t
    assert "TFLOP" not in said(table.format(1000, "0.0"), "GEMMS_BENCHED")


def test_convolutions_and_norms_of_a_log_are_in_its_note():
    line = "MIOpen(HIP): Command [LogCmdBNorm] MIOpenDriver.exe bnorm -n 4 -c 8 -D 3 -H 2 -W 2 -m 1 --forw 1 -b 0 -r 1 -s 1"
    (found,) = [f for f in library_judges.judge(logs.parse_text(line)) if f["code"] == "CONVOLUTIONS_LOGGED"]
    assert (found["numbers"]["batch_norms"], found["numbers"]["convolutions"]) == (1, 0)


def test_each_library_is_told_its_own_products():
    trace = "rocblas_hgemm,N,T,7,3,5,1,0x1,7,0x2,3,0,0x3,7,atomics_not_allowed"
    log = logs.parse_text("\n".join([trace, trace, API.format("hipblasLtMatmul")]))
    found = {f["words"]["library"]: f["numbers"] for f in library_judges.judge(log) if f["code"] == "GEMMS_LOGGED"}
    assert found == {"rocBLAS": {"rocblas_calls": 2}, "hipBLASLt": {"hipblaslt_calls": 1}}


def test_the_first_damaged_line_is_named():
    assert "line 2" in said("MIOpen(HIP): Info [x] y\nMIOpen(HIP): Comma\n", "DAMAGED_LINES")
