"""Kernel and call names, and the tables that only hold sums."""

import json
import types

import pytest

from rocmlab import calls, kernels, readers
from rocmlab.readers import key_averages


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("Cijk_Ailk_Bljk_HHS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x32_MI16x16x1_SN", "hipBLASLt"),
        ("Custom_Cijk_Alik_Bljk_BBS_BH_UserArgs_MT256x256x64", "hipBLASLt"),
        ("Cijk_Ailk_Bljk_SB_MT64x64x8_SN_1LDSB0_WS32", "rocBLAS/Tensile"),
        ("void rocblas_gemvt_sn_kernel<true, 256, 4>(int)", "rocBLAS"),
        ("attn_fwd", "AOTriton"),
        ("bwd_kernel_dk_dv", "AOTriton"),
        ("_ZN2ck16tensor_operation6device12kernel_gemm_xdl", "CK"),
        ("void ck_tile::kentry<256, 2>(ck_tile::FmhaFwdKernel)", "CK"),
        ("MIOpenBatchNormFwdInferSpatialEst", "MIOpen"),
        ("miopenSp3AsmConv_v21_1_3_gfx10_fp32_f2x3_stride1", "MIOpen"),
        ("igemm_fwd_gtcx_nhwc_fp16_bx0_ex1", "MIOpen"),
        ("batched_transpose_64x64_pack_4x4_half", "MIOpen"),
        ("Im2Col", "MIOpen"),
        ("naive_conv_fwd_nchw_half_double_half", "MIOpen"),
        ("triton_red_fused_add_mean_3", "Triton (inductor)"),
        ("triton_poi_fused_mul_0", "Triton (inductor)"),
        ("_rms_norm_fwd_fused", "Triton (other)"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "PyTorch native"),
        ("void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half>", "PyTorch native"),
        ("_ZN2at6native12_GLOBAL__N_125reduce_kernel", "PyTorch native"),
        ("void rocprim::detail::trampoline_kernel<rocprim::config>", "rocPRIM/CUB/Thrust"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "RCCL/NCCL"),
        ("__amd_rocclr_copyBuffer", "memcpy"),
        ("rocclr_fillBufferAligned", "memset"),
        ("Memcpy HtoD (Host -> Device)", "memcpy"),
        ("nvjet_hsh_128x64_64x4_2x1_v_bz_TNN", "cuBLAS/CUTLASS"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", "cuDNN"),
        ("void bodyForce(Body*, float, int)", "other"),
        ("my_stencil<double>(double*)", "other"),
    ],
)
def test_library_of_a_kernel_by_its_name(name, library):
    assert kernels.library(name) == library
    assert kernels.library(f'"{name} [clone .kd]"') == library


def test_names_are_plain_without_the_marks_of_tools():
    assert kernels.plain('"void f<int>(float*) [clone .kd]"') == "f<int>(float*)"
    assert kernels.plain("Cijk_A_B_UserArgs_MT1 (Custom tuning: GSU: 4)") == "Cijk_A_B_UserArgs_MT1"


def test_matrix_products_by_name():
    products = [
        "Cijk_Alik_Bljk_SB_MT8x8x8",
        "gemm",
        "void rocblas_gemvn_kernel<64>",
        "ampere_sgemm_32x32",
        "_matmul_ogs_16x128",
    ]
    others = ["igemm_fwd_gtcx3_nhwc", "add", "triton_poi_fused_mul_0", "attn_fwd"]
    assert all(kernels.is_gemm(name) for name in products)
    assert not any(kernels.is_gemm(name) for name in others)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("hipLaunchKernel", "launch_api"), ("hipExtModuleLaunchKernel", "launch_api"), ("hipGraphLaunch", "launch_api"),
        ("cudaLaunchKernelExC", "launch_api"), ("cuLaunchKernelEx", "launch_api"),
        ("hipLaunchCooperativeKernel", "launch_api"),
        ("hipLaunchHostFunc", "other_api"), ("__hipPushCallConfiguration", "other_api"),
        ("hipDeviceSynchronize", "sync_api"), ("cudaStreamSynchronize", "sync_api"),
        ("hipMemcpyWithStream", "sync_api"),
        ("hipMemcpy", "sync_api"), ("hipMemcpyDtoH", "sync_api"), ("cudaEventSynchronize", "sync_api"),
        ("hipMemcpyAsync", "copy_api"), ("cudaMemcpy2DAsync", "copy_api"), ("hipMemsetAsync", "copy_api"),
        ("hipMalloc", "alloc_api"), ("cudaFree", "alloc_api"), ("hipHostMalloc", "alloc_api"),
        ("hipMallocAsync", "alloc_api"),
        ("hipModuleLoadData", "module_load_api"), ("cuLibraryLoadData", "module_load_api"),
        ("hipStreamIsCapturing", "other_api"), ("hipGetDevicePropertiesR0600", "other_api"),
    ],
)  # fmt: skip
def test_kind_of_a_host_call(name, kind):
    assert calls.kind(name) == kind
    assert kind in calls.ACTIVITIES


def test_views_and_allocations_launch_nothing_and_arithmetic_does():
    quiet = [
        "view",
        "_unsafe_view",
        "as_strided",
        "t",
        "empty_strided",
        "empty_like",
        "detach_",
        "to",
        "unsqueeze",
        "result_type",
    ]
    loud = ["add", "copy_", "mm", "index_select", "cat", "topk", "tril", "fill_", "nonzero"]
    assert all(calls.launches_nothing(f"aten::{name}") for name in quiet)
    assert not any(calls.launches_nothing(f"aten::{name}") for name in loud)


# --- sums of torch.profiler


OLD = {
    "key": "aten::mm",
    "count": 4,
    "self_cpu_time_total": 30.0,
    "self_cuda_time_total": 70.5,
    "cuda_time_total": 70.5,
}
NEW = {
    "key": "aten::mm",
    "count": 4,
    "self_cpu_time_total": 30.0,
    "self_device_time_total": 70.5,
    "device_time_total": 70.5,
}


@pytest.mark.parametrize("row", [OLD, NEW])
def test_totals_of_old_and_new_torch_are_sums_of_self_times(row):
    outer = {
        key: 0.0 if (key.startswith("self_c") and "cpu" not in key) or "self_d" in key else value
        for key, value in row.items()
    }
    rows = [
        types.SimpleNamespace(**row),
        types.SimpleNamespace(**{**outer, "key": "aten::linear", "self_cpu_time_total": 5.0}),
    ]
    assert key_averages.totals(rows) == {"self_cpu_us": 35.0, "self_device_us": 70.5}


def test_kernels_that_stand_as_rows_of_their_own_are_not_counted_twice():
    operator = types.SimpleNamespace(**NEW, device_type="DeviceType.CPU", is_user_annotation=False)
    kernel = types.SimpleNamespace(
        **{**NEW, "self_cpu_time_total": 0.0}, device_type="DeviceType.CUDA", is_user_annotation=False
    )
    mark = types.SimpleNamespace(
        **{**NEW, "self_cpu_time_total": 0.0}, device_type="DeviceType.CUDA", is_user_annotation=True
    )
    assert key_averages.totals([operator, kernel, mark])["self_device_us"] == 70.5


def test_no_device_times_are_unknown():
    rows = [types.SimpleNamespace(key="aten::mm", count=1, self_cpu_time_total=3.0)]
    assert key_averages.totals(rows) == {"self_cpu_us": 3.0, "self_device_us": None}


def test_totals_of_a_real_profile():
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.ones(32, 32) @ torch.ones(32, 32)
    rows = profiler.key_averages()
    assert key_averages.totals(rows)["self_cpu_us"] == pytest.approx(
        sum(row.self_cpu_time_total for row in rows), abs=0.01
    )


TABLE = """
-------------------------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------
                                                   Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg     Self CUDA   Self CUDA %    CUDA total  CUDA time avg    # of Calls
-------------------------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------
Cijk_Ailk_Bljk_HHS_BH_MT32x32x16_SN_K1_WS32...                  0.00%       0.000us         0.00%       0.000us       0.000us       6.000ms        75.00%       6.000ms      60.000us           100
void at::native::vectorized_elementwise_kernel<4, at...         0.00%       0.000us         0.00%       0.000us       0.000us       2.000ms        25.00%       2.000ms      20.000us           100
                                        hipLaunchKernel        40.00%       1.200ms        40.00%       1.200ms      12.000us       0.000us         0.00%       0.000us       0.000us           100
                               hipExtModuleLaunchKernel        20.00%     600.000us        20.00%     600.000us       6.000us       0.000us         0.00%       0.000us       0.000us           100
                                   hipDeviceSynchronize        40.00%       1.200ms        40.00%       1.200ms       1.200ms       0.000us         0.00%       0.000us       0.000us             1
-------------------------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------
Self CPU time total: 3.000ms
Self CUDA time total: 8.000ms
"""  # noqa: E501


def read(tmp_path, text, name="table.txt"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return readers.answer(tmp_path / name)


def test_a_printed_table_of_torch_profiler(tmp_path):
    got = read(tmp_path, TABLE)
    assert (got["kind"], got["verdict"]) == ("torch-profiler-table", "OK")
    expected = {
        "kernels": 200, "kernel_us": 8000.0, "largest_kernel_pct": 75.0, "launches": 200, "launch_api_us": 9.0,
        "sync_calls": 1,
        "sync_us": 1200.0, "self_cpu_us": 3000.0, "self_device_us": 8000.0,
    }  # fmt: skip
    assert {key: got["numbers"][key] for key in expected} == expected
    assert got["libraries"] == {"rocBLAS/Tensile": 6000.0, "PyTorch native": 2000.0}


def test_rows_whose_header_was_cut_off_have_no_total(tmp_path):
    rows = [line for line in TABLE.splitlines() if line.endswith(("100", " 1"))]
    got = read(tmp_path, "\n".join(rows))
    assert (got["kind"], got["numbers"]["kernel_us"], got["numbers"]["self_device_us"]) == (
        "torch-profiler-table",
        8000.0,
        None,
    )


def test_a_table_without_device_rows_says_not_recorded(tmp_path):
    lines = [line for line in TABLE.splitlines() if not line.startswith(("Cijk", "void", "Self CUDA"))]
    got = read(tmp_path, "\n".join(lines))
    assert (got["verdict"], got["numbers"]["self_device_us"]) == ("NO_DEVICE_DATA", None)


def test_a_table_that_was_pasted_without_its_first_ruler(tmp_path):
    whole = read(tmp_path, TABLE)["numbers"]
    from_title = TABLE.split("\n", 2)[2]
    assert from_title.lstrip().startswith("Name")
    for pasted in (from_title, f"in the shell:\n{from_title}", from_title.lstrip(), f"{from_title}\n{TABLE}"):
        got = read(tmp_path, pasted)
        times = 2 if pasted.count("Self CPU %") == 2 else 1
        assert (got["kind"], got["numbers"]["kernels"]) == ("torch-profiler-table", 200 * times)
        assert got["numbers"]["self_device_us"] == times * whole["self_device_us"]


@pytest.mark.parametrize(
    ("odd", "kernel_us"),
    [("6.000ms        75.00%", 8000.0), (".ms            75.00%", 2000.0), (f"{'9' * 400}ms 75%", 2000.0)],
)
def test_times_and_counts_that_are_none_cost_their_cell(tmp_path, odd, kernel_us):
    damaged = TABLE.replace("6.000ms        75.00%", odd)
    assert read(tmp_path, damaged)["numbers"]["kernel_us"] == kernel_us


def test_a_title_alone_and_a_count_of_other_digits_are_no_rows(tmp_path):
    title = TABLE.splitlines()[2]
    assert read(tmp_path, title)["numbers"]["rows"] == 0
    assert read(tmp_path, f"{title}\n{title}\n")["numbers"]["rows"] == 0
    superscript = TABLE.replace("60.000us           100", "60.000us           ¹⁰⁰")
    assert read(tmp_path, superscript)["numbers"]["kernels"] == 100


def test_recorded_times_that_are_no_numbers_are_left_out():
    rows = [{"self_cpu_time_total": value} for value in (3.0, float("nan"), float("inf"), 10**400, "x", [])]
    assert key_averages.totals(rows)["self_cpu_us"] == 3.0


# --- as PowerShell writes them


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "utf-8-sig"])
def test_tables_redirected_on_windows_are_recognised(tmp_path, encoding):
    stats = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"void k<1>(int, float)",3,6000,2000,100.0\n'
    domains = "ROCPROFV3 SUMMARY:\n\n| NAME | DOMAIN | CALLS | NS |\n| k | KERNEL_DISPATCH | 3 | 6000 |\n"
    for text in (TABLE, stats, domains):
        plain = read(tmp_path, text)
        assert plain["kind"] != "unknown"
        (tmp_path / "out.txt").write_bytes(text.replace("\n", "\r\n").encode(encoding))
        got = readers.answer(tmp_path / "out.txt")
        assert (got["kind"], got["numbers"]) == (plain["kind"], plain["numbers"])


# --- rocprof and rocprofv3


@pytest.mark.parametrize("odd", ["nan", "inf", "1e400", "9" * 30, "x", ""])
def test_durations_that_are_no_numbers_cost_their_line(tmp_path, odd):
    head = '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n"a",3,6000,1,1,1,1,1\n'
    got = read(tmp_path, f'{head}"b",3,{odd},1,1,1,1,1\n')
    assert (got["numbers"]["kernel_us"], [f["code"] for f in got["findings"]]) == (6.0, ["DAMAGED_LINES"])
    trace = f'"Kernel_Name","Start_Timestamp","End_Timestamp"\n"a",1000,3000\n"b",5000,{odd}\n"c,9000,9500\n"d\0",9,9\n'
    got = read(tmp_path, trace)
    assert (got["numbers"]["kernel_us"], got["numbers"]["kernels"]) == (2.0, 2)


def test_kernel_statistics_of_both_tools(tmp_path):
    old = (
        '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"step(float*, int) [clone .kd]",4,8000,2000,100.0\n'
    )
    new = (
        '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
        '"void at::native::f<4>(int, int)",3,6000,2000.000000,75.00,1900,2100,0.00000000e+00\n'
        '"__amd_rocclr_fillBufferAligned",1,2000,2.000e+03,2.500e+01,2000,2000,0.00000000e+00\n'
    )
    first, second = read(tmp_path, old, "results.stats.csv"), read(tmp_path, new, "kernel_stats.csv")
    assert (first["kind"], first["numbers"]["kernels"], first["numbers"]["kernel_us"]) == (
        "rocprof-kernel-stats-csv",
        4,
        8.0,
    )
    assert second["kind"] == "rocprofv3-kernel-stats-csv"
    assert second["libraries"] == {"PyTorch native": 6.0, "memset": 2.0}


def test_a_kernel_trace_gives_the_union_of_one_device_and_no_share(tmp_path):
    header = (
        '"Kind","Agent_Id","Queue_Id","Thread_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    )
    rows = [("Agent 2", 1000, 5000), ("Agent 2", 4000, 9000), ("Agent 2", 19000, 20000), ("Agent 3", 0, 90000)]
    text = (
        header
        + "".join(f'"KERNEL_DISPATCH","{a}",1,7,"f(int, int)",1,{b},{e}\n' for a, b, e in rows)
        + '"KERNEL_DISP\n'
    )
    got = read(tmp_path, text, "trace.csv")
    assert got["kind"] == "rocprofv3-kernel-trace-csv"
    expected = {"kernels": 4, "kernel_us": 100.0, "busy_us": 9.0, "span_us": 19.0, "busy_pct": None}
    assert {key: got["numbers"][key] for key in expected} == expected
    assert got["verdict"] == "DAMAGED_LINES"


def test_rows_of_rocprof_without_their_header(tmp_path):
    row = '{i},"f(int, int) [clone .kd]",0,0,14,7,7,65536,256,0,0,20,4,16,64,"0x0","0x7f00",{a},{b},{e},{c},{d}\n'
    text = "".join(
        row.format(i=i, a=100 * i, b=100 * i + 10, e=100 * i + 70, c=100 * i + 80, d=60) for i in range(1, 4)
    )
    got = read(tmp_path, text, "results.csv")
    assert (got["kind"], got["numbers"]["kernels"], got["numbers"]["kernel_us"]) == ("rocprof-kernel-csv", 3, 0.18)


def test_host_calls_and_copies(tmp_path):
    api = (
        '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
        '"HIP_RUNTIME_API_EXT","hipLaunchKernel",2,2,1,100,4100\n"HIP_RUNTIME_API_EXT","hipMemcpy",2,2,2,5000,25000\n'
    )
    copies = (
        '"Kind","Direction","Stream_Id","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp",'
        '"End_Timestamp"\n"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",0,"Agent 0","Agent 4",1,0,3000\n'
    )
    got = read(tmp_path, api, "hip_api_trace.csv")
    numbers = got["numbers"]
    assert (got["kind"], numbers["launches"], numbers["launch_api_us"], numbers["sync_us"]) == (
        "rocprofv3-hip-api-trace-csv", 1, 4.0, 20.0,
    )  # fmt: skip
    assert read(tmp_path, copies, "memory_copy_trace.csv")["numbers"]["copy_us"] == 3.0


def test_the_summary_counts_each_row_once(tmp_path):
    head = "| NAME | DOMAIN | CALLS | DURATION (nsec) | AVERAGE (nsec) |\n|------|------|------|------|------|\n"
    row = "| f(int, int) | KERNEL_DISPATCH | 8 | 4000 | 5.000e+02 |\n"
    text = f"ROCPROFV3 KERNEL_DISPATCH SUMMARY:\n\n{head}{row}\n\nROCPROFV3 SUMMARY:\n\n{head}{row}"
    got = read(tmp_path, text)
    assert (got["kind"], got["numbers"]["kernels"], got["numbers"]["kernel_us"]) == ("rocprofv3-summary-text", 8, 4.0)


KINDS = {
    "rocprof-hip-stats-csv": "rocprof-hip-api-stats-csv", "rocprof-stats-csv": "rocprof-kernel-stats-csv",
    "rocprofv3-counter-csv": "rocprofv3-counter-csv",
}  # fmt: skip


def test_samples_of_all_tables_are_recognised(shared):
    seen = 0
    for path in sorted((shared / "amd-samples").iterdir()):
        first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        kind = first.partition("kind: ")[2].partition(" |")[0]
        if kind.startswith(("rocprof", "torch-profiler")):
            got = readers.answer(path)
            assert got["kind"] == KINDS.get(kind, kind), path.name
            assert got["verdict"] == "OK", path.name
            json.dumps(got, allow_nan=False)
            seen += 1
    assert seen >= 15


def test_sample_names_of_kernels(shared):
    owners = {"rocBLAS": "rocBLAS/Tensile", "hipBLASLt": "hipBLASLt", "MIOpen": "MIOpen", "PyTorch": "PyTorch native"}
    lines = (shared / "amd-samples" / "kernel-names-real.txt").read_text(encoding="utf-8").splitlines()[1:]
    for line in lines:
        name, _, owner = line.partition("\t")
        word = owner.split()[0].strip(",")
        wanted = owners.get(word) or ("Triton (inductor)" if word == "Inductor" else None)
        wanted = wanted or ("memset" if "memset" in owner else "memcpy")
        assert kernels.library(name) == wanted, name
