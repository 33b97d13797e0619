"""Exports a trained network to the directory format of faster-whisper."""

from __future__ import annotations

import json
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from bench.micro_whisper.extras import LazyModule

converters: Any = LazyModule("ctranslate2.converters")
transformers: Any = LazyModule("transformers")

PREPROCESSOR = {
    "chunk_length": 30,
    "feature_size": 80,
    "hop_length": 160,
    "n_fft": 400,
    "sampling_rate": 16000,
    "feature_extractor_type": "WhisperFeatureExtractor",
}


def export(model: Any, words: Any, out: Path) -> None:
    """Writes `model` with its tokenizer as int8 to the directory `out`."""
    model.eval()
    end = words.token_to_id("<|endoftext|>")
    generation = model.generation_config
    generation._from_model_config = False  # otherwise transformers omits the values set here
    generation.suppress_tokens = []
    generation.begin_suppress_tokens = [end]
    generation.lang_to_id = {}
    upper_layers = range(model.config.decoder_layers // 2, model.config.decoder_layers)
    heads = product(upper_layers, range(model.config.decoder_attention_heads))
    generation.alignment_heads = [list(head) for head in heads]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=words,
            bos_token="<|endoftext|>",
            eos_token="<|endoftext|>",
            unk_token="<|endoftext|>",
        ).save_pretrained(folder)
        (Path(folder) / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR), encoding="utf-8")
        converter = converters.TransformersConverter(
            folder, copy_files=["tokenizer.json", "preprocessor_config.json"]
        )
        converter.convert(str(out), quantization="int8", force=True)
