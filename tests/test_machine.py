"""What the operating system lists: Linux on made-up file trees, Windows on answers in the form PowerShell gives."""

import json
from pathlib import Path

import pytest

from rocmlab import linux, machine, windows


def put(root: Path, **files: str) -> Path:
    """Write files; "__" in a name stands for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def pci(root: Path, bus: str, **facts: str) -> None:
    for name, text in facts.items():
        put(root / "sys/bus/pci/devices" / bus, **{name: text})


AMD_CARD = {"class": "0x030000", "vendor": "0x1002", "device": "0x73df", "revision": "0xc1"}


def test_an_amd_card_is_named_by_id_and_revision(tmp_path):
    pci(
        tmp_path,
        "0000:03:00.0",
        **AMD_CARD,
        current_link_width="8",
        max_link_width="16",
        mem_info_vram_total="12868124672",
    )
    pci(tmp_path, "0000:00:02.0", **{"class": "0x060400", "vendor": "0x1002", "device": "0x1111", "revision": "0x00"})
    put(tmp_path / "usr/share/libdrm", **{"amdgpu.ids": "73DF,\tC0,\tAMD Other\n73DF,\tC1,\tAMD Radeon RX 6700 XT\n"})
    (gpu,) = linux.describe(tmp_path)["gpus"]
    assert (gpu["name"], gpu["arch"], gpu["pci_id"]) == ("AMD Radeon RX 6700 XT", "gfx1031", "1002:73df")
    assert gpu["link"]["current_link_width"] == "8" and gpu["memory_bytes"] == 12868124672


def test_names_from_pci_ids_and_without_any_table(tmp_path):
    pci(tmp_path, "0000:03:00.0", **AMD_CARD)
    assert linux.pci_gpus(tmp_path)[0]["name"] == "AMD Navi 22"
    ids = "1002  Advanced Micro Devices\n\t73df  Navi 22 [Radeon RX 6700/6700 XT]\n10de  NVIDIA\n\t73df  Not this one\n"
    put(tmp_path / "usr/share/misc", **{"pci.ids": ids})
    assert linux.pci_gpus(tmp_path)[0]["name"] == "AMD Navi 22 [Radeon RX 6700/6700 XT]"
    pci(tmp_path, "0000:04:00.0", **AMD_CARD | {"device": "0xabcd"})
    assert linux.pci_gpus(tmp_path)[1]["name"] == "AMD 1002:abcd" and linux.pci_gpus(tmp_path)[1]["arch"] is None


def test_nvidia_by_its_driver(tmp_path):
    pci(tmp_path, "0000:41:00.0", **{"class": "0x030200", "vendor": "0x10de", "device": "0x2335", "revision": "0xa1"})
    driver = tmp_path / "proc/driver/nvidia"
    put(driver / "gpus/0000:41:00.0", information="Model: \t\t NVIDIA H200\nIRQ:   1\n")
    put(driver, version="NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build\n")
    found = linux.describe(tmp_path)
    assert found["system_gpus"] == ["NVIDIA H200"] and found["driver"]["nvidia"] == "575.57.08"
    assert found["gpus"][0]["arch"] is None and found["driver"]["amdgpu"] is None


def test_nvidia_in_a_container_without_a_pci_bus(tmp_path):
    put(tmp_path / "proc/driver/nvidia/gpus/0000:07:00.0", information="Model: \t\t NVIDIA A100-SXM4-40GB\n")
    assert linux.describe(tmp_path)["system_gpus"] == ["NVIDIA A100-SXM4-40GB"]


def test_kfd_topology_is_not_changed_by_an_override(tmp_path):
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    put(nodes, **{"0__properties": "cpu_cores_count 8\ngfx_target_version 0\n"})
    put(nodes, **{"1__properties": "gfx_target_version 100302\nvendor_id 4098\ndevice_id 29679\n"})
    put(nodes, **{"1__mem_banks__0__properties": "heap_type 1\nsize_in_bytes 8573157376\n"})
    (node,) = linux.kfd_nodes(tmp_path)
    assert node == {"node": 1, "arch": "gfx1032", "pci_id": "1002:73ef", "memory_bytes": 8573157376}


def test_rights_modules_secure_boot_and_container(tmp_path):
    put(tmp_path, dev__kfd="")
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    (tmp_path / "dev/kfd").chmod(0o660)
    efi = tmp_path / "sys/firmware/efi/efivars"
    efi.mkdir(parents=True)
    (efi / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(b"\x06\x00\x00\x00\x01")
    facts = linux.describe(tmp_path)["linux"]
    assert facts["dev_nodes"]["/dev/kfd"]["mode"] == "-rw-rw----" and facts["open_kfd"] == "ok"
    assert facts["amdgpu_module_loaded"] and facts["secure_boot"] is True and facts["container"] is False
    put(tmp_path, **{".dockerenv": ""})
    assert linux.container(tmp_path) and linux.open_result(tmp_path / "dev/none") is None


def test_variables_set_after_the_start(tmp_path):
    put(tmp_path, proc__self__environ="HIP_VISIBLE_DEVICES=1\0PATH=/bin\0")
    assert machine.environment_at_start(tmp_path)["HIP_VISIBLE_DEVICES"] == "1"
    assert machine.environment_at_start(tmp_path / "none") is None


def test_this_machine_is_described():
    found = machine.describe()
    assert found["host"]["cores_logical"] >= 1 and found["capacity"]["disk_free_bytes"] > 0
    assert isinstance(found["system_gpus"], list)


# ---- Windows: the forms are those of ConvertTo-Json and of the registry; the asking is not run on Windows yet

CARD_ID = "PCI\\VEN_1002&DEV_73FF&SUBSYS_E4451DA2&REV_C7\\6&2b8e0b0a&0&00000019"
ANSWER = {
    "video": [
        {
            "Name": "AMD Radeon RX 6600",
            "PNPDeviceID": CARD_ID,
            "DriverVersion": "32.0.21025.1024",
            "ConfigManagerErrorCode": 0,
        },
        {"Name": "Parsec Virtual Display Adapter", "PNPDeviceID": "ROOT\\DISPLAY\\0000", "ConfigManagerErrorCode": 0},
    ],
    "link": {CARD_ID: {"CurrentLinkWidth": 4, "MaxLinkWidth": 8}},
    "memory": [{"Name": "luid_0x00000000_0x0000C1A2_phys_0", "DedicatedUsage": 1073741824, "SharedUsage": 5}],
    "system": {"Caption": "Microsoft Windows 11 Home", "BuildNumber": "22631"},
    "runtimes": {"name": "amdhip64_7.dll", "version": "10.0.3500.0"},
}
VALUES = {
    "HwSchMode": 2,
    "VerifiedAndReputablePolicyState": 1,
    "AllowDevelopmentWithoutDevLicense": 0,
    "ActivePowerScheme": "A1841308-3541-4FAB-BC81-F71556F20B4A",
    "VCRuntime": "v14.44.35211.00",
}


def test_windows_answers():
    drivers = [{"DriverDesc": "AMD Radeon RX 6600", "RadeonSoftwareVersion": "25.9.2"}]
    found = windows.arrange(json.loads(json.dumps(ANSWER)), VALUES, drivers, ["14.44.35207"])
    assert found["system_gpus"] == ["AMD Radeon RX 6600"] and found["system_gpus_reason"] is None
    assert found["gpus"][0]["arch"] == "gfx1032" and found["gpus"][0]["pci_id"] == "1002:73ff"
    facts = found["windows"]
    assert (facts["display_driver"], facts["gpu_scheduling"], facts["smart_app_control"]) == ("25.9.2", True, "on")
    assert facts["developer_mode"] is False and facts["secure_boot"] is None
    assert facts["system_runtimes"] == [{"name": "amdhip64_7.dll", "version": "10.0.3500.0"}]
    assert found["power"]["profile"] == "power saver"
    assert found["perf_counters"]["GPU Adapter Memory/Dedicated Usage"][0]["bytes"] == 2**30


@pytest.mark.parametrize("answer", [{}, {"video": None}, {"video": {"Name": None, "PNPDeviceID": None}}])
def test_windows_that_does_not_answer(answer):
    found = windows.arrange(answer, {}, [], [])
    assert found["system_gpus"] == [] and found["windows"]["display_driver"] is None
    assert (found["system_gpus_reason"] is None) is bool(answer)


def test_the_registry_stands_in_for_a_powershell_that_is_silent():
    drivers = [{"DriverDesc": "AMD Radeon RX 6750 XT", "MatchingDeviceId": "pci\\ven_1002&dev_73df&rev_c0"}]
    found = windows.arrange({}, {}, drivers, [])
    assert found["system_gpus"] == ["AMD Radeon RX 6750 XT"] and found["gpus"][0]["arch"] == "gfx1031"
    assert found["gpus"][0]["state"] is None and found["windows"]["device_manager"] is None
    other = windows.arrange(ANSWER, {}, drivers, [])
    assert other["system_gpus"] == ["AMD Radeon RX 6600"]


def test_one_card_comes_as_an_object_not_a_list():
    one = windows.gpus({"video": ANSWER["video"][0] | {"ConfigManagerErrorCode": 43}})
    assert [gpu["state"] for gpu in one] == ["code 43"]
