"""The judge of snapshots: causes told apart on made-up machines; the launch decides, one next step each."""

import json
from pathlib import Path

import pytest
from cases import differences, expected
from probes import LINUX, PROJECT_BUILD, WINDOWS, WSL, absent, device, launch, rocm

from rocmlab import archs, environment, factsheet, findings, gpus, readers, results, shape, variables
from rocmlab.sections.environment import section

IGPU = {"name": "AMD Radeon(TM) Graphics", "arch": "gfx1036", "is_integrated": 1, "total_memory": 2**29}


def codes(probe):
    """Codes that are not mere notes, worst first."""
    return [one["code"] for one in environment.judge(probe) if one["sort"] != "note"]


def said(probe, lang="en"):
    return " ".join(findings.paragraph(environment.judge(probe), lang)).lower()


def verdict(probe):
    return findings.verdict(environment.judge(probe))


# ---- the build


def test_a_card_that_launches_is_fine_whatever_the_lists_say():
    probe = rocm(WINDOWS, device(), arch_list=["gfx1100"])
    assert verdict(probe) == ("OK", "ok")
    assert "NOT_ON_MAKERS_LIST" in [one["code"] for one in environment.judge(probe)]


def test_a_card_on_the_makers_list_gets_no_note():
    probe = rocm(LINUX, device(name="AMD Radeon RX 7900 XT", arch="gfx1100"))
    assert environment.judge(probe) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"torch_version": "2.8.0+cpu", "torch_version_hip": None}, "WRONG_BUILD_CPU"),
        ({"torch_version": "2.8.0", "torch_version_hip": None, "torch_version_cuda": "13.0"}, "WRONG_BUILD_CUDA"),
    ],
)
def test_wrong_builds_name_the_command_of_the_card(changes, code):
    probe = absent(WINDOWS, "AMD Radeon RX 6700 XT", **changes)
    assert codes(probe) == [code]
    assert "torch[device-gfx1031]" in said(probe)


def test_a_rocm_build_on_an_nvidia_machine_gets_no_amd_advice():
    probe = absent(LINUX, "NVIDIA GeForce RTX 4070")
    assert codes(probe) == ["WRONG_BUILD_ROCM"]
    assert "device-gfx" not in said(probe)


def test_a_cuda_build_that_works_is_not_wrong_because_of_graphics_in_the_processor():
    card = device(name="NVIDIA GeForce RTX 4070", arch=None, major=8, minor=9)
    cuda = {"torch_version": "2.10.0+cu130", "torch_version_hip": None, "torch_version_cuda": "13.0"}
    listed = ["AMD Radeon(TM) Graphics", "NVIDIA GeForce RTX 4070"]
    probe = rocm(WINDOWS, card, **cuda, arch_list=["sm_89"]) | {"system_gpus": listed}
    assert codes(probe) == []
    assert gpus.subject(probe)["arch"] == "sm_89"


def test_no_gpu_at_all_is_a_plain_answer():
    probe = rocm(LINUX, torch_version="2.10.0+cpu", torch_version_hip=None)
    assert verdict(probe) == ("NO_GPU", "ok")
    assert gpus.subject(probe)["device"] == "cpu"
    assert "cpu is the subject" in said(probe)


def test_a_list_that_could_not_be_asked_is_not_an_empty_one():
    probe = rocm(WINDOWS, torch_version_hip=None, system_gpus_reason="PowerShell gave no answer")
    assert codes(probe) == ["GPU_LIST_UNKNOWN"]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        ("ModuleNotFoundError: No module named 'torch'", "TORCH_ABSENT", "device-gfx1101"),
        (
            'OSError: [WinError 126] 找不到指定的模块。 Error loading "C:\\t\\torch\\lib\\c10.dll"',
            "IMPORT_FAILED",
            "c10.dll",
        ),
        (
            "OSError: [WinError 4551] An Application Control policy blocked 'D:\\x\\hiprand.dll'",
            "IMPORT_FAILED",
            "policy",
        ),
        (
            "ImportError: libamdhip64.so.7: cannot open shared object file: No such file",
            "IMPORT_FAILED",
            "libamdhip64.so.7",
        ),
    ],
)
def test_failed_imports_are_told_apart(error, code, words):
    probe = absent(torch_version=None, torch_version_hip=None, import_error=error, import_status="ERROR")
    assert codes(probe) == [code]
    assert words in said(probe)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"torch_version": None, "import_status": "TIMEOUT", "import_error": "still running after 9 s"}, "IMPORT_SLOW"),
        ({"torch_version": None, "import_status": "CRASH", "import_error": "access violation"}, "TORCH_CRASHED"),
        ({"query_status": "CRASH", "query_error": "ended by SIGSEGV"}, "TORCH_CRASHED"),
        ({"query_status": "TIMEOUT", "query_error": "still running after 9 s, ended"}, "DEVICES_TIMED_OUT"),
    ],
)
def test_crash_and_hang_before_any_device(changes, code):
    assert codes(absent(WINDOWS, **changes)) == [code]


# ---- no device


@pytest.mark.parametrize(
    ("env", "hidden"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, True),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, False),
        ({"HIP_VISIBLE_DEVICES": "2"}, True),
        ({"HIP_VISIBLE_DEVICES": "-1"}, True),
        ({"HIP_VISIBLE_DEVICES": "1,0"}, False),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "7"}, False),
        ({"CUDA_VISIBLE_DEVICES": "7"}, True),
        ({"ROCR_VISIBLE_DEVICES": "GPU-4b2c1a9f8d3e6f7a", "HIP_VISIBLE_DEVICES": "1"}, True),
        ({"ROCR_VISIBLE_DEVICES": "GPU-4b2c1a9f8d3e6f7a,GPU-0d1e", "HIP_VISIBLE_DEVICES": "2"}, True),
        ({"HIP_VISIBLE_DEVICES": "5,0"}, True),
    ],
)
def test_masks_are_applied_one_after_the_other(env, hidden):
    probe = absent(env=env) | {"system_gpus": ["AMD Radeon RX 7800 XT", "AMD Radeon RX 6600"]}
    assert (codes(probe) == ["NO_DEVICE_LEFT"]) is hidden


def test_a_mask_ends_at_its_first_invalid_entry_and_a_uuid_takes_one_place():
    assert variables.left(2, {"HIP_VISIBLE_DEVICES": "5,0"}) == []
    assert variables.left(2, {"HIP_VISIBLE_DEVICES": "1,5,0"}) == [1]
    assert variables.left(3, {"ROCR_VISIBLE_DEVICES": "GPU-a,2", "HIP_VISIBLE_DEVICES": "1"}) == [2]
    assert variables.left(3, {"ROCR_VISIBLE_DEVICES": "GPU-a"}) == [None]


@pytest.mark.parametrize("env", [{"ROCR_VISIBLE_DEVICES": "GPU-4b2c"}, {"HIP_VISIBLE_DEVICES": "GPU-4b2c"}])
def test_a_uuid_of_no_card_here_is_the_suspect_where_all_else_is_open(env):
    open_ = {"dev_nodes": OPEN, "user_groups": [], "open_kfd": "ok", "amdgpu_module_loaded": True}
    probe = absent(env=env, linux=open_)
    assert codes(probe) == ["NO_DEVICE_LEFT"] and "uuid" in said(probe) and next(iter(env)).lower() in said(probe)
    closed = open_ | {"dev_nodes": KFD, "user_groups": ["video"], "open_kfd": "EACCES"}
    assert codes(absent(env=env, linux=closed)) == ["NO_PERMISSION"]


def test_nothing_is_said_of_device_nodes_that_were_not_looked_at():
    assert codes(absent()) == ["DRIVER_DOES_NOT_ENUMERATE"]
    assert "nodes are open" not in said(absent()) and "does not say" in said(absent())


def test_rocr_mask_does_not_act_on_windows():
    assert codes(absent(WINDOWS, env={"ROCR_VISIBLE_DEVICES": "5"})) == ["DRIVER_DOES_NOT_ENUMERATE"]


KFD = {"/dev/kfd": {"mode": "crw-rw----", "owner": "root", "group": "render"}}
OPEN = {"/dev/kfd": {"mode": "crw-rw-rw-", "owner": "root", "group": "render"}}


@pytest.mark.parametrize(
    ("facts", "code", "words"),
    [
        ({"dev_nodes": KFD, "user_groups": ["video"], "open_kfd": "EACCES"}, "NO_PERMISSION", "usermod"),
        ({"dev_nodes": KFD, "user_groups": ["video"]}, "NO_PERMISSION", "render"),
        (
            {"dev_nodes": KFD, "user_groups": ["root"], "open_kfd": "EPERM", "container": True},
            "NO_PERMISSION",
            "--device",
        ),
        (
            {"dev_nodes": {}, "amdgpu_module_loaded": True, "container": True},
            "DEVICE_NODE_MISSING",
            "--device=/dev/kfd",
        ),
        ({"dev_nodes": {}, "amdgpu_module_loaded": False}, "DRIVER_NOT_LOADED", "modprobe"),
        (
            {"dev_nodes": {}, "amdgpu_module_loaded": False, "secure_boot": True},
            "DRIVER_NOT_LOADED_SECURE_BOOT",
            "sign",
        ),
        ({"dev_nodes": OPEN, "user_groups": [], "amdgpu_module_loaded": True}, "DRIVER_DOES_NOT_ENUMERATE", "rocminfo"),
    ],
)
def test_the_chain_on_linux(facts, code, words):
    probe = absent(linux=facts)
    assert codes(probe) == [code]
    assert words in said(probe)
    assert "hsa_override" not in said(probe)


def test_a_render_node_alone_can_be_closed():
    nodes = OPEN | {"/dev/dri/renderD128": {"mode": "crw-rw----", "owner": "root", "group": "video"}}
    probe = absent(linux={"dev_nodes": nodes, "user_groups": ["render"], "open_kfd": "ok"})
    assert codes(probe) == ["NO_PERMISSION"] and "renderd128" in said(probe) and "group video" in said(probe)


def test_a_node_that_opened_is_not_closed_whatever_its_mode_says():
    facts = {"dev_nodes": KFD, "user_groups": ["video"], "open_kfd": "ok", "amdgpu_module_loaded": True}
    assert codes(absent(linux=facts)) == ["DRIVER_DOES_NOT_ENUMERATE"]


def test_a_member_of_the_group_is_not_told_of_a_container():
    facts = {"dev_nodes": KFD, "user_groups": ["render"], "open_kfd": "EACCES", "container": False}
    probe = absent(linux=facts)
    assert codes(probe) == ["NO_PERMISSION"] and "access list" in said(probe)
    assert "container" not in said(probe) and "usermod" not in said(probe)
    assert "--device" in said(absent(linux=facts | {"container": True}))


def unlisted(system=LINUX, **changes):
    """A machine whose system could name no GPU."""
    return absent(system, **changes) | {"system_gpus": []}


def test_agents_and_nodes_of_the_driver_stand_for_a_card_that_nobody_names():
    agents = {"rocminfo_agents": ["CPU", "gfx1101"], "dev_nodes": {}, "torch_lib_has_own_hsa_runtime": True}
    nodes = {"kfd_nodes": [{"node": 1, "arch": "gfx1031"}], "dev_nodes": OPEN, "amdgpu_module_loaded": True}
    cpu = {"torch_version": "2.10.0+cpu", "torch_version_hip": None}
    cuda = {"torch_version": "2.10.0", "torch_version_hip": None, "torch_version_cuda": "13.0"}
    assert codes(unlisted(WSL, linux=agents)) == ["WSL_RUNTIME_MISMATCH"]
    assert codes(unlisted(linux=nodes)) == ["DRIVER_DOES_NOT_ENUMERATE"]
    assert codes(unlisted(linux=agents, **cuda)) == ["WRONG_BUILD_CUDA"]
    assert codes(unlisted(linux=nodes, **cpu)) == ["WRONG_BUILD_CPU"]
    assert "torch[device-gfx1031]" in said(unlisted(linux=nodes, **cpu))
    for none in ({"rocminfo_agents": ["CPU"]}, {"kfd_nodes": [], "dev_nodes": {}}, {"rocminfo_agents": ["gfx000"]}):
        assert verdict(unlisted(linux=none)) == ("NO_GPU", "ok")


def test_an_agent_under_an_override_has_no_target_of_its_own():
    lied = {"rocminfo_agents": ["CPU", "gfx1030"]}
    probe = unlisted(linux=lied, env={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})
    assert [card.arch for card in gpus.cards(probe)] == [None]
    assert [card.arch for card in gpus.cards(unlisted(linux=lied))] == ["gfx1030"]


def test_a_driver_node_that_refuses_hides_every_card():
    facts = {"dev_nodes": KFD, "user_groups": ["video"], "open_kfd": "EACCES", "amdgpu_module_loaded": True}
    assert codes(unlisted(linux=facts)) == ["NO_PERMISSION"]
    assert verdict(unlisted(linux=facts | {"dev_nodes": OPEN, "open_kfd": "ok"})) == ("NO_GPU", "ok")


# ---- cards that ROCm does not serve


@pytest.mark.parametrize(
    "name",
    [
        "AMD Radeon RX 580",
        "AMD Ellesmere [Radeon RX 470/480/570/570X/580/580X/590]",
        "AMD Radeon R9 390",
        "AMD Radeon HD 7970",
        "AMD FirePro S9150",
        "AMD Radeon R5 220",
        "ATI Technologies ES1000",
    ],
)
@pytest.mark.parametrize(
    "build",
    [
        {"torch_version": "2.10.0+cpu", "torch_version_hip": None},
        {"torch_version": "2.10.0", "torch_version_hip": None, "torch_version_cuda": "13.0"},
        {},
    ],
)
def test_a_card_older_than_rocm_is_never_promised_a_build(name, build):
    probe = absent(LINUX, name, linux={"dev_nodes": OPEN, "kfd_nodes": [{"arch": "gfx803"}]}, **build)
    assert verdict(probe) == ("NO_GPU", "ok")
    assert "older than" in said(probe) and "pip install" not in said(probe) and "another driver" not in said(probe)


@pytest.mark.parametrize(
    "name",
    ["AMD Radeon RX 5500 XT", "AMD Radeon RX 5700", "AMD Radeon 610M", "AMD Radeon 680M", "AMD Radeon 780M",
     "AMD Radeon VII", "AMD Radeon RX Vega 64", "AMD Radeon Pro W5700", "AMD Radeon PRO W7900", "AMD Instinct MI60",
     "AMD Radeon RX 590000", "AMD Radeon Pro WX 9100", "AMD Radeon 8060S Graphics", "AMD 1002:9999"],
)  # fmt: skip
def test_other_cards_are_not_taken_for_such(name):
    assert not archs.before_rocm(name)
    assert all(not archs.before_rocm(one) for known in archs.facts()["targets"].values() for one in known["names"])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"torch_version": "2.10.0+cpu", "torch_version_hip": None}, "WRONG_BUILD_CPU"),
        ({"torch_version": "2.10.0", "torch_version_hip": None, "torch_version_cuda": "13.0"}, "WRONG_BUILD_CUDA"),
        ({"torch_version": None, "torch_version_hip": None}, "TORCH_ABSENT"),
    ],
)
def test_the_target_of_an_unknown_card_is_looked_up_first(changes, code):
    probe = absent(LINUX, "AMD Radeon RX 11999 XT", **changes)
    assert codes(probe) == [code]
    assert "look" in said(probe) and "rocminfo" in said(probe) and "only torch is wrong" not in said(probe)


def test_a_known_target_without_a_published_build_gets_no_command():
    assert archs.install("gfx803", "Linux") is None and archs.install("gfx90c", "Linux") is None
    assert "device-all" in archs.install(None, "Linux")


def test_wsl_never_gets_the_advice_about_groups():
    dxg = {"/dev/dxg": {"mode": "crw-rw-rw-", "owner": "root", "group": "root"}}
    seen = absent(WSL, linux={"dev_nodes": dxg, "user_groups": [], "rocminfo_agents": ["CPU", "gfx1101"]})
    unlisted = absent(WSL, "AMD Radeon RX 6600", linux={"dev_nodes": dxg, "rocminfo_agents": ["CPU"]})
    blind = absent(WSL, linux={"dev_nodes": {}, "rocminfo_agents": []})
    assert [codes(one)[0] for one in (seen, unlisted, blind)] == ["WSL_RUNTIME_MISMATCH", *["WSL_NO_DEVICE"] * 2]
    assert "wsl --update" in said(blind) and "amd's list for wsl" in said(unlisted)
    assert not any("usermod" in said(one) or "override" in said(one) for one in (seen, unlisted, blind))


def test_windows_names_driver_and_the_runtime_that_does_see_the_card():
    facts = {"display_driver": "25.12.1", "hipinfo_7_2": "error 100", "hipinfo_6_4": "AMD Radeon RX 6750 XT gfx1031"}
    text = said(absent(WINDOWS, "AMD Radeon RX 6750 XT", windows=facts))
    assert "25.12.1" in text and "hip runtime 6.4" in text
    stopped = [{"name": "AMD Radeon RX 6750 XT", "vendor": "AMD", "state": "code 43"}]
    assert codes(absent(WINDOWS, "AMD Radeon RX 6750 XT", gpus=stopped)) == ["DEVICE_STOPPED"]


# ---- launches


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("RuntimeError: HIP error: invalid device function", "KERNELS_MISSING"),
        ("AcceleratorError: HIP error: device kernel image is invalid", "KERNELS_MISSING"),
        ("RuntimeError: HIP error: no kernel image is available for execution on the device", "KERNELS_MISSING"),
        ("OutOfMemoryError: HIP out of memory. Tried to allocate 2 MiB", "LAUNCH_NO_MEMORY"),
        ("ended by SIGSEGV", "LAUNCH_CRASHED"),
        ("access violation (0xC0000005)", "LAUNCH_CRASHED"),
        ("still running after 60 s, ended", "LAUNCH_TIMED_OUT"),
        ("wrong value, off by nan", "LAUNCH_WRONG_VALUE"),
        ("RuntimeError: HIP error: unspecified launch failure", "LAUNCH_FAILED"),
    ],
)
def test_failed_launches_are_told_apart(error, code):
    probe = rocm(WINDOWS, device(), arch_list=["gfx1100"], launch_probe=launch(False, error=error))
    assert codes(probe) == [code]
    assert gpus.subject(probe)["device"] == "cpu"


def test_a_listed_target_that_fails_is_not_called_missing():
    probe = rocm(WINDOWS, device(), launch_probe=launch(False))
    assert codes(probe) == ["KERNELS_LISTED_BUT_FAIL"]
    assert "device-gfx1032" in said(probe)


@pytest.mark.parametrize(
    ("name", "arch", "value"),
    [("AMD Radeon RX 6500 XT", "gfx1034", "10.3.0"), ("AMD Radeon RX 7600", "gfx1102", "11.0.0")],
)
def test_the_usual_override_is_named_on_linux_only(name, arch, value):
    card, failed = device(name=name, arch=arch), launch(False)
    on = {
        system: said(rocm(system, card, arch_list=PROJECT_BUILD, launch_probe=failed))
        for system in (LINUX, WINDOWS, WSL)
    }
    assert f"hsa_override_gfx_version={value}" in on[LINUX] and "unsupported" in on[LINUX]
    assert "hsa_override" not in on[WINDOWS] + on[WSL]


def test_no_override_is_suggested_where_it_is_reported_to_hang():
    card = device(name="AMD Radeon 780M Graphics", arch="gfx1103", is_integrated=1)
    probe = rocm(LINUX, card, arch_list=PROJECT_BUILD, launch_probe=launch(False))
    assert codes(probe) == ["KERNELS_MISSING"] and "hsa_override" not in said(probe)


def test_the_fault_of_the_build_comes_before_the_override_that_does_nothing():
    env = {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}
    probe = rocm(WINDOWS, device(), env=env, arch_list=["gfx1100"], launch_probe=launch(False))
    assert codes(probe) == ["KERNELS_MISSING", "OVERRIDE_NO_EFFECT"]
    fine = rocm(WINDOWS, device(), env=env)
    assert verdict(fine) == ("OVERRIDE_NO_EFFECT", "warn")


@pytest.mark.parametrize("value", ["banana", "", "10.3.0"])
@pytest.mark.parametrize("system", [LINUX, WINDOWS])
def test_an_override_means_nothing_to_a_build_without_hip(value, system):
    env = {"HSA_OVERRIDE_GFX_VERSION": value}
    cuda = {"torch_version": "2.10.0+cu130", "torch_version_hip": None, "torch_version_cuda": "13.0", "env": env}
    card = device(name="NVIDIA GeForce RTX 4070", arch=None, major=8, minor=9)
    bad = launch(False, error="CUDA error: an illegal memory access was encountered")
    assert codes(rocm(system, card, launch_probe=bad, **cuda)) == ["LAUNCH_FAILED"]
    assert codes(rocm(system, card, **cuda)) == []
    assert codes(absent(system, "NVIDIA GeForce RTX 4070", **cuda)) == ["DRIVER_DOES_NOT_ENUMERATE"]
    assert codes(rocm(system, torch_version="2.10.0+cpu", torch_version_hip=None, env=env)) == ["NO_GPU"]


# ---- several devices


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_an_integrated_gpu_that_fails_matters_only_when_it_is_first(order):
    inside, card = device(**IGPU), device()
    devices = [inside | {"index": 0}, card | {"index": 1}] if not order[0] else [card, inside | {"index": 1}]
    probe = rocm(WINDOWS, *devices, launch_probe=launch(*order))
    assert codes(probe) == (["INTEGRATED_GPU_FIRST"] if not order[0] else [])
    assert gpus.subject(probe)["arch"] == "gfx1032"
    if not order[0]:
        assert environment.judge(probe)[0]["numbers"] == {"use_device": 1}
        assert "hip_visible_devices=1" in said(probe)


def test_a_mask_in_force_is_translated_when_it_names_another_order():
    probe = rocm(
        WINDOWS, device(**IGPU), device(1), env={"HIP_VISIBLE_DEVICES": "1,0"}, launch_probe=launch(False, True)
    )
    assert "hip_visible_devices=0" in said(probe)


def test_first_discrete_card_unusable_second_works():
    old = device(name="AMD Radeon RX 580", arch="gfx803")
    probe = rocm(LINUX, old, device(1), launch_probe=launch(False, True))
    assert codes(probe) == ["FIRST_DEVICE_UNUSABLE"] and gpus.subject(probe)["index"] == 1


def test_two_cards_that_work_are_a_note():
    notes = {one["code"] for one in environment.judge(rocm(LINUX, device(), device(1)))}
    assert "SEVERAL_GPUS" in notes


def test_a_mask_that_leaves_only_the_integrated_gpu():
    listed = ["AMD Radeon(TM) Graphics", "AMD Radeon RX 6600"]
    masked = rocm(WINDOWS, device(**IGPU), env={"HIP_VISIBLE_DEVICES": "0"}) | {"system_gpus": listed}
    unseen = rocm(WINDOWS, device(**IGPU)) | {"system_gpus": listed}
    assert codes(masked) == ["CARD_HIDDEN"] and codes(unseen) == ["CARD_NOT_SEEN"]


def test_a_container_may_leave_cards_outside_on_purpose():
    listed = {"system_gpus": ["AMD Radeon RX 6600", "AMD Radeon RX 7800 XT"]}
    outside = rocm(LINUX, device(), linux={"container": True}) | listed
    assert codes(outside) == [] and codes(rocm(LINUX, device(), linux={"container": False}) | listed) == [
        "CARD_NOT_SEEN"
    ]


def test_the_subject_asked_for_by_its_real_target_under_an_override():
    probe = rocm(LINUX, device(arch="gfx1030"), env={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}, arch_list=["gfx1030"])
    assert gpus.subject(probe, "gfx1032")["index"] == gpus.subject(probe, "gfx1030")["index"] == 0
    assert gpus.subject(probe, "gfx1100")["device"] == "cpu"


# ---- overrides


def override(value, *devices, **changes):
    return rocm(LINUX, *devices, env={"HSA_OVERRIDE_GFX_VERSION": value}, arch_list=PROJECT_BUILD, **changes)


def test_override_of_the_wrong_family():
    card = device(name="AMD Radeon RX 7900 XTX", arch="gfx1030")
    assert codes(override("10.3.0", card, launch_probe=None)) == ["OVERRIDE_WRONG_FAMILY"]
    text = said(override("10.3.0", card, launch_probe=launch(False)))
    assert "gfx1100" in text and "unset" in text and "hsa_override_gfx_version=11" not in text


def test_override_that_one_card_needs_and_another_cannot_bear():
    cards = device(arch="gfx1030"), device(1, name="AMD Radeon RX 9070", arch="gfx1030")
    found = environment.judge(override("10.3.0", *cards, launch_probe=launch(True, False)))
    assert found[0]["code"] == "OVERRIDE_BREAKS_OTHER_GPU" and found[0]["numbers"] == {"broken_device": 1}


@pytest.mark.parametrize(
    ("value", "arch", "ok", "code"),
    [
        ("", "gfx000", False, "OVERRIDE_EMPTY"),
        ("  ", "gfx000", False, "OVERRIDE_EMPTY"),
        ("gfx1030", "gfx1032", False, "OVERRIDE_INVALID"),
        ("10.3", "gfx1032", False, "OVERRIDE_INVALID"),
        ("10.3.1", "gfx1031", False, "KERNELS_MISSING"),
    ],
)
def test_overrides_that_lead_nowhere(value, arch, ok, code):
    assert codes(override(value, device(arch=arch), launch_probe=launch(ok))) == [code]


def test_an_override_that_helps_is_a_note_and_one_that_is_not_needed_a_warning():
    helps = override("10.3.0", device(arch="gfx1030"))
    assert codes(helps) == [] and "OVERRIDE_ACTIVE" in [one["code"] for one in environment.judge(helps)]
    own = override("11.0.1", device(name="AMD Radeon RX 7800 XT", arch="gfx1101"))
    assert codes(own) == ["OVERRIDE_UNNEEDED"]


def test_the_real_target_by_pci_bus_when_the_name_does_not_tell():
    card = device(name="AMD Radeon Graphics", arch="gfx1030", pci_bus_id=3)
    listed = [{"name": "AMD Navi 48", "vendor": "AMD", "pci_id": "1002:7550", "bus": "0000:03:00.0", "arch": "gfx1201"}]
    probe = override("10.3.0", card, launch_probe=launch(False), gpus=listed)
    assert codes(probe) == ["OVERRIDE_WRONG_FAMILY"]


# ---- variables, libraries, conditions


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"env": {"AMD_SERIALIZE_KERNEL": "3"}}, "SLOWING_VARIABLES"),
        ({"env": {"HIP_LAUNCH_BLOCKING": "0"}}, None),
        ({"env": {"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_CUDA_ALLOC_CONF": "a:1"}}, "ALLOCATOR_NAMES_MIXED"),
        ({"env_changed": {"HIP_VISIBLE_DEVICES": {"start": None, "now": "0"}}}, "VARIABLES_SET_LATE"),
        ({"env_changed": {"OMP_NUM_THREADS": {"start": None, "now": "4"}}}, None),
        (
            {"import_errors": {"trl": "module 'torch.distributed' has no attribute 'is_initialized'"}},
            "DISTRIBUTED_ABSENT",
        ),
        ({"import_errors": {"transformers": "ImportError: torch>=2.5 is required"}}, "LIBRARY_IMPORT_FAILED"),
        ({"torch_version": "2.3.1+rocm6.0"}, "TORCH_TOO_OLD"),
        ({"torch_version": "2.9.0a0+git1234abc"}, None),
        ({"versions": {"torchvision": "0.25.0+cu130"}}, "VERSIONS_DO_NOT_FIT"),
        ({"versions": {"torchvision": "0.25.0+rocm7.13.0"}}, None),
        ({"versions": {"rocm-sdk-core": "7.12.0"}}, "VERSIONS_DO_NOT_FIT"),
        ({"versions": {"rocm-sdk-core": "7.13.0"}}, None),
        ({"power": {"plugged": False}}, "ON_BATTERY"),
        ({"power": {"plugged": True, "profile": "power saver"}}, "POWER_SAVING"),
        ({"capacity": {"memory_available_bytes": 2**31}}, "LOW_MEMORY"),
        ({"capacity": {"disk_free_bytes": 2**31}}, "LOW_DISK"),
        ({"gpus": [{"name": "x", "link": {"current_link_width": "4", "max_link_width": "8"}}]}, "PCIE_NARROW"),
        ({"gpus": [{"name": "x", "link": {"current_link_width": "8", "max_link_width": "8"}}]}, None),
        (
            {"runtime": {"loaded": ["/opt/rocm/lib/libamdhip64.so.7"], "own": ["/v/libamdhip64.so.7"]}},
            "RUNTIME_SHADOWED",
        ),
        ({"runtime": {"loaded": ["/v/libamdhip64.so.7"], "own": ["/v/libamdhip64.so.7"]}}, None),
    ],
)
def test_the_rest_of_the_machine(changes, code):
    assert codes(rocm(LINUX, device(), **changes)) == ([code] if code else [])


def test_versions_that_cannot_be_ordered_are_said_not_compared():
    probe = rocm(WINDOWS, device(), torch_version="2.9.1+rocmsdk20260116", versions={"rocm": "7.2.0.dev0"})
    assert codes(probe) == []
    assert "cannot be ordered" in said(probe)


def test_memory_that_others_hold():
    used = launch(True)
    used["per_device"][0]["memory_free_bytes"] = 3 * 2**30
    assert codes(rocm(LINUX, device(), launch_probe=used)) == ["GPU_IN_USE"]


def compiled(log=""):
    fine = {"ok": True, "status": "OK", "log": "", "bytes": 2800}
    failed = {"ok": False, "status": "HIPRTC_ERROR_COMPILATION", "log": log, "bytes": None}
    return {"arch": "gfx1032", "version": "9.0", "plain": fine, "type_traits": failed if log else fine}


def test_the_runtime_compiler():
    missing = compiled("In file included from a.h:1:\nx.h:9:10: fatal error: 'type_traits' file not found\n")
    clash = compiled("/usr/include/c++/12/type_traits:62:12: error: redefinition of 'integral_constant'\n")
    assert codes(rocm(WINDOWS, device(), compiler=compiled())) == []
    assert codes(rocm(WINDOWS, device(), compiler=missing)) == ["CXX_HEADERS_MISSING"]
    assert "is not found" in said(rocm(WINDOWS, device(), compiler=missing))
    assert "redefinition" in said(rocm(WINDOWS, device(), compiler=clash))
    broken = compiled("x") | {"plain": {"ok": False, "status": "CRASH", "log": "ended by SIGABRT"}}
    assert codes(rocm(WINDOWS, device(), compiler=broken)) == ["RUNTIME_COMPILER_FAILS"]


def test_tools_that_do_not_exist_are_a_note_and_their_values_unknown(tmp_path):
    which = {"rocm-smi": None, "amd-smi": None, "rocminfo": None, "hipInfo": "present"}
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(rocm(WINDOWS, device(), which=which)), encoding="utf-8")
    answer = readers.answer(path)
    assert answer["verdict"] == "OK" and "not available" in answer["sentence"]
    assert answer["numbers"]["temp_c"] is None and answer["numbers"]["temp_c_reason"]


# ---- robustness and language

NASTY = (None, 7, 0.5, "x", "", True, [], [1, None], [{}], [{"index": "a", "name": 3}], {}, {"a": None}, {"a": [1]})
NASTY += ({"plain": 1, "type_traits": []}, {"loaded": [3], "own": "x"}, {"per_device": [1, {}, {"index": 0}], "ok": 1})
NASTY += ({"dev_nodes": 3, "user_groups": 4}, {"hipconfig": 5, "rocminfo": {"parsed": 6}}, {"profile": 1, "plugged": 0})


@pytest.mark.parametrize("key", [*shape.SHAPE, "schema"])
def test_a_damaged_snapshot_never_raises(key):
    good = {"gpus": [{"name": "x", "link": 4}], "linux": {"dev_nodes": KFD, "user_groups": ["video"]}}
    for base in (rocm(LINUX, device(), **good), absent(WINDOWS, **good), absent(LINUX, **good), absent(WSL)):
        for value in NASTY:
            for one in environment.judge(base | {key: value}):
                assert findings.say(one, "zh")["sentence"]
            assert factsheet.rows(gpus.tidy(base | {key: value}))
            assert gpus.subject(gpus.tidy(base | {key: value}))["name"]


@pytest.mark.parametrize(
    "probe", [{"schema": "rocmlab-probe-1"}, rocm(LINUX, torch_version=2.10), rocm(LINUX, torch_version=[])]
)
def test_a_snapshot_that_does_not_say_which_torch_is_unknown(probe):
    assert verdict(probe) == verdict(gpus.tidy(probe)) == ("SNAPSHOT_INCOMPLETE", "unknown")
    assert verdict(rocm(LINUX, torch_version=None))[0] == "TORCH_ABSENT"


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN", "1e308", "9" * 4000])
def test_numbers_beyond_all_measures_are_unknown(tmp_path, value):
    text = json.dumps(rocm(LINUX, device(total_memory="@"), launch_probe={"per_device": [{"index": 0, "ok": True}]}))
    text = text.replace('"@"', value).replace('"ok": true', f'"ok": true, "max_abs_err": {value}')
    text = text.replace('"notes"', f'"which": {{}}, "sensors": [{{"temp_c": {value}}}], "notes"')
    path = tmp_path / "probe.json"
    path.write_text(text, encoding="utf-8")
    answer = readers.answer(path)
    json.dumps(answer, allow_nan=False)
    assert answer["numbers"]["memory_gib"] is None and answer["numbers"]["temp_c"] is None


@pytest.mark.parametrize("items", ["1e308", "5", "{}", '"gfx1032"', "[Infinity, [], 1e400]", "null"])
def test_a_list_of_names_that_is_none(tmp_path, items):
    path = tmp_path / "names.json"
    path.write_text(f'{{"schema": "rocmlab-arch-names-1", "items": {items}}}', encoding="utf-8")
    assert json.dumps(readers.answer(path), allow_nan=False)


def test_a_program_that_knows_import_errors_is_none(tmp_path):
    shown = 'import torch\nOSError: [WinError 126] x Error loading "C:\\v\\torch\\lib\\shm.dll" or more.\n'
    path = tmp_path / "x.txt"
    path.write_text(shown, encoding="utf-8")
    assert readers.answer(path)["verdict"] == "IMPORT_FAILED"
    path.write_text(f"def said(text):\n    return text\n\n{shown}", encoding="utf-8")
    assert readers.answer(path)["kind"] != "message"
    package = Path(readers.__file__).parent
    assert {readers.answer(package / name)["kind"] for name in ("smi.py", "tools.py", "probes.py")} == {"unknown"}


def test_no_snapshot_at_all():
    for nothing in (None, [], "x", {}):
        assert environment.judge(nothing)


def test_chinese_says_the_same_findings():
    probe = rocm(WINDOWS, device(), arch_list=["gfx1100"], launch_probe=launch(False))
    assert "gfx1032" in said(probe, "zh") and "请安装" in said(probe, "zh")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, "LAUNCH_RIGHT"),
        ({"power": {"plugged": False}}, "LAUNCH_RIGHT_BUT"),
        ({"launch_probe": launch(False)}, None),
    ],
)
def test_section_01_answers_whether_it_works(tmp_path, changes, code):
    probe = rocm(WINDOWS, device(), **changes)
    results.Run(tmp_path, "01", "1").append("snapshot", probe)
    part = section(tmp_path)
    assert part.answers["works"]["code"] == (code or "KERNELS_LISTED_BUT_FAIL")
    assert [one.name for one in part.tables] == ["machine", "support", "limits", "ways", "older"]
    assert section(tmp_path / "none").missing


def test_all_further_cases(shared):
    wrong = {}
    for owners, how in (("F", "read"), ("F", "use"), ("A", "read")):
        for name, entry in expected(shared, owners, how).items():
            if name.startswith("env-"):
                wrong[name] = differences(shared / "cases" / name, entry)
    assert len(wrong) == 19
    assert {name: found for name, found in wrong.items() if found} == {}
