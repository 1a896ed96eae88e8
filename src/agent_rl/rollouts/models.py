"""Models and tokenizers on disk and in memory: built, loaded, saved and fingerprinted.

A policy folder holds Hugging Face files (safetensors, tokenizer with chat template) and
``card.json``: fingerprints of the weights and of the tokenizer, and for adapters the fingerprint of
the base they belong to. Loading checks all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece as SpaceJoiningDecoder
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from agent_rl.config import ModelConfig
from agent_rl.errors import UserError
from agent_rl.files import atomic_directory, read_json, write_json
from agent_rl.rollouts.policy_card import CARD, check_adapters, read_card

# One token opens the agent's turn and one closes it; everything else is the task's own words. The
# space keeps the last word of the instructions and the first of the observation apart.
_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'assistant' -%}<act>{{ message['content'] }}<end>"
    "{%- else -%}{{ message['content'] + ' ' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<act>{%- endif -%}"
)


def build_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """A word-level tokenizer with a two-token chat template.

    The padding token is a token of its own, so that padding can never be mistaken for the end of a
    turn.
    """
    specials = ["<pad>", "<unk>", "<act>", "<end>"]
    vocabulary = {word: i for i, word in enumerate([*specials, *sorted(set(words))])}
    core = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = WhitespaceSplit()
    core.decoder = SpaceJoiningDecoder(prefix="##", cleanup=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<end>",
        additional_special_tokens=["<act>"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def build_model(
    config: ModelConfig, tokenizer: PreTrainedTokenizerBase, max_tokens: int, seed: int
) -> PreTrainedModel:
    """A Llama-architecture model with fresh weights; the global generator is left as it was."""
    llama = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=max_tokens,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        # The usual 0.02 suits widths of thousands; at width 64 it slows learning threefold.
        initializer_range=config.hidden_size**-0.5,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(llama)


def add_adapters(model: PreTrainedModel, config: ModelConfig, seed: int) -> PeftModel:
    """Wrap a model with fresh LoRA adapters (dropout 0: see the check in ``config``)."""
    settings = PeftLoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=0.0,
        target_modules=list(config.lora.target_modules),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return cast(PeftModel, get_peft_model(model, settings))


def weights_fingerprint(model: torch.nn.Module) -> str:
    """Short SHA-256 over all weights, by name."""
    sha = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha.update(name.encode())
        sha.update(tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16]


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Short SHA-256 over vocabulary and chat template."""
    content = repr(sorted(tokenizer.get_vocab().items())) + str(tokenizer.chat_template)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def save_policy(
    path: Path,
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    card: dict[str, Any],
    base_weights: str = "",
) -> None:
    """Save a policy folder atomically.

    Args:
        path: folder to write.
        model: full model, or adapters on a base.
        tokenizer: its tokenizer.
        card: what else to remember (method, seed, config digest, ledger).
        base_weights: fingerprint of the base, for adapters.
    """
    with atomic_directory(path) as folder:
        model.save_pretrained(str(folder))
        # peft writes a model card with a path of this machine in it.
        (folder / "README.md").unlink(missing_ok=True)
        if isinstance(model, PeftModel):
            _forget_paths(folder / "adapter_config.json")
        tokenizer.save_pretrained(folder)
        write_json(
            folder / CARD,
            {
                **card,
                "adapter": isinstance(model, PeftModel),
                "base_weights": base_weights,
                "weights": weights_fingerprint(model),
                "tokenizer": tokenizer_fingerprint(tokenizer),
            },
        )


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """Load a tokenizer; one without a padding token pads with its end token, by length only."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path), trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds for one cause
        raise _unreadable("tokenizer", path, error) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(path: str | Path) -> PreTrainedModel:
    """Load a causal LM from a folder or hub id; safetensors only, dropout switched off."""
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(path), use_safetensors=True, trust_remote_code=False, dtype=torch.float32
        )
    except Exception as error:
        raise _unreadable("model", path, error) from error
    for module in model.modules():
        # Dropout would make two forward passes disagree; see the check in ``config``.
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 (a plain attribute, no submodule)
    return model


def load_policy(
    path: Path, made_by: str, base: Path | None = None
) -> tuple[PreTrainedModel | PeftModel, PreTrainedTokenizerBase, dict[str, Any]]:
    """Load a policy folder and check its fingerprints.

    Args:
        path: folder written by :func:`save_policy`.
        made_by: command that makes it, for the error message.
        base: folder of the base, needed for adapters.

    Raises: UserError when files are missing or damaged, when the tokenizer is not the one the
        weights were trained with, or when an adapter belongs to another base.
    """
    card = read_card(path, made_by)
    tokenizer = load_tokenizer(path)
    if tokenizer_fingerprint(tokenizer) != card["tokenizer"]:
        raise UserError(
            f"{path}: the tokenizer is not the one these weights were trained with "
            f"(expected {card['tokenizer']}); make it again with `{made_by}`"
        )
    model: PreTrainedModel | PeftModel
    if card["adapter"]:
        if base is None:
            raise UserError(f"{path} holds adapters; name the folder of their base")
        check_adapters(path)
        base_model, base_tokenizer, base_card = load_policy(base, made_by)
        if (
            base_card["weights"] != card["base_weights"]
            or tokenizer_fingerprint(base_tokenizer) != card["tokenizer"]
        ):
            raise UserError(
                f"{path} belongs to base {card['base_weights']}, not to {base} "
                f"({base_card['weights']}); make it again with `{made_by}`"
            )
        try:
            model = PeftModel.from_pretrained(cast(PreTrainedModel, base_model), str(path))
        except Exception as error:  # settings of another library, other shapes, other names
            raise _unreadable("adapters", path, error) from error
    else:
        model = load_model(path)
    found = weights_fingerprint(model)
    if found != card["weights"]:
        raise UserError(
            f"{path}: weights have fingerprint {found}, the card says {card['weights']}; "
            f"delete the folder and make it again with `{made_by}`"
        )
    model.eval()
    if torch.cuda.is_available():
        torch.nn.Module.to(model, "cuda")
    return model, tokenizer, card


def _unreadable(what: str, path: str | Path, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:200]
    return UserError(
        f"no {what} can be read from {path}: {type(error).__name__}: {reason}; "
        "name a folder or model that holds safetensors and needs no code of its own"
    )


def _forget_paths(adapter_config: Path) -> None:
    """The base is identified by fingerprint; its path on this machine would differ elsewhere."""
    content = read_json(adapter_config, "training")
    content["base_model_name_or_path"] = None
    write_json(adapter_config, content)
