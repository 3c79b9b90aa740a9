"""PyTorch's own database of operators: entries that are right, random, unwritten, unsupported, and one that lies."""

import os
import subprocess
import sys

import pytest

from rocmlab import evidence, operator_study, opinfo, opinfo_calls, opinfo_trial, results


@pytest.fixture(scope="module")
def entries():
    return opinfo_trial.database()


def look(name, dtype="float32"):
    return {**opinfo_trial.look(name, dtype, "cpu"), "device_asked": "cpu", "status": "OK"}


class Lying:
    """An entry whose operator does something else on the device than in float64."""

    def __init__(self, info, change):
        self.info, self.change = info, change

    def __getattr__(self, name):
        return getattr(self.info, name)

    def op(self, *args, **kwargs):
        import torch

        made = self.info.op(*args, **kwargs)
        return made if made.dtype == torch.float64 else self.change(made)


def test_the_database_is_there_and_every_entry_has_a_family(entries):
    assert len(entries) > 400  # 702 in torch 2.13
    families = {opinfo.family(name) for name in entries}
    assert {"OpInfo nn.functional", "OpInfo linalg", "OpInfo fft", "OpInfo tensor operators"} <= families


@pytest.mark.parametrize("name", ["add", "nn.functional.conv2d", "linalg.solve", "sort", "nn.functional.layer_norm"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_usual_operators_are_right(entries, name, dtype):
    row = look(name, dtype)
    if evidence.verdict(row) == "NOT_SUPPORTED":
        assert name == "linalg.solve" and dtype in row["error"]
        return
    assert evidence.verdict(row) == "PASS" and row["samples"] >= 1 and row["inputs"][0]["elements"] > 0
    assert row["inputs"][0]["over_tolerance"] < 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [("randn", "random"), ("empty", "unwritten"), ("new_empty", "unwritten"), ("as_strided.partial_views", "views")],
)
def test_what_cannot_be_compared_is_a_row_with_its_reason(entries, name, reason):
    row = look(name)
    assert evidence.verdict(row) == "NO_REFERENCE" and reason in row["no_reference"]


def test_a_dtype_that_the_database_does_not_list(entries):
    assert evidence.verdict(look("linalg.eigh", "float16")) == "NOT_SUPPORTED"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda made: made + 1, "WRONG_VALUE"),
        (lambda made: made * 1.01, "WRONG_VALUE"),
        (lambda made: made * float("nan"), "NAN"),
        (lambda made: made[..., :0], "WRONG_VALUE"),
        (lambda made: made, "PASS"),
    ],
)
def test_a_lie_is_seen_and_not_excused(entries, monkeypatch, change, code):
    monkeypatch.setitem(entries, "tanh", Lying(entries["tanh"], change))
    row = look("tanh")
    assert evidence.verdict(row) == code
    assert row.get("no_reference") is None


def _tail(made):
    made = made.clone()
    made.view(-1)[-1] = 0
    return made


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["add", "mm", "nn.functional.linear", "tanh"])
@pytest.mark.parametrize("change", [lambda made: made * 0.5, _tail], ids=["half", "tail"])
def test_a_lie_in_any_dtype_is_seen_and_not_excused(entries, monkeypatch, name, dtype, change):
    """Rounding bfloat16 inputs moves a result by a hundredth; that must not excuse half of it, nor a lost last one."""
    monkeypatch.setitem(entries, name, Lying(entries[name], change))
    row = look(name, dtype)
    assert evidence.verdict(row) == "WRONG_VALUE" and row.get("no_reference") is None


def test_wrong_by_a_little_everywhere_is_seen_in_bfloat16(entries, monkeypatch):
    for name in ("add", "tanh", "softmax", "nn.functional.conv2d"):
        monkeypatch.setitem(entries, name, Lying(entries[name], lambda made: made * 1.2))
        assert evidence.verdict(look(name, "bfloat16")) == "WRONG_VALUE", name


def test_another_number_of_results_is_wrong_and_none_is_no_proof(entries, monkeypatch):
    monkeypatch.setitem(entries, "tanh", Lying(entries["tanh"], lambda made: (made, made)))
    assert evidence.verdict(look("tanh")) == "WRONG_VALUE"
    monkeypatch.setattr(Lying, "op", lambda self, *args, **kwargs: ())
    row = look("tanh")
    assert evidence.verdict(row) == "NO_REFERENCE" and "no sample" in row["no_reference"]
    assert evidence.levels({**row, "device_asked": "cpu"})["matches_cpu"] == "unknown"


def test_an_entry_that_begins_with_empty_samples_is_still_compared(entries):
    row = look("nn.functional.unfold")  # its first hundreds of samples have no element
    assert evidence.verdict(row) == "PASS" and row["inputs"][0]["elements"] > 0


def test_an_exact_zero_is_no_scale_for_what_rounding_leaves(entries):
    """One element less its own mean, times 1 / sqrt(eps): zero in float64, a rounding of the mean in bfloat16."""
    import torch

    wanted, sample = [torch.zeros(1, dtype=torch.float64)], type("S", (), {})()
    sample.input, sample.args, sample.kwargs = torch.tensor([8.5]), (), {}
    near, far = ([torch.tensor([value], dtype=torch.bfloat16)] for value in (0.001, 0.5))
    assert opinfo_trial._cancels(near, wanted, sample, torch.bfloat16)
    assert not opinfo_trial._cancels(far, wanted, sample, torch.bfloat16)  # a rounding of 8.5 is 0.066
    assert not opinfo_trial._cancels(wanted, wanted, sample, torch.bfloat16)  # right this time: not steady, not excused
    assert not opinfo_trial._cancels(near, [torch.ones(1).double()], sample, torch.bfloat16)


def test_an_exception_is_a_row(entries, monkeypatch):
    def fail(made):
        raise RuntimeError("miopenStatusInternalError")

    monkeypatch.setitem(entries, "tanh", Lying(entries["tanh"], fail))
    row = look("tanh")
    assert evidence.verdict(row) == "ERROR" and "miopenStatusInternalError" in row["error"]


class Exact:
    """An entry that cannot be computed in float64: on a GPU those that exist there only have no reference."""

    def __init__(self, info):
        self.info = info

    def __getattr__(self, name):
        return getattr(self.info, name)

    def op(self, *args, **kwargs):
        import torch

        if args[0].dtype == torch.float64:
            raise RuntimeError("CUDAGuardImpl initialized with non-CUDA DeviceType: cpu")
        return self.info.op(*args, **kwargs)


def test_what_the_cpu_cannot_compute_has_no_reference_and_is_no_error(entries, monkeypatch):
    monkeypatch.setitem(entries, "tanh", Exact(entries["tanh"]))
    row = look("tanh")
    assert evidence.verdict(row) == "NO_REFERENCE" and row["error"] is None
    assert row["no_reference"].startswith("the CPU cannot compute it (RuntimeError: CUDAGuardImpl")
    assert evidence.levels(row)["ran"] == "yes" and evidence.levels(row)["matches_cpu"] == "unknown"


def test_where_to_cut_stays_on_the_host_and_values_do_not(entries):
    import torch

    move = {"device": "meta", "bits": None, "kind": torch.float32, "nudge": False}
    assert opinfo_calls.moved(torch.tensor([1, 2]), **move, cuts=True).device.type == "cpu"
    assert opinfo_calls.moved(torch.tensor([1.0]), **move, cuts=True).device.type == "meta"
    assert opinfo_calls.moved(torch.tensor([1, 2]), **move).device.type == "meta"
    assert evidence.verdict(look("tensor_split")) == "PASS"


def test_an_entry_that_is_asked_for_a_device_tells_nothing_of_where_results_lie(entries):
    row = look("to")
    assert row.get("device") is None and evidence.verdict(row) == "PASS"
    assert evidence.verdict({**row, "device_asked": "cuda:0"}) == "PASS"
    assert evidence.levels({**row, "device_asked": "cuda:0"})["on_device"] == "na"
    assert evidence.verdict({**look("tanh"), "device_asked": "cuda:0"}) == "CPU_RESULT"


@pytest.mark.parametrize(("place", "code"), [(1, "PASS"), (0, "WRONG_VALUE")])
def test_of_a_batch_norm_the_result_is_compared_and_not_what_it_keeps(entries, monkeypatch, place, code):
    def change(made):
        return tuple(one + 1 if at == place else one for at, one in enumerate(made))

    class Keeps(Lying):
        def op(self, *args, **kwargs):
            made = self.info.op(*args, **kwargs)
            return made if made[0].dtype.itemsize == 8 else self.change(made)

    monkeypatch.setitem(entries, "native_batch_norm", Keeps(entries["native_batch_norm"], change))
    assert evidence.verdict(look("native_batch_norm")) == code


def test_a_worker_of_the_database_computes_float32_in_float32():
    code = (
        "import torch; from rocmlab import opinfo_trial; torch.backends.cudnn.allow_tf32 = True; "
        "assert opinfo_trial.begin('cpu')['entries'] > 400; print(torch.backends.cudnn.allow_tf32)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", env=dict(os.environ))
    assert done.stdout.strip() == "False", done.stderr[-500:]


def test_a_difference_that_rounding_the_inputs_explains_is_no_fault(entries, monkeypatch):
    """The remainder of something large: one rounding of the input moves it anywhere."""

    class Steep(Lying):
        def op(self, value, *args, **kwargs):
            return (value * 1e9) % 7

    monkeypatch.setitem(entries, "tanh", Steep(entries["tanh"], None))
    assert "badly conditioned" in look("tanh")["no_reference"]


def test_a_study_writes_a_row_for_each_and_goes_on_in_the_time_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(opinfo, "_workers", lambda device: 1)
    run = results.start("02", str(tmp_path))
    earlier = {"set": opinfo.SET, "family": "x", "status": "CRASH", "words": "SIGSEGV"}
    for op, dtype in (("abs", "float32"), ("randn", "float32"), ("linalg.eigh", "float16")):
        run.append("operators", {**earlier, "op": op, "dtype": dtype, "device_asked": "cpu"})
    plan = operator_study.Plan(dtypes=("float32", "float16"), limit_s=60)
    assert opinfo.study(run, "cpu", plan, mode="curated", budget_s=60) == 0
    again = results.start("02", str(tmp_path))
    assert opinfo.study(again, "cpu", plan, mode="failed", budget_s=60) == 3
    rows = again.rows("operators")
    assert {row["op"]: evidence.verdict(row) for row in rows} == {
        "abs": "PASS", "randn": "NO_REFERENCE", "linalg.eigh": "NOT_SUPPORTED",
    }  # fmt: skip
    assert all(row["plan_only"] for row in rows)
    now, before = operator_study.merged(operator_study.attempts(tmp_path))
    assert len(now) == len(before) == 3 and not operator_study.failed(tmp_path, opinfo.SET)


def test_without_a_database_there_is_one_row_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(opinfo, "_names", lambda *_: "PyTorch's OpInfo database: ImportError: no numpy")
    run = results.start("02", str(tmp_path))
    assert opinfo.study(run, "cpu", operator_study.Plan(), mode="all", budget_s=60) == 1
    row = run.rows("operators")[0]
    assert evidence.verdict(row) == "NOT_TRIED" and "no numpy" in row["not_tried"]


def test_what_the_time_does_not_suffice_for_is_a_row_each(tmp_path, monkeypatch):
    monkeypatch.setattr(opinfo, "_workers", lambda device: 1)
    monkeypatch.setattr(opinfo, "_names", lambda *_: ["abs", "tanh", "sin"])
    run = results.start("02", str(tmp_path))
    plan = operator_study.Plan(dtypes=("float32", "bfloat16"), limit_s=60)
    assert opinfo.study(run, "cpu", plan, mode="all", budget_s=-1) == 6
    rows = run.rows("operators")
    assert len(rows) == 6 and {row["not_tried"] for row in rows} == {"budget_spent"}
    assert {evidence.verdict(row) for row in rows} == {"NOT_TRIED"}
