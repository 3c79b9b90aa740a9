"""Output of the tools, in the forms of several releases: own examples inline, and every sample of the folder beside."""

import json

import pytest
from cases import answer

from rocmlab import readers, tools
from rocmlab.readers import hip_tools, inventories, nvidia_smi, rocminfo, smi

AGENTS = """\
ROCk module version 6.12.12 is loaded
=====================
HSA System Attributes
=====================
Runtime Version:         1.15

==========
HSA Agents
==========
*******
Agent 1
*******
  Name:                    AMD Ryzen 5 5600
  Marketing Name:          AMD Ryzen 5 5600
  Vendor Name:             CPU
  Node:                    0
  Device Type:             CPU
  Compute Unit:            12
  SIMDs per CU:            0
*******
Agent 2
*******
  Name:                    gfx1031
  Marketing Name:          AMD Radeon RX 6700 XT
  Vendor Name:             AMD
  Node:                    1
  Device Type:             GPU
  Cache Info:
    L2:                      3072(0xc00) KB
    L3:                      98304(0x18000) KB
  Chip ID:                 29663(0x73df)
  Max Clock Freq. (MHz):   2855
  Compute Unit:            40
  SIMDs per CU:            2
  Wavefront Size:          32(0x20)
  Packet Processor uCode:: 115
  Pool Info:
    Pool 1
      Segment:                 GLOBAL; FLAGS: COARSE GRAINED
      Size:                    12566528(0xbfc000) KB
    Pool 2
      Segment:                 GROUP
      Size:                    64(0x40) KB
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx1031
*******
Agent 3
*******
  Name:                    aie2
  Vendor Name:             AMD
  Device Type:             DSP
  SIMDs per CU:            0
*** Done ***
"""


def test_rocminfo_knows_the_gpu_by_its_type(tmp_path):
    parsed = rocminfo.parse(AGENTS)
    (gpu,) = rocminfo.gpus(parsed)
    assert (gpu["name"], gpu["compute_units"], gpu["l3_kb"], gpu["chip_id"]) == ("gfx1031", 40, 98304, 0x73DF)
    assert gpu["memory_kb"] == 12566528 and gpu["isas"] == ["amdgcn-amd-amdhsa--gfx1031"]
    assert parsed["module_version"] == "6.12.12" and parsed["complete"]
    said = answer(tmp_path, AGENTS)
    assert (said["kind"], said["verdict"]) == ("tool_output", "OK") and said["numbers"]["gpus"] == 1
    assert "RX 6700 XT (gfx1031)" in said["sentence"]


def test_rocminfo_cut_at_either_end(tmp_path):
    head, tail = AGENTS[: AGENTS.index("  ISA Info")], AGENTS[AGENTS.index("  Device Type:             GPU") :]
    for text in (head, tail):
        found = answer(tmp_path, text)
        assert "TOOL_OUTPUT_CUT" in [one["code"] for one in found["findings"]] and found["numbers"]["gpus"] == 1
    assert rocminfo.gpus(rocminfo.parse(tail))[0]["name"] == "gfx1031"


def test_colours_in_a_pipe(tmp_path):
    red = "\x1b[31mROCk module is NOT loaded, possibly no GPU devices\x1b[0m\n"
    found = answer(tmp_path, red)
    assert (found["verdict"], found["status"]) == ("DRIVER_NOT_LOADED", "broken")


@pytest.mark.parametrize(
    ("dmesg", "code"),
    [
        ("[ 5.1] Loading of unsigned module is rejected", "DRIVER_NOT_LOADED_SECURE_BOOT"),
        ("modprobe: ERROR: could not insert 'amdgpu': Key was rejected by service", "DRIVER_NOT_LOADED_SECURE_BOOT"),
        ("Lockdown: modprobe: unsigned module loading is restricted", "DRIVER_NOT_LOADED_SECURE_BOOT"),
        (
            "amdgpu: module verification failed: signature and/or required key missing - tainting kernel",
            "DRIVER_NOT_LOADED",
        ),
        ("[ 5.1] amdgpu: probe of 0000:03:00.0 failed with error -22", "DRIVER_NOT_LOADED"),
    ],
)
def test_a_transcript_tells_why_the_module_is_absent(tmp_path, dmesg, code):
    text = f"$ rocminfo\nROCk module is NOT loaded, possibly no GPU devices\n$ dmesg | grep amdgpu\n{dmesg}\n"
    found = answer(tmp_path, text)
    assert found["verdict"] == code and "windows" not in (found["sentence"] + found["advice"]).lower()


@pytest.mark.parametrize(
    "refusal",
    [
        "modprobe: ERROR: could not insert 'nvidia': Required key not available",
        "insmod: ERROR: could not insert module ./vboxdrv.ko: Key was rejected by service",
        "[ 3.1] Loading of unsigned module is rejected\nnvidia: module verification failed: "
        "signature and/or required key missing",
    ],
)
def test_another_module_that_is_refused_says_nothing_of_amdgpu(tmp_path, refusal):
    found = answer(tmp_path, f"$ lsmod | grep amdgpu\n$ mokutil --sb-state\nSecureBoot enabled\n{refusal}\n")
    assert found["verdict"] != "DRIVER_NOT_LOADED_SECURE_BOOT"


def test_an_unsigned_module_that_was_loaded_all_the_same_is_no_fault(tmp_path):
    taint = "amdgpu: module verification failed: signature and/or required key missing - tainting kernel\n"
    assert answer(tmp_path, taint + AGENTS)["verdict"] == "OK"


CONCISE_2019 = """\
========================ROCm System Management Interface========================
GPU  Temp   AvgPwr  SCLK    MCLK    Fan    Perf  PwrCap  VRAM%  GPU%
0    41.0c  12.0W   300Mhz  167Mhz  0.0%   auto  180.0W    3%    0%
==============================End of ROCm SMI Log ==============================
"""
CONCISE_7 = """\
============================ ROCm System Management Interface ============================
Device  Node  IDs              Temp    Power  Partitions          SCLK    MCLK   Fan  Perf  PwrCap  VRAM%  GPU%
0       1     0x73ff,   12345  61.0°C  95.0W  N/A, N/A, 0         2410Mhz 875Mhz 35%  auto  100.0W  61%    99%
================================== End of ROCm SMI Log ===================================
"""


@pytest.mark.parametrize(
    ("text", "temp", "power", "sclk", "use"),
    [(CONCISE_2019, 41.0, 12.0, 300.0, 0.0), (CONCISE_7, 61.0, 95.0, 2410.0, 99.0)],
)
def test_smi_tables_by_unit_not_by_column(tmp_path, text, temp, power, sclk, use):
    (row,) = smi.parse(text)["gpus"]
    assert (row["temp_c"], row["power_w"], row["sclk_mhz"], row["use_percent"]) == (temp, power, sclk, use)
    assert answer(tmp_path, text)["numbers"]["temp_c"] == temp


def test_smi_json_of_three_releases(tmp_path):
    old = {"card0": {"Temperature (Sensor edge) (c)": "55.0", "Average Graphics Package Power (W)": "99.0"}}
    apu = {
        "card0": {
            "Current Socket Graphics Package Power (W)": "7.0",
            "sclk clock speed:": "(801Mhz)",
            "GPU use (%)": "N/A",
        }
    }
    new = {
        "gpu_data": [{"gpu": 0, "asic": {"market_name": "AMD Radeon RX 9070", "target_graphics_version": "gfx1201"}}]
    }
    listed = [{"gpu": 1, "usage": {"gfx_activity": {"value": 7, "unit": "%"}}, "power": {"socket_power": "N/A"}}]
    rows = [smi.parse(json.dumps(one))["gpus"][0] for one in (old, apu, new, listed)]
    assert (rows[0]["temp_c"], rows[0]["power_w"]) == (55.0, 99.0)
    assert (rows[1]["power_w"], rows[1]["sclk_mhz"], rows[1]["use_percent"]) == (7.0, 801.0, None)
    assert (rows[2]["name"], rows[2]["arch"]) == ("AMD Radeon RX 9070", "gfx1201")
    assert (rows[3]["index"], rows[3]["use_percent"], rows[3]["power_w"]) == (1, 7.0, None)
    found = answer(tmp_path, json.dumps(new), "smi.json")
    assert found["kind"] == "tool_output" and found["numbers"]["temp_c"] is None and found["numbers"]["temp_c_reason"]


@pytest.mark.parametrize(
    ("document", "gpus"),
    [
        ([{"gpu": 0, "asic": {"market_name": "AMD Radeon RX 7700 XT", "target_graphics_version": "gfx1101"}}], 1),
        ([{"gpu": 0, "usage": {"gfx_activity": "N/A"}, "temperature": "N/A", "power": None, "clock": []}], 1),
        ({"gpu_data": [{"gpu": 0, "asic": "N/A", "usage": "N/A", "vram": "N/A", "driver": "N/A"}]}, 1),
        ({"gpu_data": None}, 0),
        ({"gpu_data": {"gpu": 0}}, 0),
        ({"card1": {"Device Name": "Radeon RX 6600", "GPU use (%)": "3"}}, 1),
        ({"card0": None}, 0),
        ({"card0": "N/A", "card1": {"GPU use (%)": "9"}, "system": "N/A"}, 1),
    ],
)
def test_smi_documents_of_every_form(tmp_path, document, gpus):
    """Lists, a card that is not the first, and sections that are no sections."""
    found = answer(tmp_path, json.dumps(document), "smi.json")
    assert (found["kind"], found["numbers"]["gpus"]) == ("tool_output", gpus)
    key = "rocm-smi" if "card" in json.dumps(document) else "amd-smi"
    assert len(tools.judge_output(key, 0, json.dumps(document), "")["parsed"]["gpus"]) == gpus


def test_an_answer_that_no_parser_expects_costs_that_answer_only(monkeypatch):
    def fails(text):
        raise KeyError(text)

    monkeypatch.setitem(tools.PARSERS, "rocm-smi", fails)
    found = tools.judge_output("rocm-smi", 0, '{"card0": 7}', "")
    assert (found["status"], found["parsed"]) == ("error", None) and "card0" in found["said"]


@pytest.mark.parametrize(
    "text",
    [
        "device# {n}\nName: x\n",
        'checkHipErrors() HIP API error = {n} "x"\n',
        "device# 0\nName: x\ntotalGlobalMem: {n} GB\n",
        "gfx1030;gfx1032\nRan {n} tests in 3s\nOK\n",
        "Number of platforms  {n}\n",
        "Number of platforms  1\n  Device Name   x\n  Max compute units  {n}\n",
        "[nodes/1/properties]\ngfx_target_version {n}\n[nodes/{n}/properties]\nx 1\n[nodes/x/properties]\ny 2\n",
        "GPU: {n}\n    USAGE:\n        GFX_ACTIVITY: {n} %\nGPU: 0\n    USAGE:\n        GFX_ACTIVITY: {n} %\n",
        "*******\nAgent 1\n*******\n  Name: gfx1032\n  Device Type: GPU\n  Compute Unit: {n}\n  SIMDs per CU: 2\n",
        "_CudaDeviceProperties(name='x', total_memory={n}MB, multi_processor_count={n})\n",
    ],
)
def test_a_number_of_5000_digits_is_no_number(tmp_path, text):
    json.dumps(answer(tmp_path, text.replace("{n}", "9" * 5000)), allow_nan=False)


def test_device_properties_as_torch_writes_them(tmp_path):
    line = "- _CudaDeviceProperties(name='AMD Radeon RX 6600', major=10, minor=3, gcnArchName='gfx1032', "
    line += "total_memory=8176MB, multi_processor_count=14, uuid=x, L2_cache_size=2MB)\n"
    found = answer(tmp_path, line)
    assert found["kind"] == "tool_output" and "AMD Radeon RX 6600 (gfx1032)" in found["sentence"]
    assert found["numbers"]["multiprocessors"] == 14 and found["numbers"]["memory_gib"] == 8176 / 1024
    cut = answer(tmp_path, line[: line.index("total_memory")] + "\n")
    assert cut["numbers"]["memory_gib"] is None and "TOOL_OUTPUT_CUT" in [one["code"] for one in cut["findings"]]
    failed = answer(tmp_path, line + "RuntimeError: HIP error: invalid device function\n")
    assert failed["kind"] == "message"


def test_json_cut_in_the_middle_is_read_as_far_as_it_goes(tmp_path):
    whole = json.dumps({"card0": {"Temperature (Sensor edge) (C)": "30.0", "GPU use (%)": "12", "x": "y"}}, indent=1)
    found = answer(tmp_path, whole[: whole.index('"x"')], "smi.json")
    assert found["numbers"]["temp_c"] == 30.0 and found["numbers"]["complete"] is False


def test_a_notebook_that_quotes_a_tool_stays_a_notebook(tmp_path):
    cell = {"cell_type": "markdown", "metadata": {}, "source": AGENTS, "id": "a"}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    assert answer(tmp_path, json.dumps(notebook), "x.ipynb")["kind"] == "notebook"


def test_prose_about_tools_is_no_output(tmp_path):
    text = (
        "# Tools\n\nUse rocminfo (it prints ROCk module is loaded) or `rocm-bootstrap-detect`; libamd_smi.so may be\n"
    )
    text += "missing. ROCm System Management Interface is the long name of rocm-smi; AMD-SMI 26 replaces it.\n"
    assert answer(tmp_path, text)["kind"] == "unknown"


def test_a_guide_with_headings_that_quotes_output_is_no_output(tmp_path):
    text = "# Logs\n\nWhat the tools print:\n\n## rocminfo\n\n```\n" + AGENTS + "```\n"
    assert answer(tmp_path, text)["kind"] != "tool_output"


def test_nvidia_smi():
    line = "0, NVIDIA H100 80GB HBM3, 570.86.15, 33, 71.09, 700.00, 345, 2619, 0, 81559, 4, 16, 16, 5, 5"
    (row,) = nvidia_smi.parse(line + "\n")
    assert (row["name"], row["driver"], row["temp_c"]) == ("NVIDIA H100 80GB HBM3", "570.86.15", 33.0)
    assert row["memory_total_bytes"] == 81559 * 2**20 and row["link"]["width"] == 16.0
    unknown = nvidia_smi.parse(line.replace("33,", "[N/A],"))[0]
    assert unknown["temp_c"] is None


HIPINFO = """
--------------------------------------------------------------------------------
device#                           0
Name:                             AMD Radeon RX 6600
multiProcessorCount:              14
memoryBusWidth:                   0
totalGlobalMem:                   7.98 GB
isIntegrated:                     0
gcnArchName:                      gfx1032
peers:
non-peers:                        device#0

memInfo.total:                    7.98 GB
memInfo.free:                     7.10 GB (89%)
"""


def test_hipinfo(tmp_path):
    (device,) = hip_tools.hipinfo(HIPINFO)["devices"]
    assert (device["arch"], device["bus_bits"], device["memory_free_gb"]) == ("gfx1032", None, 7.10)
    found = answer(tmp_path, HIPINFO)
    assert found["numbers"]["bus_bits"] is None and found["numbers"]["bus_bits_reason"]
    none = answer(tmp_path, 'checkHipErrors() HIP API error = 0100 "no ROCm-capable device is detected"\n')
    assert none["verdict"] == "DRIVER_DOES_NOT_ENUMERATE" and none["numbers"]["error_code"] == 100


def test_hipconfig_of_both_kinds(tmp_path):
    perl = "HIP version  : 5.7.1-0\n\n== hipconfig\nHIP_PATH     : /usr\nHIP_PLATFORM : nvidia\nHIP_COMPILER : nvcc\n"
    new = "HIP version: 7.1.5-ab12\n\n==hipconfig\nHIP_PATH           :/opt/rocm\nHIP_PLATFORM       :amd\n"
    assert hip_tools.hipconfig(new)["platform"] == "amd" and hip_tools.hipconfig(new)["path"] == "/opt/rocm"
    empty = answer(tmp_path, "HIP version:\nHIP_PLATFORM: amd\n")
    assert "HIP of unknown version, platform amd" in empty["sentence"] and not empty["numbers"]["complete"]
    assert "HIP_PLATFORM_NVIDIA" in [one["code"] for one in answer(tmp_path, perl)["findings"]]


def test_rocm_sdk_and_friends(tmp_path):
    text = "rocm==7.13.0\nrocm-sdk-core==7.13.0\nrocm-sdk-device-gfx1032==7.13.0\n"
    text += "gfx1030;gfx1032\nRan 20 tests in 3s\nFAILED (errors=1)\n"
    found = answer(tmp_path, text)
    assert found["numbers"] == {"complete": True, "targets": 2, "packages": 3, "tests": 20, "tests_passed": False}
    assert hip_tools.agents("gfx000\ngfx1036\ngfx1032\n") == ["gfx1036", "gfx1032"]
    trace = (
        'Traceback (most recent call last):\n  File "/opt/rocm/bin/rocm_agent_enumerator", line 9\nPermissionError: x\n'
    )
    assert answer(tmp_path, trace)["verdict"] == "TOOL_FAILED"


def test_inventories(tmp_path):
    env = "PyTorch version: 2.10.0+rocm7.13.0\nCUDA used to build PyTorch: N/A\nROCM used to build PyTorch: 7.13.1\n"
    env += "OS: Windows 11\nIs CUDA available: True\nGPU models and configuration: AMD Radeon RX 6600 (gfx1032)\n"
    parsed = inventories.collect_env(env)
    assert parsed["gpus"] == [{"name": "AMD Radeon RX 6600", "arch": "gfx1032"}] and parsed["cuda"] is None
    two = env.replace(
        "configuration: AMD Radeon RX 6600 (gfx1032)", "configuration: \nGPU 0: A (gfx1032)\nGPU 1: B (gfx1100)"
    )
    assert [one["arch"] for one in inventories.collect_env(two)["gpus"]] == ["gfx1032", "gfx1100"]
    kfd = "[nodes/0/properties]\ngfx_target_version 0\n[nodes/1/properties]\ngfx_target_version 90402\n"
    assert "gfx942" in answer(tmp_path, kfd)["sentence"]
    assert answer(tmp_path, "Number of platforms                               0\n")["numbers"]["platforms"] == 0


# ---- running them


def test_an_empty_answer_is_no_answer():
    assert tools.judge_output("rocm-smi", 0, "", "driver not initialized")["status"] == "empty"
    assert tools.judge_output("rocminfo", 1, "ROCk module is NOT loaded\n", "")["parsed"]["module_loaded"] is False
    assert tools.judge_output("rocminfo", None, AGENTS, "")["status"] == "timeout"
    assert tools.judge_output("rocminfo", 0, AGENTS, "")["parsed"]["complete"]


def test_a_tool_that_hangs_costs_its_limit_only(monkeypatch, tmp_path):
    slow = tmp_path / "rocminfo"
    slow.write_text("#!/bin/sh\nsleep 60\n", encoding="utf-8")
    slow.chmod(0o755)
    monkeypatch.setattr(tools, "where", lambda name: str(slow) if name == "rocminfo" else None)
    answers = tools.ask(limit_s=0.5)
    assert answers["rocminfo"]["status"] == "timeout" and answers["rocminfo"]["seconds"] < 5


def test_debians_tools_without_a_card():
    answers = tools.ask()
    if not {"rocminfo", "rocm-smi", "hipconfig"} <= set(answers):
        pytest.skip("no ROCm tools here (Debian: rocminfo, rocm-smi, hipcc)")
    if answers["rocminfo"]["status"] == "ok":
        pytest.skip("a card is here")
    assert answers["rocminfo"]["parsed"]["module_loaded"] is False
    assert answers["rocm-smi"]["status"] == "empty"
    assert answers["hipconfig"]["parsed"]["version"]


# ---- every sample of the folder beside

KINDS = (
    "rocminfo",
    "rocm-smi",
    "amd-smi",
    "hipinfo",
    "hipconfig",
    "clinfo",
    "collect_env",
    "rocm-sdk",
    "kfd",
    "amdsmi",
)
KINDS += ("rocm-agent", "rocm-bootstrap", "torch-device-properties")


def test_every_sample_parses_or_is_named_as_cut(shared):
    read = {}
    for path in sorted((shared / "amd-samples").glob("*")):
        kind = path.read_text(encoding="utf-8").partition("kind: ")[2].partition(" |")[0]
        if kind.startswith(KINDS):
            read[path.name] = readers.answer(path)
    assert len(read) == 42
    wrong = [name for name, one in read.items() if one["kind"] != "tool_output"]
    assert wrong == []
    cut = {name for name, one in read.items() if "TOOL_OUTPUT_CUT" in [code["code"] for code in one["findings"]]}
    assert {
        "rocminfo-gfx1032-prow6600-agent-only.txt",
        "rocminfo-gfx1030-rx6800-rocm6.0.txt",
        "rocminfo-gfx1100-rx7900xtx-rocm6.4.txt",
        "rocminfo-wsl-rocm7.14-head.txt",
        "rocm-smi-text-rocm6.0-head.txt",
        "rocm-smi-json-780m-all-head.json.txt",
        "amd-smi-metric-usage-w7700-head.json.txt",
        "amd-smi-default-table-v620.txt",
        "hipinfo-windows-gfx1151.txt",
        "collect-env-linux-torch2.11-therock-gfx1151.txt",
    } <= cut
    whole = {"rocminfo-gfx1032-rx6600xt.txt", "rocm-smi-text-mi300a-rocm7.txt", "hipinfo-windows-gfx1100-buswidth0.txt"}
    assert not whole & cut
    assert read["rocminfo-gfx1032-rx6600xt.txt"]["numbers"]["compute_units"] == 32
    assert "gfx1150" in read["hipinfo-windows-gfx1010-and-gfx1150.txt"]["sentence"]
