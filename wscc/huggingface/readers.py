"""The architecture of a config, for each model type, or an error that says what the language cannot express."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wscc.huggingface import encoder_readers as encoders
from wscc.huggingface import expert_readers as experts
from wscc.huggingface import gemma_readers as gemma
from wscc.huggingface import layernorm_readers as plain
from wscc.huggingface import llama_readers as llama
from wscc.huggingface.architecture import Architecture
from wscc.huggingface.config import Config

# Why model types that people ask for are no program of the language.
_REASONS: Final = {
    "gemma3": "it reads images; its `text_config` alone, of model type `gemma3_text`, can be",
    "gemma3n": "its layers have embeddings and routers of their own",
}

READERS: Final[dict[str, Callable[[Config], Architecture]]] = {
    "gpt2": plain.gpt2,
    "opt": plain.opt,
    "llama": llama.llama,
    "qwen2": llama.qwen2,
    "mistral": llama.mistral,
    "granite": llama.granite,
    "bloom": plain.bloom,
    "bert": encoders.bert,
    "vit": encoders.vit,
    "gemma": gemma.gemma,
    "gemma2": gemma.gemma2,
    "gemma3_text": gemma.gemma3,
    "mixtral": experts.mixtral,
    "qwen2_moe": experts.qwen2_moe,
    "qwen3_moe": experts.qwen3_moe,
    "olmoe": experts.olmoe,
    "qwen3": llama.qwen3,
    "phi3": llama.phi3,
    "gpt_neox": plain.gpt_neox,
    "gptj": plain.gptj,
    "falcon": plain.falcon,
    "stablelm": llama.stablelm,
}


def architecture(config: Config) -> Architecture:
    """The architecture of a config. `CompileError` W105 for a field that cannot be expressed exactly, W010 for a
    missing one, W005 or W011 for a value of the wrong kind."""
    kind = config.word("model_type")
    if kind not in READERS:
        shown = kind if len(kind) <= 40 else f"{kind[:40]}..."
        # Names of models that are alike mean other models: none is proposed for another.
        known = f"known are {', '.join(READERS)}"
        reason = f": {_REASONS[kind]}" if kind in _REASONS else ""
        config.refuse("model_type", f"model type `{shown}` cannot be imported{reason}", known)
    config.only("is_encoder_decoder", False, "a model is one chain of layers")
    config.only("add_cross_attention", False, "attention is to the sequence itself")
    if config.has("quantization_config"):
        config.refuse("quantization_config", "`quantization_config`: weights must be floating-point numbers")
    return READERS[kind](config)
