"""A text check that can fail: gaps of the written tokens below the best one, with logits spoilt on purpose."""

import pytest

from rocmlab import generate, models, text_check

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def tiny():
    return models.load("random:tiny", "cpu", "float32")


class Sabotaged:
    """A model whose logits are spoilt from one step on, as a wrong kernel would do it."""

    def __init__(self, model, spoil):
        self.model, self.spoil = model, spoil

    def __call__(self, tokens):
        answer = self.model(tokens)
        answer.logits = self.spoil(answer.logits.clone())
        return answer


def gaps_of(tiny, written, spoil=None):
    subject = tiny if spoil is None else models.Loaded(Sabotaged(tiny.model, spoil), None, "", "", "", False)
    return text_check._gaps(tiny, subject, "cpu", [3, 1, 4, 1, 5], written)


def test_right_tokens_have_no_gap(tiny):
    written = generate.generation(tiny, "cpu", [3, 1, 4, 1, 5], 6)["token_ids"]
    found = gaps_of(tiny, written)
    assert max(found["gaps_logits"]) < 1e-4
    assert (found["logits_finite"], found["max_logit_error"]) == (True, 0.0)


def test_a_wrong_token_has_the_gap_that_arithmetic_gives(tiny):
    written = generate.generation(tiny, "cpu", [3, 1, 4, 1, 5], 6)["token_ids"]
    with torch.inference_mode():
        logits = tiny.model(torch.tensor([[3, 1, 4, 1, 5, *written[:2]]])).logits[0, -1]
    worst = int(logits.argmin())
    found = gaps_of(tiny, [*written[:2], worst, *written[3:]])
    assert found["gaps_logits"][2] == pytest.approx(float(logits.max() - logits.min()), abs=1e-4)


def test_broken_logits_are_found_at_their_step(tiny):
    def spoil(logits):
        logits[0, 7:] = float("nan")
        return logits

    written = generate.generation(tiny, "cpu", [3, 1, 4, 1, 5], 6)["token_ids"]
    found = gaps_of(tiny, written, spoil)
    assert (found["logits_finite"], found["first_nonfinite_step"]) == (False, 3)


def test_a_shift_of_the_logits_is_measured(tiny):
    written = generate.generation(tiny, "cpu", [3, 1, 4, 1, 5], 6)["token_ids"]
    found = gaps_of(tiny, written, lambda logits: logits + 0.25)
    assert found["max_logit_error"] == pytest.approx(0.25, abs=1e-5)
