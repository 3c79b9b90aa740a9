"""Which tokens a prompt becomes where there is no tokenizer."""

import pytest

from rocmlab import models
from rocmlab.prompts import prompt_ids

pytest.importorskip("torch")


def test_words_of_a_prompt_become_stable_ids():
    loaded = models.load("random:tiny", "cpu", "float32")
    ids = prompt_ids(loaded, "one two, one")
    assert ids[0] == ids[3]
    assert len(ids) == 4
    assert all(0 <= one < 512 for one in ids)
