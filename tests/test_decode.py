"""The hand-written loop on a tiny model on the CPU: tokens against independent loops, padding, early ends, visits, and
what happens when memory is short or a process dies."""

import importlib
import itertools

import pytest

from rocmlab import batches, decode, generate, isolate, lengths, models, rates, results, timing

torch = pytest.importorskip("torch")

CPU = {"arm": "cpu", "device": "cpu", "dtype": "float32"}
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1], [8, 2, 8, 1, 8]]


@pytest.fixture(scope="module")
def tiny():
    return models.load("random:tiny", "cpu", "float32")


def greedy(model, prompt, tokens):
    """Write without a cache: the whole text again for every token."""
    text = list(prompt)
    with torch.inference_mode():
        for _ in range(tokens):
            text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(prompt) :]


# ---- the loop


def test_a_text_is_that_of_a_loop_without_a_cache_and_of_generate(tiny):
    record = decode.write(tiny.model, "cpu", [PROMPTS[0]], 7)
    assert record["token_ids"] == [greedy(tiny.model, PROMPTS[0], 7)]
    assert record["token_ids"][0] == generate.generation(tiny, "cpu", PROMPTS[0], 7)["token_ids"]


def test_rows_of_a_left_padded_batch_write_what_each_writes_alone(tiny):
    record = decode.write(tiny.model, "cpu", PROMPTS, 6)
    assert record["token_ids"] == [greedy(tiny.model, prompt, 6) for prompt in PROMPTS]
    assert (record["padded"], record["batch"]) == (True, 3)
    assert (record["prompt_tokens"], record["real_prompt_tokens"]) == (8, 16)


def test_padding_stands_on_the_left_and_equal_lengths_need_no_mask():
    ids, mask = decode.padded([[5, 6, 7], [8]], "cpu")
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert decode.padded([[5, 6], [7, 8]], "cpu")[1] is None


def test_padding_on_the_right_would_be_seen(tiny):
    """The test above can fail: a row padded on the right continues its padding."""
    ids = torch.tensor([PROMPTS[0], PROMPTS[1] + [0] * 5])
    with torch.inference_mode():
        written = int(tiny.model(ids).logits[1, -1].argmax())
    assert written != greedy(tiny.model, PROMPTS[1], 1)[0]


def test_stamps_stand_in_order_prefill_before_the_first_token(tiny):
    record = decode.write(tiny.model, "cpu", [PROMPTS[0]], 5)
    stamps = record["token_stamps_s"]
    assert len(stamps) == 5 and all(early < late for early, late in itertools.pairwise(stamps))
    assert 0 < record["t_prefill_s"] < record["t_first_token_s"] == stamps[0] and record["t_end_s"] == stamps[-1]


def test_rows_that_end_early_count_their_real_tokens_only(tiny):
    texts = [greedy(tiny.model, prompt, 8) for prompt in PROMPTS]
    end = texts[1][2]
    expected = [text.index(end) + 1 if end in text else 8 for text in texts]
    record = decode.write(tiny.model, "cpu", PROMPTS, 8, end=end)
    assert record["row_tokens"] == expected and expected[1] <= 3
    whole = record["t_end_s"]
    assert rates.rates(record)["e2e_tok_s"] == pytest.approx(sum(expected) / whole)
    later = sum(count - 1 for count in expected) / (whole - record["t_first_token_s"])
    assert rates.rates(record)["decode_tok_s"] == pytest.approx(later)


def test_the_loop_stops_when_every_row_has_ended():
    assert decode.row_tokens([[1, 2], [9, 3], [5, 9]], 9) == [2, 3]
    assert decode.ended([[1, 2], [9, 3], [5, 9]], 9) and not decode.ended([[1, 2], [9, 3]], 9)
    assert decode.row_tokens([[9, 9], [9, 9]], None) == [2, 2]  # the end token is off


def test_going_back_gives_the_same_steps_again(tiny):
    for prompts in ([PROMPTS[0]], PROMPTS):
        with torch.inference_mode():
            logits, state = decode.prefill(tiny.model, *decode.padded(prompts, "cpu"))
            decode.choose(state, logits)
            first = state.token
            decode.steps(tiny.model, state, 4)
            once = decode.on_host(state)
            decode.back(state, 4)
            state.token = first
            layers = [one for cache in state.past.values() for one in cache.layers]
            # As real texts have it: no view into the longer one.
            assert all(one.keys.is_contiguous() and one.values.is_contiguous() for one in layers)
            times = decode.steps(tiny.model, state, 4, stamp=False)
        assert decode.on_host(state) == once == [greedy(tiny.model, prompt, 5)[-1] for prompt in prompts]
        assert len(times) == 4


def test_work_is_queued_between_the_model_and_its_token(tiny):
    done = []
    with torch.inference_mode():
        logits, state = decode.prefill(tiny.model, *decode.padded([PROMPTS[0]], "cpu"))
        decode.choose(state, logits)
        decode.steps(tiny.model, state, 3, work=lambda: done.append(next(iter(state.past.values())).get_seq_length()))
    assert done == [9, 10, 11]


@pytest.mark.parametrize(
    ("said", "short"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", True),
        ("HIP out of memory. Tried to allocate 2.00 GiB.", True),
        ("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes", True),
        ("DefaultCPUAllocator: not enough memory: you tried to allocate 99 bytes.", True),
        ("CUDA error: invalid device function", False),
        ("shape mismatch", False),
    ],
)
def test_what_counts_as_out_of_memory(said, short):
    assert decode.is_out_of_memory(RuntimeError(said)) is short


# ---- lengths


def in_this_process(target, arguments, *, limit_s):
    """Call what a child would call; the child itself is seen in the sweep below."""
    module, _, name = target.partition(":")
    result = getattr(importlib.import_module(module), name)(**arguments)
    return isolate.Outcome("OK", "ended normally", 0, 0.1, result, None, "", "")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    run = results.start("04", str(tmp_path_factory.mktemp("run")))
    plan = {"tokens": 4, "visits": 3, "stamp_steps": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolate, "call", in_this_process)
        ended = lengths.study(run, "random:tiny", CPU, lengths=[24, 12], more_processes=1, limit_s=120, **plan)
    return ended, results.rows(run.path, "lengths"), results.rows(run.path, "stamps")


def test_each_length_is_visited_twice_before_the_steady_rounds(study):
    ended, rows, _ = study
    assert [one["status"] for one in ended] == ["OK", "OK"]
    mine = [(r["length"], r["visit"]) for r in rows if r["process"] == 0 and r["kind"] == "hand"]
    start = [(5, "cold"), (12, "first"), (12, "second"), (24, "first"), (24, "second")]
    assert mine == [*start, *((length, "steady") for length in (12, 24, 24, 12, 12, 24))]


def test_the_sensors_are_read_before_the_model_is_loaded_and_after_each_text(study):
    _, rows, _ = study
    assert next(r["kind"] for r in rows if r["process"] == 0) == "before"
    read = [r for r in rows if r["kind"] in ("before", "hand")]
    assert all("memory_used_bytes" in r["sensor"] and "host_mhz" in r["sensor"] for r in read)


def test_the_further_process_measures_the_shortest_length_only(study):
    _, rows, _ = study
    assert {r["length"] for r in rows if r["process"] == 1 and r["kind"] == "hand" and r["visit"] != "cold"} == {12}
    assert not [r for r in rows if r["process"] == 1 and r["kind"] in ("by_hand", "generate")]


def test_generate_stands_beside_the_loop_interleaved_and_writes_the_same(study):
    _, rows, _ = study
    pairs = [r for r in rows if r["kind"] in ("by_hand", "generate")]
    assert [r["kind"] for r in pairs] == ["by_hand", "generate", "generate", "by_hand", "by_hand", "generate"]
    assert pairs[0]["token_ids"][0] == pairs[1]["token_ids"]


def test_stamps_are_compared_in_turns_on_the_same_steps(study):
    _, _, rows = study
    assert [r["stamped"] for r in rows] == [True, False, False, True, True, False]
    assert {r["case"] for r in rows} == {"as_it_is"}  # a CPU has no queue, so nothing is injected
    assert all(0 < r["first_queued_ms"] <= r["ms"] and r["steps"] == 2 for r in rows)


def test_each_row_carries_what_makes_it_comparable(study):
    _, rows, _ = study
    wanted = {"run", "notebook", "model_hash", "dtype", "visit", "process", "clock", "evidence_grade", "method_version"}
    wanted |= {"device", "stop_rule", "prompt_hash", "prompt_tokens", "new_tokens", "batch", "load"}
    for row in rows:
        assert wanted <= set(row) or row["kind"] in ("conditions", "before")


def test_a_length_that_does_not_fit_is_a_row_and_the_others_go_on(tmp_path, monkeypatch):
    real = decode.write

    def write(model, device, prompts, tokens, end=None):
        if len(prompts[0]) == 24:
            raise RuntimeError("HIP out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 7.98 GiB "
                               "of which 1.12 GiB is free.")  # fmt: skip
        return real(model, device, prompts, tokens, end)

    monkeypatch.setattr(decode, "write", write)
    run = results.start("04", str(tmp_path))
    plan = {"lengths": [12, 24], "tokens": 3, "visits": 2, "stamp_steps": 2}
    lengths.measure(str(tmp_path), "04", run.attempt, 0, "random:tiny", CPU, **plan)
    rows = [r for r in results.rows(tmp_path, "lengths") if r["kind"] == "hand"]
    short = [r for r in rows if r.get("error")]
    assert [(r["length"], r["visit"]) for r in short] == [(24, "first"), (24, "second")]
    assert (short[0]["memory"]["asked_gib"], short[0]["memory"]["free_gib"]) == (1.5, 1.12)
    assert sum(r["visit"] == "steady" and r["length"] == 12 for r in rows) == 2


# ---- batches


def sweep_of(tmp_path, plan, **changes):
    run = results.start("05", str(tmp_path))
    given = {"steps": 3, "passes": 2, "limit_s": 60, "arch": "cpu", "peak_gb_s": None} | changes
    ended = batches.study(run, "random:tiny", CPU, plan, **given)
    return ended, [r for r in results.rows(tmp_path, "batches") if r["kind"] == "item"]


def test_a_sweep_measures_every_batch_a_first_pass_apart_and_one_padded(tmp_path):
    plan = batches.items([4, 1, 2], [16])
    assert [(one["batch"], one["padded"]) for one in plan] == [(1, False), (2, False), (4, False), (2, True)]
    ended, rows = sweep_of(tmp_path, plan)
    assert [one["status"] for one in ended] == ["OK"]
    assert [(r["batch"], r["padded"], r["visit"]) for r in rows[:3]] == [
        (1, False, "first"), (1, False, "steady"), (1, False, "steady"),
    ]  # fmt: skip
    assert len(rows) == 12
    for row in rows:
        assert len(row["step_ms"]) == 3 and row["decode_step_ms"] == pytest.approx(sum(row["step_ms"]) / 3)
        assert row["schema"] == "rocmlab-batch-sweep-1" and row["prompt_tokens"] == 16
    assert {r["real_prompt_tokens"] for r in rows if r["padded"]} == {16 + 12}
    assert {r["real_prompt_tokens"] for r in rows if r["batch"] == 4} == {64}


def test_out_of_memory_is_recorded_stepped_over_and_larger_batches_are_not_tried(tmp_path, monkeypatch):
    real = decode.prefill

    def prefill(model, ids, mask):
        if ids.numel() >= 4 * 16:
            raise RuntimeError("CUDA out of memory. Tried to allocate 3.00 GiB.")
        return real(model, ids, mask)

    monkeypatch.setattr(decode, "prefill", prefill)
    run = results.start("05", str(tmp_path))
    plan = batches.items([1, 2, 4, 8], [8, 16])
    batches.measure(str(tmp_path), "05", run.attempt, 0, "random:tiny", CPU, plan, 2, 1, {})
    rows = [r for r in results.rows(tmp_path, "batches") if r["kind"] == "item"]
    said = {(r["context"], r["batch"], r["padded"]): r["error"] for r in rows if r.get("error")}
    assert set(said) == {(8, 8, False), (16, 4, False), (16, 8, False), (16, 4, True)}
    assert "Tried to allocate 3.00 GiB" in said[8, 8, False] and said[16, 8, False].startswith("not tried")
    assert next(r for r in rows if r.get("error"))["memory"]["asked_gib"] == 3.0


def test_other_errors_are_not_taken_for_a_lack_of_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "prefill", lambda *_: (_ for _ in ()).throw(RuntimeError("invalid device function")))
    with pytest.raises(RuntimeError, match="invalid device function"):
        batches.measure(str(results.start("05", str(tmp_path)).path), "05", "1", 0, "random:tiny", CPU,
                        batches.items([1, 2], [8]), 2, 1, {})  # fmt: skip


def test_a_batch_that_the_machine_has_no_room_for_is_not_tried_on_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "load", lambda: {"memory_free_bytes": 400_000, "load_1min": 0.0, "cores": 2})
    plan = batches.items([1, 64], [16])[:2]
    batches.measure(str(results.start("05", str(tmp_path)).path), "05", "1", 0, "random:tiny", CPU, plan, 2, 1, {})
    rows = [r for r in results.rows(tmp_path, "batches") if r["kind"] == "item"]
    assert not [r for r in rows if r["batch"] == 1 and r.get("error")]
    short = next(r for r in rows if r["batch"] == 64)
    assert "out of memory" in short["error"] and short["memory"]["asked_gib"] > 0.5 * short["memory"]["free_gib"]


def test_a_process_that_is_killed_costs_its_batch_only(tmp_path, monkeypatch):
    """The first child dies at batch 4, as the out-of-memory killer ends it; the second one goes on behind it."""
    calls = []

    def call(target, arguments, *, limit_s):
        calls.append([one["batch"] for one in arguments["plan"]])
        plan = arguments["plan"][:2] if len(calls) == 1 else arguments["plan"]
        batches.measure(**{**arguments, "plan": plan})
        ok = len(calls) > 1
        words = "ended normally" if ok else "ended by SIGKILL, most often the out-of-memory killer"
        return isolate.Outcome("OK" if ok else "KILLED", words, 0 if ok else -9, 1.0, None, None, "", "")

    monkeypatch.setattr(isolate, "call", call)
    plan = [{"context": c, "batch": b, "padded": False} for c in (8, 16) for b in (1, 2, 4, 8)]
    ended, rows = sweep_of(tmp_path, plan)
    assert [one["status"] for one in ended] == ["KILLED", "OK"]
    assert calls == [[1, 2, 4, 8, 1, 2, 4, 8], [1, 2]]  # nothing as large as the one that died is tried again
    lost = {(r["context"], r["batch"]): r["error"] for r in rows if r.get("error")}
    assert set(lost) == {(8, 4), (8, 8), (16, 4), (16, 8)} and "out-of-memory killer" in lost[8, 4]
    assert lost[16, 8] == "not tried: batch 4 ended its process"
    assert {(r["context"], r["batch"]) for r in rows} == {(c, b) for c in (8, 16) for b in (1, 2, 4, 8)}


def test_batches_that_the_time_limit_cut_off_are_rows(tmp_path, monkeypatch):
    def call(target, arguments, *, limit_s):
        batches.measure(**{**arguments, "plan": arguments["plan"][:1]})
        monkeypatch.setattr(batches.time, "monotonic", lambda: 1e9)
        return isolate.Outcome("TIMEOUT", "still running after 60 s, ended", None, 60.0, None, None, "", "")

    monkeypatch.setattr(isolate, "call", call)
    ended, rows = sweep_of(tmp_path, batches.items([1, 2, 4], [8])[:3])
    assert [one["status"] for one in ended] == ["TIMEOUT"]
    assert [r["batch"] for r in rows if r.get("error", "").startswith("no time: the limit of 60 s")] == [2, 4]


def test_a_model_that_cannot_be_loaded_ends_the_study_with_one_row(tmp_path):
    run = results.start("05", str(tmp_path))
    ended = batches.study(run, "random:no-such-shape", CPU, batches.items([1, 2], [8]), steps=2, passes=1, limit_s=60)
    assert [one["status"] for one in ended] == ["ERROR"] and "not a known shape" in ended[0]["words"]
