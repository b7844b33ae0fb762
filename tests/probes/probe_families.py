"""Tiny random models of every family the ghost norms know."""

import torch
from cleanse.probes.decoder import Decoder
from cleanse.probes.decoder_config import DecoderConfig
from torch import nn

VOCABULARY = 61
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}


def _randomise(model: nn.Module) -> nn.Module:
    """Gains and biases away from their neutral start, so that a forgotten one shows."""
    generator = torch.Generator().manual_seed(5)
    for p in model.parameters():
        p.data.add_(torch.randn(p.shape, generator=generator) * (0.3 if p.dim() == 1 else 0.1))
    return model.eval()


def own_decoder(tied: bool = True, bias: bool = False) -> nn.Module:
    torch.manual_seed(0)
    config = DecoderConfig(VOCABULARY, 16, 24, 2, 4, 2, 4, max_positions=64, tied=tied, attention_bias=bias)
    return _randomise(Decoder(config))


def llama(tied: bool) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return _randomise(LlamaForCausalLM(LlamaConfig(**_SIZES, tie_word_embeddings=tied)))


def llama_biased() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return _randomise(LlamaForCausalLM(LlamaConfig(**_SIZES, attention_bias=True, mlp_bias=True)))


def mistral() -> nn.Module:
    from transformers import MistralConfig, MistralForCausalLM

    return _randomise(MistralForCausalLM(MistralConfig(**_SIZES, sliding_window=8)))


def qwen2(tied: bool) -> nn.Module:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return _randomise(Qwen2ForCausalLM(Qwen2Config(**_SIZES, tie_word_embeddings=tied)))


def qwen3(tied: bool) -> nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return _randomise(Qwen3ForCausalLM(Qwen3Config(**_SIZES, tie_word_embeddings=tied)))


def gemma() -> nn.Module:
    from transformers import GemmaConfig, GemmaForCausalLM

    return _randomise(GemmaForCausalLM(GemmaConfig(**_SIZES)))


def gemma2() -> nn.Module:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(**_SIZES, final_logit_softcapping=3.0, query_pre_attn_scalar=4, sliding_window=8)
    return _randomise(Gemma2ForCausalLM(config))


def gemma3() -> nn.Module:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(**_SIZES, query_pre_attn_scalar=4, sliding_window=8)
    return _randomise(Gemma3ForCausalLM(config))


def gpt2(tied: bool) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=64,
        n_embd=16,
        n_layer=2,
        n_head=4,
        tie_word_embeddings=tied,
        bos_token_id=1,
        eos_token_id=1,
    )
    return _randomise(GPT2LMHeadModel(config))


def lora(base: nn.Module) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=3, lora_alpha=8, lora_dropout=0.1, target_modules="all-linear", init_lora_weights=False, bias="none"
    )
    return get_peft_model(base, config).eval()


FAMILIES = {
    "own tied": lambda: own_decoder(tied=True),
    "own untied, biases": lambda: own_decoder(tied=False, bias=True),
    "llama tied": lambda: llama(tied=True),
    "llama untied": lambda: llama(tied=False),
    "llama, biases": llama_biased,
    "mistral": mistral,
    "qwen2 tied": lambda: qwen2(tied=True),
    "qwen2 untied": lambda: qwen2(tied=False),
    "qwen3 tied": lambda: qwen3(tied=True),
    "qwen3 untied": lambda: qwen3(tied=False),
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gpt2 tied": lambda: gpt2(tied=True),
    "gpt2 untied": lambda: gpt2(tied=False),
    "lora on llama": lambda: lora(llama(tied=True)),
    "lora on qwen3": lambda: lora(qwen3(tied=False)),
}
