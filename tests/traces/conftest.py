"""Tiny random models with their own small tokenizers, saved as ordinary Hugging Face folders."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config
from transformers import Qwen3ForCausalLM as Qwen3

from audit.records import ExtraState, TraceInfo
from audit.traces.trace import Trace
from audit.traces.verifier import Verifier, load_verifier

PHRASE = "the cat sat on a mat and saw some dog run up hill while it was raining hard today"
WORDS = PHRASE.split()
TEXT = " ".join(WORDS[i * 7 % len(WORDS)] for i in range(400))
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def save_tokenizer(folder: Path, bos: bool) -> int:
    """Train a word-level tokenizer on TEXT; return how many ids it has."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(special_tokens=["<unk>", "<s>"], show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")
    fast.save_pretrained(folder)
    return tokenizer.get_vocab_size()


def save_llama(folder: Path) -> Path:
    """Llama with BOS, its own head, and 11 padding rows that would often win if not masked."""
    torch.manual_seed(0)
    known = save_tokenizer(folder, bos=True)
    model = LlamaForCausalLM(LlamaConfig(**SMALL, vocab_size=known + 11, tie_word_embeddings=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
        model.lm_head.weight[known:] *= 10
    model.save_pretrained(folder)
    return folder


def save_qwen3(folder: Path) -> Path:
    """Qwen3 without BOS, with a tied head."""
    torch.manual_seed(1)
    known = save_tokenizer(folder, bos=False)
    config = Qwen3Config(**SMALL, head_dim=8, vocab_size=known, tie_word_embeddings=True)
    model = Qwen3(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="session")
def qwen3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_qwen3(tmp_path_factory.mktemp("models") / "qwen3")


@pytest.fixture(scope="session")
def llama(llama_folder: Path) -> Verifier:
    return load_verifier(llama_folder)


@pytest.fixture(scope="session")
def qwen3(qwen3_folder: Path) -> Verifier:
    return load_verifier(qwen3_folder)


@pytest.fixture
def trace() -> Trace:
    """Five positions in sequences of 3 and 2, with one further state."""
    info = TraceInfo(
        model="tiny",
        model_sha256="ab" * 32,
        tokenizer_sha256=None,
        vocabulary=10,
        corpus="hand",
        register="in_distribution",
        language=None,
        stage="post_norm",
        oracle="verifier_greedy",
        states=(ExtraState(tensor="layer_1", layer=1),),
        captured_by="test",
        settings={"context": 3, "café": [1, None]},
    )
    return Trace(
        info=info,
        hidden=torch.arange(20, dtype=torch.float32).reshape(5, 4),
        token=torch.tensor([1, 2, 3, 4, 5]),
        oracle=torch.tensor([2, 3, -1, 5, 6]),
        sequence=torch.tensor([0, 0, 0, 1, 1]),
        position=torch.tensor([0, 1, 2, 0, 1]),
        states={"layer_1": torch.ones(5, 2, dtype=torch.bfloat16)},
    )
