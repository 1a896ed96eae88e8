"""Policies on disk: adapters belong to one base, and loading gives back what was saved."""

import pytest
import torch

from agent_rl.errors import UserError
from agent_rl.rollouts.models import add_adapters, load_policy, save_policy, weights_fingerprint

IDS = torch.arange(4, 14)[None]
CARD = {"task": "any", "method": "base"}


@pytest.fixture
def saved(make_model, word_tokenizer, study, tmp_path):
    """A base and adapters on it that have something to say, both saved."""
    base, folder = make_model(word_tokenizer), tmp_path / "adapters"
    save_policy(tmp_path / "base", base, word_tokenizer, CARD)
    own = weights_fingerprint(base)
    adapted = add_adapters(base, study.model, 0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3, generator=torch.Generator().manual_seed(0))
    save_policy(folder, adapted, word_tokenizer, CARD, own)
    return tmp_path / "base", folder, adapted


@torch.no_grad()
def test_p57_adapters_on_their_base_answer_as_when_they_were_saved(saved):
    base, folder, adapted = saved
    loaded, _, _ = load_policy(folder, "test", base)
    plain, _, _ = load_policy(base, "test")
    unmerged = loaded(IDS).logits
    assert torch.equal(unmerged, adapted.eval()(IDS).logits)
    with loaded.disable_adapter():  # the reference: a fresh base, and not the wrapped one
        assert torch.equal(loaded(IDS).logits, plain(IDS).logits)
    assert (unmerged - plain(IDS).logits).abs().max() > 1e-2
    assert (loaded.merge_and_unload()(IDS).logits - unmerged).abs().max() < 1e-4


def test_p57_adapters_are_refused_on_a_base_that_differs_in_one_number(
    saved, make_model, word_tokenizer, tmp_path
):
    _, folder, _ = saved
    other = make_model(word_tokenizer)
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1e-3
    save_policy(tmp_path / "other", other, word_tokenizer, CARD)
    with pytest.raises(UserError, match="belongs to base"):
        load_policy(folder, "test", tmp_path / "other")


def test_p57_weights_that_are_not_those_of_the_card_are_refused(saved):
    from safetensors.torch import load_file, save_file

    base, folder, _ = saved
    for path in (base, folder):
        (file,) = path.glob("*.safetensors")
        tensors = load_file(file)
        name = sorted(tensors)[-1]
        save_file({**tensors, name: tensors[name] + 1e-3}, file, metadata={"format": "pt"})
        with pytest.raises(UserError, match="fingerprint"):
            load_policy(path, "test", base)
