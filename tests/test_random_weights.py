"""Random weights of real shapes: published sizes, equal every time, and they run."""

import pytest

from rocmlab import models, random_weights

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("qwen3-4b", 4_022_468_096),
        ("smollm2-135m", 134_515_008),
    ],
)
def test_presets_have_the_published_number_of_parameters(preset, count):
    from transformers import AutoConfig, AutoModelForCausalLM

    values = {key: value for key, value in random_weights.PRESETS[preset].items() if key != "rope_theta"}
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(AutoConfig.for_model(**values))
    assert sum(parameter.numel() for parameter in made.parameters()) == count


def test_random_weights_are_the_same_every_time_and_normally_distributed():
    one, two = (models.load("random:tiny", "cpu", "float32").model for _ in range(2))
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
    table = one.get_input_embeddings().weight
    assert table.std().item() == pytest.approx(0.02, rel=0.05)
    assert len(torch.unique(table, dim=0)) == table.shape[0]
    assert not any(tensor.is_meta for tensor in [*one.parameters(), *one.buffers()])


def test_random_weights_run_and_position_matters():
    model = models.load("random:tiny", "cpu", "float32").model
    with torch.inference_mode():
        logits = model(torch.tensor([[7, 7, 9, 7]])).logits[0]
    assert torch.isfinite(logits).all()
    assert not torch.allclose(logits[0], logits[3])


def test_an_unknown_shape_is_named():
    with pytest.raises(models.ModelError, match=r"random:qwen9.*qwen3-0\.6b"):
        models.load("random:qwen9", "cpu", "float32")
