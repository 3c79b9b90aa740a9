"""Sensors: every source read right, what is unknown null and never 0, and faults that were planted found by name."""

import json
import os
import time
from pathlib import Path

import pytest

from rocmlab import drift, findings, nvml, results, sensor_judges, sensor_sources, sensors
from rocmlab.readers import decode, smi

DATA = Path(__file__).parent / "data" / "sensors"
GIB = 2**30


# ---- amdgpu's files


def card(root: Path, bus: str = "0000:03:00.0", hwmon: dict | None = None, **files: str) -> None:
    """Write the files of one card as amdgpu shows them."""
    folder = root / "sys/bus/pci/devices" / bus
    usual = {"mem_info_vram_total": "8573157376", "mem_info_vram_used": "4294967296", "mem_info_gtt_used": "14757888"}
    usual |= {"gpu_busy_percent": "98", "pp_dpm_sclk": "0: 500Mhz\n1: 2450Mhz *\n2: 2694Mhz\n"}
    usual |= {"pp_dpm_mclk": "0: 96Mhz\n3: 1000Mhz *\n"}
    known = {"power1_average": "130000000", "power1_cap": "160000000", "temp1_input": "64000", "temp1_label": "edge"}
    known |= {"temp2_input": "79000", "temp2_label": "junction", "freq1_input": "2431000000", "freq1_label": "sclk"}
    (folder / "hwmon/hwmon3").mkdir(parents=True)
    for name, text in {**usual, **files}.items():
        if text is not None:
            (folder / name).write_text(text + "\n", encoding="utf-8")
    for name, text in (known if hwmon is None else hwmon).items():
        (folder / "hwmon/hwmon3" / name).write_text(text + "\n", encoding="utf-8")


def test_a_card_s_files_give_every_field_in_its_unit(tmp_path):
    card(tmp_path)
    found = sensor_sources.sysfs("0000:03:00.0", tmp_path)()
    wanted = {
        "sclk_mhz": 2431,
        "sclk_max_mhz": 2694,
        "mclk_mhz": 1000,
        "mclk_max_mhz": 1000,
        "power_w": 130,
        "power_cap_w": 160,
        "temp_c": 64,
        "temp_hotspot_c": 79,
    }
    wanted |= {"use_percent": 98, "memory_used_bytes": 4 * GIB, "memory_total_bytes": 8573157376}
    assert found == {**wanted, "spilled_bytes": 14757888}


def test_the_right_card_of_two_and_none_when_it_cannot_be_told(tmp_path):
    card(tmp_path)
    card(tmp_path, "0000:0b:00.0", gpu_busy_percent="3")
    assert sensor_sources.sysfs("0000:0b:00.0", tmp_path)()["use_percent"] == 3
    assert sensor_sources.sysfs(None, tmp_path) is None
    assert sensor_sources.sysfs("0000:99:00.0", tmp_path) is None


def test_newer_and_sparser_drivers(tmp_path):
    hwmon = {
        "power1_input": "9000000",
        "temp1_input": "55000",
        "temp1_label": "edge",
        "freq1_input": "",
        "in0_input": "7",
    }
    card(tmp_path, hwmon=hwmon, mem_info_gtt_used=None, gpu_busy_percent="N/A")
    found = sensors.row("amdgpu sysfs", sensor_sources.sysfs(None, tmp_path)())
    assert (found["power_w"], found["temp_c"], found["sclk_mhz"]) == (9, 55, 2450)
    for key in ("power_cap_w", "spilled_bytes", "use_percent", "temp_hotspot_c"):
        assert found[key] is None and "amdgpu sysfs" in found[f"{key}_reason"]


def test_a_level_without_an_asterisk_is_no_clock():
    assert sensor_sources.current_level("0: 500Mhz\n1: 2450Mhz\n") is None
    assert sensor_sources.current_level("S: 19Mhz *\n0: 500Mhz\n") == 19
    assert sensor_sources.current_level("") is None


def test_the_highest_clock_is_the_highest_level_of_a_list_of_several():
    assert sensor_sources.highest_level("S: 19Mhz *\n0: 500Mhz\n1: 2694Mhz\n") == 2694
    assert sensor_sources.highest_level("0: 2450Mhz *\n") is None, "one level tells the present, not the limit"
    assert sensor_sources.highest_level("") is None


def test_the_clock_of_the_core_at_work_and_unknown_where_the_system_does_not_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(sensor_sources.timing, "core", lambda: 3)
    assert sensor_sources.own_core(tmp_path) == {
        "host_mhz": None, "host_mhz_reason": "the system does not tell the clock of a core",
        "host_max_mhz": None, "host_max_mhz_reason": "the system does not tell the clock of a core",
    }  # fmt: skip
    folder = tmp_path / "sys/devices/system/cpu/cpu3/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_cur_freq").write_text("798000\n", encoding="utf-8")
    (folder / "cpuinfo_max_freq").write_text("4700000\n", encoding="utf-8")
    assert sensor_sources.own_core(tmp_path) == {"host_mhz": 798, "host_max_mhz": 4700}


def test_an_impossible_zero_is_unknown_and_a_possible_one_is_zero():
    found = sensors.row("x", {"temp_c": 0, "power_w": 0.0, "sclk_mhz": 0, "use_percent": 0, "spilled_bytes": 0})
    assert (found["use_percent"], found["spilled_bytes"]) == (0, 0)
    assert [found[key] for key in ("temp_c", "power_w", "sclk_mhz")] == [None] * 3
    assert found["temp_c_reason"] and "use_percent_reason" not in found
    nothing = sensors.row(None, {})
    assert all(nothing[key] is None and nothing[f"{key}_reason"] for key in sensors.FIELDS)


# ---- programs


def text_of(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def test_amd_smi_metric():
    found = sensor_sources.card_of("amd-smi", text_of("amd-smi-metric.json"), None)
    wanted = {"temp_c": 71, "temp_hotspot_c": 88, "power_w": 161, "sclk_mhz": 2380, "mclk_mhz": 1000, "use_percent": 97}
    wanted |= {"memory_total_bytes": 8176 * 2**20, "memory_used_bytes": 7900 * 2**20, "spilled_bytes": 1200 * 2**20}
    assert found == found | wanted and found["limited_by"] == ["throttle status"]
    assert found["sclk_max_mhz"] == 2725 and found["mclk_max_mhz"] is None
    newer = json.dumps({"gpu_data": json.loads(text_of("amd-smi-metric.json"))})
    assert sensor_sources.card_of("amd-smi", newer, None) == found


def test_rocm_smi_by_pci_address():
    text = text_of("rocm-smi.json")
    first = sensor_sources.card_of("rocm-smi", text, "0000:03:00.0")
    wanted = {"temp_c": 64, "temp_hotspot_c": 79, "power_w": 130, "power_cap_w": 160, "sclk_mhz": 2450}
    assert first == first | wanted | {"spilled_bytes": 14757888, "memory_used_bytes": 4 * GIB}
    second = sensor_sources.card_of("rocm-smi", text, "0000:0b:00.0")
    assert (second["temp_c"], second["power_w"], second["spilled_bytes"]) == (41, None, None)
    assert sensor_sources.card_of("rocm-smi", text, None) == {}, "two cards and no address: whose is it?"
    assert sensor_sources.card_of("rocm-smi", "", "0000:03:00.0") == {}


def test_the_only_card_of_a_tool_is_another_when_it_prints_another_address():
    """A processor with graphics of its own may be all that a tool lists."""
    cards = json.loads(text_of("rocm-smi.json"))
    only = json.dumps({"card0": cards["card0"]})
    assert sensor_sources.card_of("rocm-smi", only, "0000:03:00.0")["temp_c"] == 64
    assert sensor_sources.card_of("rocm-smi", only, "0000:0b:00.0") == {}
    assert sensor_sources.card_of("rocm-smi", only, None)["temp_c"] == 64, "the only one, and nothing to compare with"
    silent = {key: value for key, value in cards["card0"].items() if "bus" not in key.lower()}
    assert sensor_sources.card_of("rocm-smi", json.dumps({"card0": silent}), "0000:0b:00.0")["temp_c"] == 64


def test_nvidia_smi_and_windows_counters():
    line = "0, NVIDIA H200, 550.54, 41, 310.5, 700.0, 1980, 2619, 99, 143771, 20480, 16, 16, 5, 5\n"
    found = sensor_sources.card_of("nvidia-smi", line, "0000:03:00.0")
    assert (found["temp_c"], found["power_w"], found["sclk_mhz"]) == (41, 310.5, 1980)
    assert found["spilled_bytes"] is None
    rows = [
        {"Name": "a", "DedicatedUsage": 100, "SharedUsage": 7},
        {"Name": "b", "DedicatedUsage": 9000, "SharedUsage": 50},
    ]
    assert sensor_sources.adapters({"adapters": rows}) == {"memory_used_bytes": 9000, "spilled_bytes": 50}
    assert sensor_sources.adapters({}) == {} == sensor_sources.adapters({"adapters": [None, {"Name": "c"}]})


SAMPLES = {
    "amd-smi-metric-text-head.txt": {"power_w": 20, "sclk_mhz": 14, "use_percent": 0, "limited_by": [], "temp_c": None},
    "amd-smi-metric-usage-w7700-head.json.txt": {"use_percent": 42, "power_w": None, "sclk_mhz": None},
    "amd-smi-default-table-v620.txt": {"temp_c": 37, "power_w": 11, "power_cap_w": 250, "mclk_mhz": None},
    "rocm-smi-json-780m-all-head.json.txt": {"temp_c": 31, "power_w": 7.222, "sclk_mhz": 800, "mclk_mhz": 400,
                                             "use_percent": 19, "bus": "0000:C4:00.0", "memory_used_bytes": None},
    "rocm-smi-json-gfx1100-selected.json": {"temp_c": 49, "temp_hotspot_c": 49, "power_w": 19, "use_percent": 0,
                                            "memory_used_bytes": 794341376, "sclk_mhz": None, "spilled_bytes": None},
    "rocm-smi-json-2019-old-keys.json": {"temp_c": 77, "temp_hotspot_c": 103, "power_w": 222, "use_percent": None},
    "rocm-smi-text-2019.txt": {}, "rocm-smi-text-mi300a-rocm7.txt": {}, "rocm-smi-text-rocm6.0-head.txt": {},
    "amd-smi-static-asic-gpu-data.json": {"temp_c": None, "power_w": None}, "amd-smi-static-text-mi350x.txt": {},
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_real_tools(shared, name):
    text = decode((shared / "amd-samples" / name).read_bytes())
    body = "\n".join(line for line in text.splitlines() if not line.startswith("# amd-sample"))
    first = smi.parse(body)["gpus"][0]
    assert {key: first[key] for key in SAMPLES[name]} == SAMPLES[name]
    made = sensors.row("sample", first)
    for key in sensors.FIELDS:
        assert made[key] is not None or made[f"{key}_reason"]
    assert not any(made[key] == 0 for key in sensors.NEVER_ZERO)


def test_every_sample_of_a_monitoring_tool_is_in_the_list(shared):
    files = {path.name for path in (shared / "amd-samples").glob("*smi*")}
    without_rows = {"amd-smi-version-line.txt", "nogpu-rocm-smi-debian12.txt", "nogpu-amdsmi-python-import.txt"}
    assert files == set(SAMPLES) | without_rows


# ---- NVIDIA's library


class Library:
    """What nvml.h promises, with the values of one card; a function that is absent is one the driver lacks."""

    def __init__(self, power: int = 0):
        self.power = power

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus, handle):
        handle._obj.value = 7
        return 0 if bus == b"0000:03:00.0" else 2

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 2
        return 0

    def nvmlDeviceGetClockInfo(self, card, which, into):
        into._obj.value = {nvml.SM_CLOCK: 1980, nvml.MEMORY_CLOCK: 2619}[which]
        return 0

    def nvmlDeviceGetMaxClockInfo(self, card, which, into):
        into._obj.value = {nvml.SM_CLOCK: 1995, nvml.MEMORY_CLOCK: 3201}[which]
        return 0

    def nvmlDeviceGetPowerUsage(self, card, into):
        into._obj.value = 310500
        return self.power

    def nvmlDeviceGetTemperature(self, card, which, into):
        into._obj.value = 41
        return 0

    def nvmlDeviceGetMemoryInfo(self, card, into):
        into._obj.total, into._obj.used = 143 * GIB, 20 * GIB
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card, into):
        into._obj.value = 0x4 | 0x20 | 0x1
        return 0


def test_nvml_units_reasons_and_what_it_does_not_support():
    found = nvml.reader("0000:03:00.0", Library())()
    assert (found["sclk_mhz"], found["mclk_mhz"], found["power_w"], found["temp_c"]) == (1980, 2619, 310.5, 41)
    assert found["memory_used_bytes"] == 20 * GIB and found["limited_by"] == ["power cap", "heat"]
    assert found["use_percent"] is None and found["power_cap_w"] is None
    assert (found["sclk_max_mhz"], found["mclk_max_mhz"]) == (1995, 3201)
    assert nvml.reader("0000:03:00.0", Library(power=3))()["power_w"] is None, "3: not supported"
    assert nvml.reader("0000:99:00.0", Library()) is None, "two cards, and not this one"
    assert nvml.limits(0x1) == [] and nvml.limits(0) == []


# ---- judges: planted faults are named, calm series are not


def readings(n: int = 20, **series) -> list[dict]:
    """Rows of n readings; a field is a list, or a number for all."""
    rows = []
    for place in range(n):
        found = {key: (one[place] if isinstance(one, list) else one) for key, one in series.items()}
        rows.append({"t_s": place / 2, "reading_ms": 1.0, **sensors.row("amdgpu sysfs", found)})
    return rows


def codes(found) -> list[str]:
    for one in found:
        for lang in findings.LANGUAGES:
            said = findings.say(one, lang)
            assert said["sentence"] and "{" not in said["sentence"] + said["advice"]
    return [one["code"] for one in found]


def heating(n: int = 20) -> list[dict]:
    return readings(n, temp_c=[60 + 2 * i for i in range(n)], sclk_mhz=[2500 - 20 * i for i in range(n)], power_w=150)


CALM = [10.0, 10.1, 9.9, 10.0, 10.05] * 6
SLOWING = [10.0 + 0.1 * i for i in range(30)]


def test_throttling_is_named_with_heat_and_not_without():
    assert codes(sensor_judges.judge(heating(), SLOWING, "step")) == ["THROTTLING"]
    assert codes(sensor_judges.judge(readings(temp_c=60, sclk_mhz=2500), SLOWING, "step")) == ["SLOWS_DOWN"]
    (held,) = sensor_judges.judge(heating(), CALM, "step")
    assert held["code"] == "SPEED_HELD" and abs(held["numbers"]["change_pct"]) < 1
    assert held["numbers"]["temp_highest_c"] == 98 and codes([held])


def test_a_clock_that_ramps_up_is_named():
    ramp = [20 - i for i in range(8)] + [10.0, 10.1, 9.9] * 10
    assert "CLOCK_RAMP" in codes(sensor_judges.judge(readings(sclk_mhz=2500), [float(one) for one in ramp], "step"))
    assert "CLOCK_RAMP" not in codes(sensor_judges.judge(readings(sclk_mhz=2500), CALM, "step"))


def memory(used: float, spilled: list[float], total: float | None = 8 * GIB) -> list[dict]:
    series = {
        "memory_used_bytes": used * GIB,
        "spilled_bytes": [one * GIB for one in spilled],
        "memory_total_bytes": total,
    }
    return readings(len(spilled), **series)


def test_a_spill_needs_a_full_card():
    assert codes(sensor_judges.judge(memory(7.9, [0.1, 0.2, 2.0]))) == ["SPILL_SEEN"]
    pinned = sensor_judges.judge(memory(3.0, [0.1, 0.2, 2.0]))
    assert codes(pinned) == ["MEMORY_HELD"] and pinned[0]["variant"] == "pinned"
    assert codes(sensor_judges.judge(memory(7.9, [0.1, 0.1, 0.12]))) == ["MEMORY_HELD"]
    unsure = sensor_judges.judge(memory(7.9, [0.1, 2.0], total=None))
    assert unsure[0]["variant"] == "unsure" and codes(unsure) == ["SPILL_SEEN"]
    assert sensor_judges.judge([row | {"integrated": True} for row in memory(7.9, [0.1, 2.0])]) == []
    assert sensor_judges.judge(readings(memory_used_bytes=GIB)) == [], "unknown is not zero"


def test_a_machine_that_swaps_is_named():
    swapping = [row | {"source": "psutil"} for row in memory(7.9, [0.0, 1.0])]
    assert codes(sensor_judges.judge(swapping)) == ["SPILL_SEEN"]
    assert sensor_judges.judge([row | {"source": "psutil"} for row in memory(7.9, [1.0, 1.0])]) == []


def test_limits_of_heat_and_power():
    hot = [row | {"limited_by": ["heat"]} for row in readings(temp_c=95)]
    assert codes(sensor_judges.judge(hot)) == ["HEAT_LIMIT"]
    assert sensor_judges.judge([row | {"limited_by": []} for row in readings(temp_c=95)]) == []
    assert codes(sensor_judges.judge(readings(power_w=159, power_cap_w=160))) == ["POWER_LIMIT"]
    assert sensor_judges.judge(readings(power_w=100, power_cap_w=160)) == []


def test_no_source_is_unknown_and_nothing_measured_says_nothing():
    assert codes(sensor_judges.judge([sensors.row(None, {})] * 3)) == ["SENSORS_ABSENT"]
    assert sensor_judges.judge([]) == []
    assert codes(sensor_judges.faults([None, *heating()], SLOWING, "step")) == ["THROTTLING"]
    assert sensor_judges.faults(heating(), CALM, "step") == []


def test_the_other_notebooks_hand_their_readings_on():
    import pandas as pd
    from made import study

    from rocmlab import curve_judges, speed, steadiness

    rows = [row | {"sensor": one} for row, one in zip(study(gpu=None, processes=5), heating(15), strict=True)]
    slower = [row | {"token_stamps_s": None} for row in rows]
    for place, row in enumerate(slower):
        row["t_end_s"] = row["t_first_token_s"] + 60 * (1 + 0.02 * place) / 15
    frame = speed.table([row | {"prompt_id": "one"} for row in slower])
    assert isinstance(frame, pd.DataFrame)
    assert "THROTTLING" in codes(steadiness.judge(slower, frame))
    calm = speed.table([row | {"sensor": None, "prompt_id": "one"} for row in slower])
    assert "SLOWS_DOWN" in codes(steadiness.judge(slower, calm))
    texts = [
        {"kind": "hand", "visit": "steady", "process": 0, "length": 8, "block": place, "device": "cuda:0",
         "token_stamps_s": [0.1, 0.1 + ms / 1000, 0.1 + 2 * ms / 1000], "new_tokens": 3, "prompt_tokens": 8,
         "t_start_s": 0.0, "t_first_token_s": 0.1, "t_end_s": 0.1 + 2 * ms / 1000, "t_prefill_s": 0.1, "sensor": one}
        for place, (ms, one) in enumerate(zip(SLOWING, heating(30), strict=True))
    ]  # fmt: skip
    assert "THROTTLING" in codes(curve_judges.judge_steadiness(texts))


# ---- does it disturb?


def blocks(with_it: float, without: float, pairs: int = 8, noise: float = 0.002) -> list[dict]:
    rows = []
    for pair in range(pairs):
        wobble = 1 + noise * ((pair * 7) % 5 - 2)
        for sampling, ms in ((True, with_it), (False, without)):
            rows.append({"pair": pair, "sampling": sampling, "calls_ms": [ms * (wobble if sampling else 1)] * 10})
    return rows


def test_the_sampler_is_calm_disturbing_or_undecided():
    assert codes(sensor_judges.judge_cost(blocks(10.02, 10.0), readings(8))) == ["SAMPLER_CALM"]
    assert codes(sensor_judges.judge_cost(blocks(11.0, 10.0), readings(8))) == ["SAMPLER_DISTURBS"]
    assert codes(sensor_judges.judge_cost(blocks(10.1, 10.0, noise=0.05), readings(8))) == ["SAMPLER_UNDECIDED"]
    assert codes(sensor_judges.judge_cost(blocks(10.0, 10.0, pairs=2), readings(8))) == ["SAMPLER_UNDECIDED"]
    assert sensor_judges.judge_cost([{"calls_ms": [], "reason": "no"}], readings(8)) == []
    busy = [*blocks(11.0, 10.0), {"kind": "conditions", "others_cpu_pct": 60.0}]
    (found,) = sensor_judges.judge_cost(busy, readings(2))
    assert found["variant"] == "loaded" and codes([found]) == ["SAMPLER_UNDECIDED"]
    calm = [*blocks(11.0, 10.0), {"kind": "conditions", "others_cpu_pct": 1.0}]
    assert codes(sensor_judges.judge_cost(calm, readings(8))) == ["SAMPLER_DISTURBS"]


def test_a_sampler_that_read_nothing_has_shown_nothing():
    for few in ([], readings(7)):  # eight blocks with it
        (found,) = sensor_judges.judge_cost(blocks(10.0, 10.0), few)
        assert found["variant"] == "silent" and codes([found]) == ["SAMPLER_UNDECIDED"]


@pytest.mark.parametrize(
    ("says", "ready"),
    [("print('ready')", True), ("print('hello'); print('ready')", True), ("raise SystemExit(3)", False)],
)
def test_a_sampler_is_ready_when_it_says_so_and_not_when_it_ends(tmp_path, monkeypatch, says, ready):
    """Its process is replaced by one that says what is given, and then waits for its input to close."""
    import subprocess
    import sys

    real = subprocess.Popen
    program = f"{says}; import sys; sys.stdout.flush(); sys.stdin.read()"
    monkeypatch.setattr(sensors.subprocess, "Popen", lambda _, **given: real([sys.executable, "-c", program], **given))
    with sensors.Sampler(results.start("10", str(tmp_path)), "cpu", "test") as sampler:
        assert sampler.ready is ready


def test_one_slow_call_a_reading_is_seen_although_the_median_is_blind_to_it():
    rows = [row | {"calls_ms": [10.0] * 9 + [15.0 if row["sampling"] else 10.0]} for row in blocks(10, 10)]
    assert codes(sensor_judges.judge_cost(rows, readings(8))) == ["SAMPLER_DISTURBS"]


# ---- for real, on this machine


def test_the_sampler_reads_only_while_it_is_on(tmp_path):
    run = results.start("10", str(tmp_path))
    with sensors.Sampler(run, "cpu", "test") as sampler:
        assert sampler.ready
        time.sleep(0.7)
        assert run.rows("sensors") == [], "it was not switched on"
        sampler.on()
        time.sleep(1.8)
        sampler.off()
        time.sleep(0.3)
        count = len(run.rows("sensors"))
        time.sleep(1.2)
        assert len(run.rows("sensors")) == count
        process = sampler._process.pid
    rows = run.rows("sensors")
    assert 2 <= count <= 5 and rows[-1]["source"] == "psutil" and rows[-1]["memory_used_bytes"] > 0
    assert rows[-1]["power_w"] is None and rows[-1]["power_w_reason"]
    assert rows[0]["t_s"] < rows[-1]["t_s"] and rows[0]["reading_ms"] < 1000
    if os.name == "posix":
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_reading_between_two_blocks_costs_little():
    sensors.reading("cpu")
    began = time.perf_counter()
    found = sensors.reading("cpu")
    assert time.perf_counter() - began < 1 and found["source"] == "psutil"
    assert drift.sensors([found, found])["temp_first_c"] in (None, found["temp_c"])


def test_a_source_that_fails_costs_the_reading_and_nothing_else():
    def fails():
        raise OSError("the card sleeps")

    assert sensors._quiet(fails) == {}


def test_a_device_that_cannot_be_asked_gives_a_reading_without_values(monkeypatch):
    def refused(device):
        raise RuntimeError("HIP error: invalid device ordinal")

    monkeypatch.setattr(sensors, "identity", refused)
    found = sensors.reading("cuda:77")
    assert found["source"] is None and found["temp_c"] is None and "no source" in found["temp_c_reason"]
