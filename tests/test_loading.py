"""Loader, copies and OpenCV: measured for real where they can be, and judged both ways on made-up rows."""

import importlib.util
import os
import shutil

import pytest
from spoken import said_codes

from rocmlab import findings, loading, loading_judges, opencv, results, vision_tables, worker

# ---- the loader


def test_pictures_are_made_on_the_spot_and_always_the_same():
    data = loading.Pictures(4, 32)
    assert data[0].shape == (3, 32, 32) and (data[1] == data[1]).all() and not (data[0] == data[2]).all()
    assert abs(float(data[0].mean())) < 2


def test_the_loader_is_measured_for_real(tmp_path):
    run = results.start("10", str(tmp_path))
    with worker.Worker() as keeper:
        plan = {"workers": [0, 1, 999], "batch": 2, "image": 32, "batches": 3}
        ended = loading.study_loader(run, keeper, "cpu", **plan, limit_s=120)
        assert loading.study_copies(run, keeper, "cpu", batch=2, image=32, limit_s=120) == [], "nothing to copy to"
    assert ended[0]["status"] == "OK"
    none, one, many = run.rows("loader")
    assert len(none["samples_ms"]) == 6 and one["samples_ms"] and one["start_ms"] > 0
    assert many["samples_ms"] == [] and "cores" in many["reason"]
    frame = vision_tables.by_workers(run.rows("loader"))
    assert frame["images_a_second"].iloc[0].median > 0 and frame["images_a_second_reason"].iloc[2]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_batch_takes_what_it_takes_however_many_come_at_once(monkeypatch, count):
    """A loader that hands out a batch every 10 ms, by a clock that only it moves."""
    import torch.utils.data

    now = [0.0]

    class Loader:
        def __init__(self, data, batch_size, num_workers):
            self.left = len(data) // batch_size

        def __iter__(self):
            return self

        def __next__(self):
            if not self.left:
                raise StopIteration
            self.left -= 1
            now[0] += 0.01
            return None

    monkeypatch.setattr(torch.utils.data, "DataLoader", Loader)
    monkeypatch.setattr(loading.time, "perf_counter", lambda: now[0])
    found = loading.one_loader(count, batch=4, image=8, batches=9)
    assert found["samples_ms"] == pytest.approx([10.0] * len(found["samples_ms"])) and len(found["samples_ms"]) >= 6
    assert found["start_ms"] == pytest.approx(10.0)


def test_a_copy_takes_what_one_pass_takes(monkeypatch):
    """Small sizes are copied many times between two readings of the clock: 2 ms a copy stay 2 ms."""
    import torch

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(loading, "_copies", lambda target, given, count: count)
    monkeypatch.setattr(loading.clock, "warm", lambda *_, **__: [])
    monkeypatch.setattr(loading.clock, "timed", lambda count, device: 2.0 * count)
    monkeypatch.setattr(loading, "SIZES", (loading.KIB, loading.MIB))
    rows = loading.copies("cpu", 3 * loading.MIB)
    assert {row["bytes"] for row in rows} == {loading.KIB, loading.MIB, 3 * loading.MIB}
    assert {row["passes"] for row in rows} == {4096, 4, 1}
    assert all(row["samples_ms"] == [2.0] * loading.SAMPLES for row in rows)


def test_a_filter_that_computes_something_else_on_its_device_is_counted():
    """One pixel a level apart is rounding, one two levels apart is not."""
    import types

    class Placed:
        def __init__(self, picture):
            self.picture = picture

        def get(self):
            return self.picture

    def blur(given, size, sigma):
        if not isinstance(given, Placed):
            return given
        made = given.picture.copy()
        made[0, 0, 0] ^= 1
        made[1, 1, 1] ^= 2
        return Placed(made)

    stand_in = types.SimpleNamespace(UMat=Placed, GaussianBlur=blur, ocl=types.SimpleNamespace(finish=lambda: None))
    row = opencv._filter(stand_in, 9)
    assert (row["levels_apart"], row["pixels_apart"]) == (2, 1)
    assert all(len(row[f"{way}_ms"]) == opencv.SAMPLES for way in ("mat", "umat", "umat_copied"))


def loaders(**ms: float | list[float]) -> list[dict]:
    rows = []
    for name, one in ms.items():
        samples = one if isinstance(one, list) else [one * (1 + 0.01 * (place % 3)) for place in range(8)]
        rows.append({"workers": int(name[1:]), "batch": 32, "samples_ms": samples, "start_ms": 100.0})
    return rows


def test_workers_help_or_not():
    (found,) = loading_judges.judge_workers(loaders(w0=100.0, w2=50.0, w4=25.0), None)
    assert found["code"] == "WORKERS_HELP" and found["numbers"]["workers_best"] == 4
    assert found["numbers"]["times"] == pytest.approx(4.0) and "num_workers=4" in findings.say(found)["advice"]
    assert said_codes(loading_judges.judge_workers(loaders(w0=100.0, w2=99.0), None)) == ["WORKERS_NO_GAIN"]
    assert said_codes(loading_judges.judge_workers(loaders(w0=100.0, w2=150.0), None)) == ["WORKERS_NO_GAIN"]
    noisy = loaders(w0=[100.0, 60.0] * 4, w2=[80.0, 40.0] * 4)
    assert said_codes(loading_judges.judge_workers(noisy, None)) == ["WORKERS_UNDECIDED"]
    assert loading_judges.judge_workers([], None) == []


def test_the_loader_feeds_training_or_starves_it():
    rows = loaders(w0=100.0, w2=50.0)
    (_, fed) = loading_judges.judge_workers(rows, 500.0)
    assert fed["code"] == "LOADER_FEEDS" and fed["numbers"]["workers_enough"] == 2
    assert said_codes(loading_judges.judge_workers(rows, 5000.0)) == ["WORKERS_HELP", "LOADER_STARVES"]


def test_a_loader_that_dies_is_named_and_too_many_workers_are_not():
    dead = {
        "workers": 4,
        "batch": 32,
        "samples_ms": [],
        "reason": "RuntimeError: DataLoader worker is killed: Bus error",
    }
    many = {"workers": 8, "batch": 32, "samples_ms": [], "reason": "more workers than the 4 cores"}
    assert said_codes(loading_judges.judge_workers([*loaders(w0=100.0, w2=50.0), dead, many], None)) == [
        "WORKERS_FAILED",
        "WORKERS_HELP",
    ]


# ---- copies


def copies(pageable: float, pinned: float, wobble: float = 0.01) -> list[dict]:
    size = 2**24
    return [
        {"way": way, "bytes": size, "batch_bytes": size, "samples_ms": [ms * (1 + wobble * (i % 3)) for i in range(8)]}
        for way, ms in (("pageable", pageable), ("pinned", pinned))
    ]


def test_pinned_memory_helps_or_not():
    (found,) = loading_judges.judge_pinned(copies(4.0, 1.0))
    assert found["code"] == "PINNED_HELPS" and found["numbers"]["pinned_gb_s"] == pytest.approx(16.6, rel=0.02)
    assert said_codes(loading_judges.judge_pinned(copies(1.0, 1.0))) == ["PINNED_NO_GAIN"]
    assert said_codes(loading_judges.judge_pinned(copies(1.0, 1.3))) == ["PINNED_NO_GAIN"]
    assert said_codes(loading_judges.judge_pinned(copies(1.1, 1.0, wobble=0.4))) == ["PINNED_UNDECIDED"]
    assert loading_judges.judge_pinned([]) == []
    line = vision_tables.by_transfer(copies(4.0, 1.0)).iloc[0]
    assert line["pinned_ratio"].median == pytest.approx(4.0) and line["size_mib"] == 16


def test_a_size_that_does_not_fit_has_its_reason():
    rows = [{"way": way, "bytes": 2**30, "batch_bytes": 2**20, "samples_ms": [], "reason": "out of memory"} for way in
            ("pageable", "pinned")]  # fmt: skip
    assert loading_judges.judge_pinned(rows) == []
    assert vision_tables.by_transfer(rows).iloc[0]["pinned_gb_s_reason"] == "out of memory"


# ---- OpenCV


def test_opencv_through_opencl_for_real(tmp_path, monkeypatch):
    if importlib.util.find_spec("cv2") is None:  # importing it here would leave its LD_LIBRARY_PATH to later tests
        pytest.skip("opencv-python-headless is not installed")
    if not shutil.which("clinfo") or not os.listdir("/etc/OpenCL/vendors"):  # noqa: PTH208
        pytest.skip("no OpenCL driver here (Debian: pocl-opencl-icd)")
    monkeypatch.delenv(opencv.CHOICE, raising=False)
    run = results.start("10", str(tmp_path))
    ended = opencv.study(run, height=180, limit_s=120)
    assert {one["status"] for one in ended} == {"OK"}
    row = run.rows("opencv")[-1]
    assert (
        row["device_name"] and row["device_kind"] in ("CPU", "GPU", "accelerator") and "OpenCL" in row["device_version"]
    )
    assert row["pixels_apart"] == 0 and row["levels_apart"] <= opencv.LEVELS
    assert all(len(row[f"{name}_ms"]) == opencv.SAMPLES for name in ("mat", "umat", "umat_copied"))
    (found,) = loading_judges.judge_opencv(run.rows("opencv"))
    assert found["code"].startswith("OPENCL_") and said_codes([found])
    assert loading_judges.opencv_table(run.rows("opencv"))[-1]["umat_ms"].median > 0


def test_opencv_that_is_not_installed_is_a_note(tmp_path, monkeypatch):
    (tmp_path / "cv2.py").write_text("raise ImportError('no cv2 here')\n", encoding="utf-8")
    here = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), here]))
    run = results.start("10", str(tmp_path / "run"))
    assert len(opencv.study(run, height=180, limit_s=60)) == 1
    assert said_codes(loading_judges.judge_opencv(run.rows("opencv"))) == ["OPENCV_ABSENT"]


def row(**changes) -> dict:
    made = {"installed": True, "version": "4.12", "have_opencl": True, "device_name": "gfx1032", "device_kind": "GPU"}
    made |= {"pixels_apart": 0, "levels_apart": 1, "mat_ms": [10.0] * 8, "umat_ms": [2.0] * 8}
    return made | {"umat_copied_ms": [12.0] * 8, "umat_first_ms": 900.0} | changes


def test_opencl_helps_or_not_or_is_wrong_or_absent():
    assert said_codes(loading_judges.judge_opencv([row()])) == ["OPENCL_HELPS"]
    assert said_codes(loading_judges.judge_opencv([row(umat_ms=[30.0] * 8)])) == ["OPENCL_NO_GAIN"]
    assert said_codes(loading_judges.judge_opencv([row(umat_ms=[5.0, 20.0] * 4)])) == ["OPENCL_UNDECIDED"]
    (wrong,) = loading_judges.judge_opencv([row(pixels_apart=7, levels_apart=90)])
    assert (wrong["code"], wrong["status"]) == ("OPENCL_WRONG", "broken") and said_codes([wrong])
    assert said_codes(loading_judges.judge_opencv([row(device_name=None)])) == ["OPENCL_NONE"]
    assert said_codes(loading_judges.judge_opencv([{"installed": None, "error": "CRASH: ended by SIGSEGV"}])) == [
        "OPENCV_ENDED"
    ]
    assert loading_judges.judge_opencv([]) == []
