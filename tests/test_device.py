"""Snapshot and check against fake torches: one that works, and ones that crash, hang or lie at each step."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from probes import LINUX, WINDOWS, device, launch, rocm

from rocmlab import checklist, cli, endings, environment, findings, gpus, isolate, readers
from rocmlab import device as subject

ROOT = Path(__file__).resolve().parent.parent
# A torch with what the probe asks for. {at_import}, {at_count} and {at_launch} take a line of trouble.
FAKE = """
import os, time
{at_import}
__version__ = "2.10.0+rocm7.13.0"
class version: hip, cuda, git_version = "7.13.26176", None, "abc"
class Matrix:
    def __init__(self, value): self.value = value
    def to(self, device): return Moved(device)
    def double(self): return Matrix(self.value)
    def cpu(self): return Matrix(self.value)
    def abs(self): return self
    def max(self): return self
    def item(self): return self.value
    def __matmul__(self, other): return Matrix(self.value)
    def __sub__(self, other): return Matrix(self.value - other.value)
class Moved:
    def __init__(self, device): self.device = device
    def __matmul__(self, other):
        index = self.device
        {at_launch}
        return Matrix(1.0 + {off})
class Generator:
    def manual_seed(self, seed): return self
def randn(*shape, generator=None): return Matrix(1.0)
def device(kind, index): return index
class cuda:
    @staticmethod
    def device_count():
        {at_count}
        return {count}
    @staticmethod
    def is_available(): return True
    @staticmethod
    def get_arch_list(): return ["gfx1030", "gfx1032"]
    @staticmethod
    def mem_get_info(index): return (7 * 2**30, 8 * 2**30)
    @staticmethod
    def get_device_properties(index):
        class facts:
            name, gcnArchName, total_memory = "AMD Radeon RX 6600", "gfx1032:xnack-", 8 * 2**30
            multi_processor_count, is_integrated, major, minor, warp_size = 14, 0, 10, 3, 32
        return facts
"""
HANG = "time.sleep(300)"


def fake(folder: Path, **trouble) -> Path:
    lines = {"at_import": "", "at_count": "pass", "at_launch": "pass", "off": "0.0", "count": 1} | trouble
    text = FAKE
    for name, line in lines.items():
        text = text.replace("{" + name + "}", str(line))
    (folder / "torch.py").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def asked(tmp_path, monkeypatch):
    def ask(limit_s=20, **trouble):
        path = os.pathsep.join([str(fake(tmp_path, **trouble)), str(ROOT)])
        monkeypatch.setenv("PYTHONPATH", path)
        began = time.monotonic()
        probe = subject.ask_devices(limit_s)
        return probe, time.monotonic() - began

    return ask


def test_a_torch_that_works(asked):
    probe, _ = asked()
    (row,) = probe["launch_probe"]["per_device"]
    assert row["ok"] and row["max_abs_err"] == 0.0 and row["memory_free_bytes"] == 7 * 2**30
    assert gpus.arch_of(probe["devices"][0]) == "gfx1032"
    assert (probe["torch_version_hip"], probe["arch_list"]) == ("7.13.26176", ["gfx1030", "gfx1032"])
    assert gpus.subject(probe)["device"] == "cuda:0"


@pytest.mark.parametrize(("off", "said"), [("0.5", "0.5"), ("float('nan')", "nan")])
def test_a_wrong_value_is_no_success(asked, off, said):
    probe, _ = asked(off=off)
    assert probe["launch_probe"]["ok"] is False and said in probe["launch_probe"]["error"]
    json.dumps(probe, allow_nan=False)


@pytest.mark.parametrize(
    ("trouble", "key", "status"),
    [
        (
            {"at_import": "raise OSError('[WinError 126] x Error loading \"C:\\\\t\\\\shm.dll\"')"},
            "import_status",
            "ERROR",
        ),
        ({"at_import": "os.abort()"}, "import_status", "CRASH"),
        ({"at_count": "os.abort()"}, "query_status", "CRASH"),
        ({"at_count": "raise RuntimeError('hsa_init failed')"}, "query_status", "ERROR"),
    ],
)
def test_trouble_before_the_first_launch(asked, trouble, key, status):
    probe, _ = asked(**trouble)
    assert probe[key] == status and probe["devices"] == []
    assert (probe["torch_version"] is None) is (key == "import_status")


def test_a_crash_at_one_device_costs_that_device_only(asked):
    probe, _ = asked(count=3, at_launch="os.abort() if index == 1 else None")
    rows = {row["index"]: row for row in probe["launch_probe"]["per_device"]}
    assert [rows[n]["ok"] for n in range(3)] == [True, False, True]
    assert "SIGABRT" in rows[1]["error"]


def test_a_hang_at_one_device_keeps_what_was_known(asked, monkeypatch):
    monkeypatch.setattr(subject, "ENOUGH_S", 0.5)
    probe, seconds = asked(limit_s=4, count=2, at_launch=f"{HANG} if index == 1 else None")
    rows = probe["launch_probe"]["per_device"]
    assert [row["ok"] for row in rows] == [True, False] and "still running" in rows[1]["error"]
    assert seconds < 9


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        ({"at_import": HANG}, "IMPORT_SLOW"),
        ({"at_count": HANG}, "DEVICES_TIMED_OUT"),
        ({"at_launch": HANG}, "LAUNCH_TIMED_OUT"),
    ],
)
def test_a_hang_anywhere_is_told(asked, trouble, code, monkeypatch):
    monkeypatch.setattr(subject, "ENOUGH_S", 0.5)
    monkeypatch.setattr(environment, "ENOUGH_S", 0.5)
    probe, seconds = asked(limit_s=3, **trouble)
    found = subject.judge(rocm(WINDOWS) | probe | {"system_gpus": ["AMD Radeon RX 6600"]})
    assert found[0]["code"] == code and seconds < 8


@pytest.mark.parametrize(
    ("trouble", "code"),
    [({"at_launch": "time.sleep(6)"}, "NOT_LAUNCHED"), ({"at_count": "time.sleep(6)"}, "IMPORT_SLOW")],
)
def test_a_slow_import_that_leaves_no_time_is_no_hang(asked, trouble, code):
    """Both would be right after 6 s; most of the limit goes into the import, as with a cold disk."""
    probe, _ = asked(limit_s=3.5, at_import="time.sleep(2)", **trouble)
    found = subject.judge(rocm(WINDOWS) | probe | {"system_gpus": ["AMD Radeon RX 6600"]})
    assert (found[0]["code"], findings.verdict(found)[1]) == (code, "unknown")
    said = findings.say(found[0])
    assert "once more" in said["advice"] and "restart" not in said["advice"].lower()
    assert "没有完成" in checklist.console(probe, "zh") or code == "IMPORT_SLOW"


def test_a_device_tried_anew_is_not_called_hung_for_the_time_of_a_second_import(asked):
    trouble = "os.abort() if index == 0 else time.sleep(9)"
    probe, _ = asked(limit_s=6, count=2, at_import="time.sleep(1)", at_launch=trouble)
    assert [row["ok"] for row in probe["launch_probe"]["per_device"]] == [False, None]


def test_check_answers_within_its_time_though_launch_and_tools_hang(tmp_path):
    """The whole program, with a torch whose launch hangs and a rocminfo that hangs."""
    tool = tmp_path / "rocminfo"
    tool.write_text("#!/bin/sh\nexec sleep 300\n", encoding="utf-8")
    tool.chmod(0o755)
    path = os.pathsep.join([str(fake(tmp_path, at_launch=HANG)), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]])}
    began = time.monotonic()
    command = [sys.executable, "-m", "rocmlab.cli", "check", "--json"]
    done = subprocess.run(command, capture_output=True, env=env, cwd=tmp_path, timeout=60, check=False)
    assert time.monotonic() - began < 15
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["verdict"] == "LAUNCH_TIMED_OUT" and answer["next_step"]
    assert answer["snapshot"]["tools"]["rocminfo"]["status"] == "timeout"


def test_this_machine(tmp_path):
    """A real snapshot, read back by `rocmlab read`; on a machine without a GPU it says so plainly."""
    probe = subject.snapshot()
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps({"snapshot": probe}, allow_nan=False), encoding="utf-8")
    answer = readers.answer(path)
    assert answer["kind"] == "probe" and probe["host"]["cores_logical"] >= 1
    if not probe["system_gpus"] and not probe["devices"] and probe["torch_version"]:
        assert answer["verdict"] == "NO_GPU" and "the CPU is the subject" in answer["sentence"]
        assert subject.subject(probe)["arch"] == "cpu"
    assert subject.line(probe).isascii()


# ---- the console


@pytest.mark.parametrize(
    ("error", "chinese"),
    [("still running after 9 s, ended", "9 s 后仍在运行"), ("ended by SIGSEGV", "被 SIGSEGV 终止")],
)
def test_the_chinese_console_says_our_own_words_in_chinese(error, chinese):
    host = {"cpu": "AMD Ryzen 5", "cores_logical": 12, "memory_bytes": 32 * 2**30}
    facts = {"host": host, "capacity": {"memory_available_bytes": 20 * 2**30}}
    text = checklist.console(rocm(WINDOWS, device(), launch_probe=launch(False, error=error), **facts), "zh")
    flat = "".join(text.split())
    assert flat.count("".join(chinese.split())) == 2 and "12线程" in flat and "可用20.0GiB" in flat
    assert not any(word in text for word in ("still running", "ended", "threads", "free"))
    assert error in checklist.console(rocm(WINDOWS, device(), launch_probe=launch(False, error=error)))


def test_every_ending_of_a_child_has_chinese_words():
    codes = [1, -4, -6, -7, -8, -11, 139, 134, -9, -15, 0xC0000006, *isolate.WINDOWS_CODES]
    said = [isolate.meaning(code)[1] for code in codes]
    assert [one for one in said if endings.both(one)["zh"] == one] == []


@pytest.mark.parametrize("lang", findings.LANGUAGES)
def test_the_console_survives_code_page_936(lang):
    card = device(name="AMD Radeon RX 6650 XT")
    broken = rocm(WINDOWS, card, arch_list=["gfx1100"], launch_probe=launch(False), env={"AMD_LOG_LEVEL": "3"})
    for probe in (broken, rocm(LINUX, card), rocm(LINUX, torch_version_hip=None)):
        text = checklist.console(probe, lang)
        text.encode("gbk")
        assert all(checklist.columns(line) <= checklist.WIDTH for line in text.splitlines() if "http" not in line)
        assert not any(line.strip()[:1] in "，。；：）" for line in text.splitlines() if line.strip())


def test_the_console_ends_with_one_next_step_and_the_ways_out():
    text = checklist.console(rocm(WINDOWS, device(), arch_list=["gfx1100"], launch_probe=launch(False)))
    assert text.startswith("[!!] It does not work: AMD Radeon RX 6600")
    assert text.count("->") == 1 and "Ways out" in text and "HSA_OVERRIDE" not in text
    fine = checklist.console(rocm(LINUX, device(name="AMD Radeon RX 7900 XTX", arch="gfx1100")))
    assert fine.startswith("[ok] It works") and "->" not in fine and "Ways out" not in fine


def test_the_list_of_nvidias_driver_is_the_one_that_counts():
    from rocmlab.readers import nvidia_smi

    line = "0, NVIDIA H200, 575.57.08, 31, 77.0, 700.0, 345, 3201, 0, 143771, 4, 16, 16, 5, 5\n"
    bus = [{"name": f"NVIDIA 10de:233{n}", "vendor": "NVIDIA"} for n in range(8)] + [{"name": "AMD x", "vendor": "AMD"}]
    probe = {"tools": {"nvidia-smi": {"parsed": nvidia_smi.parse(line)}}, "gpus": bus, "system_gpus": ["..."]}
    joined = subject._joined(probe)
    assert joined["system_gpus"] == ["AMD x", "NVIDIA H200"]
    assert joined["gpus"][1]["link"] == {"current_link_width": "16", "max_link_width": "16"}


def test_no_amd_advice_on_an_nvidia_machine():
    card = device(name="NVIDIA H200", arch=None, major=9, minor=0, total_memory=140 * 2**30)
    cuda = {"torch_version": "2.11.0+cu130", "torch_version_hip": None, "torch_version_cuda": "13.0"}
    probe = rocm(LINUX, card, **cuda, arch_list=["sm_90"], which={"rocminfo": None, "nvidia-smi": "present"})
    text = checklist.console(probe)
    assert "NVIDIA H200 (sm_90)" in text and subject.judge(probe) == []
    assert not any(word in text for word in ("gfx", "ROCm", "AMD", "HSA"))


def test_check_prints_ascii_json(monkeypatch, capsys):
    monkeypatch.setattr(subject, "snapshot", lambda limit_s: rocm(WINDOWS, device()))
    assert cli.main(["check", "--json", "--lang", "zh"]) == 0
    out = capsys.readouterr().out
    assert out.isascii() and json.loads(out)["verdict"] == "OK"
    assert cli.main(["check"]) == 0 and "[ok] It works" in capsys.readouterr().out


def test_an_nvidia_card_under_a_cuda_build_is_known_by_its_capability():
    """torch fills gcnArchName with the card's name there (seen on an H200, torch 2.11.0+cu130)."""
    card = {"index": 0, "name": "NVIDIA H200", "gcnArchName": "NVIDIA H200", "major": 9, "minor": 0}
    assert gpus.arch_of(card) == "sm_90"
    assert gpus.arch_of({"gcnArchName": "gfx90a:sramecc+:xnack-", "major": 9, "minor": 0}) == "gfx90a"


def test_variables_of_a_container_image_are_not_recorded():
    seen = subject.recorded(
        {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0", "NVIDIA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "1"}
    )
    assert seen == {"HIP_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "0"}
