"""The network and its tokenizer: a small Whisper with one token per word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.micro_whisper.extras import LazyModule

tokenizers: Any = LazyModule("tokenizers")
transformers: Any = LazyModule("transformers")

TIMESTAMPS = 1501  # 0.00 to 30.00 s in steps of 20 ms, as in every Whisper
SPECIALS = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
"""In the order of an English-only Whisper: CTranslate2 finds some of these by their distance."""


def tokenizer(words: Sequence[str]) -> Any:
    """Makes byte-level BPE in which every word, with the space before it, is one token, by merges from the
    left.

    There is no empty token: CTranslate2 from 4.8 on takes a vocabulary with one for multilingual."""
    vocabulary = {
        letter: index for index, letter in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    }
    merges: dict[tuple[str, str], None] = {}
    for word in words:
        piece = "Ġ"
        for letter in word:
            merges.setdefault((piece, letter))
            piece += letter
            vocabulary.setdefault(piece, len(vocabulary))
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=list(merges)))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(
        [tokenizers.AddedToken(name, special=True, normalized=False) for name in SPECIALS]
    )
    return made


def network(made: Any) -> Any:
    """Makes a Whisper with 1.95 million parameters for the vocabulary of the tokenizer `made`."""
    end = made.token_to_id("<|endoftext|>")
    width, heads = 128, 4
    config = transformers.WhisperConfig(
        vocab_size=made.get_vocab_size() + TIMESTAMPS,
        num_mel_bins=80,
        d_model=width,
        encoder_layers=4,
        decoder_layers=2,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_source_positions=1500,
        max_target_positions=448,
        dropout=0.0,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        decoder_start_token_id=made.token_to_id("<|startoftranscript|>"),
        suppress_tokens=[],
        begin_suppress_tokens=[end],
    )
    return transformers.WhisperForConditionalGeneration(config)
