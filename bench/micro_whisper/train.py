"""Trains on one CPU core: 0.5 s a step, about 2600 steps, then as long again with whole windows.

Cross-entropy of the decoder alone learns nothing for a long time, because attention does not find such a
small encoder; a second loss, CTC over characters on the encoder, makes it learn within minutes. The second
stage (`--init`, `--whole-windows 0.12`) trains on windows padded to 30 s, as stock faster-whisper pads these:
without it the word error rate on such windows was above 100 %."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from bench.micro_whisper.corpus import WORDS
from bench.micro_whisper.export import export
from bench.micro_whisper.extras import LazyModule
from bench.micro_whisper.model import network, tokenizer

torch: Any = LazyModule("torch")
functional: Any = LazyModule("torch.nn.functional")

LETTERS = " 'abcdefghijklmnopqrstuvwxyz"
WHOLE_WINDOW = 3000  # frames of 10 ms


@dataclass(frozen=True, slots=True)
class Example:
    """Features (80 by frames), text, and begin and end of the words in seconds."""

    features: npt.NDArray[np.float16]
    text: str
    span: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of one step. `fed` and `wanted`: input and target tokens of the decoder; `letters`: for CTC,
    with their lengths."""

    features: Any
    fed: Any
    wanted: Any
    letters: Any
    letter_counts: Any
    frame_counts: Any


def load(folder: Path) -> list[Example]:
    """Loads all shards of a folder."""
    examples: list[Example] = []
    for path in sorted(folder.glob("shard*.npz")):
        with np.load(path) as stored:
            features, spans = stored["features"], stored["spans"]
            edges = np.concatenate([[0], np.cumsum(stored["lengths"])])
            texts: list[str] = json.loads(str(stored["texts"]))
        for index, text in enumerate(texts):
            piece = features[:, edges[index] : edges[index + 1]]
            examples.append(Example(piece, text, (float(spans[index][0]), float(spans[index][1]))))
    return examples


class Batches:
    """Random batches of examples of similar length."""

    def __init__(self, examples: Sequence[Example], words: Any, *, size: int, whole_windows: float) -> None:
        self._examples = examples
        self._tokenizer = words
        self._size = size
        self._whole_windows = whole_windows
        self._rng = random.Random(0)
        self._id = words.token_to_id

    def next(self) -> Batch:
        """Returns the next batch."""
        whole = self._rng.random() < self._whole_windows
        size = 6 if whole else self._size
        drawn = sorted(self._rng.choices(self._examples, k=size * 8), key=lambda item: item.features.shape[1])
        place = self._rng.randrange(8)
        chosen = drawn[place * size : (place + 1) * size]
        longest = max(example.features.shape[1] for example in chosen)
        frames = WHOLE_WINDOW if whole else (longest + 31) // 16 * 16
        features = np.zeros((size, 80, frames), np.float32)
        for row, example in enumerate(chosen):
            features[row, :, : example.features.shape[1]] = self._masked(example.features.astype(np.float32))
        tokens = [self._tokens(example) for example in chosen]
        letters = [[LETTERS.index(letter) + 1 for letter in example.text] for example in chosen]
        return Batch(
            features=torch.from_numpy(features),
            fed=_padded([fed for fed, _ in tokens], self._id("<|endoftext|>")),
            wanted=_padded([wanted for _, wanted in tokens], -100),
            letters=torch.tensor([letter for word in letters for letter in word], dtype=torch.long),
            letter_counts=torch.tensor([len(word) for word in letters]),
            frame_counts=torch.tensor([(example.features.shape[1] + 1) // 2 for example in chosen]),
        )

    def _masked(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Applies SpecAugment: blanks two bands, and every second time some frames."""
        mean = float(features.mean())
        for _ in range(2):
            width = self._rng.randint(0, 10)
            low = self._rng.randint(0, 79 - width)
            features[low : low + width] = mean
        if self._rng.random() < 0.5:
            width = self._rng.randint(0, min(8, features.shape[1] // 8))
            first = self._rng.randint(0, features.shape[1] - width - 1)
            features[:, first : first + width] = mean
        return features

    def _tokens(self, example: Example) -> tuple[list[int], list[int]]:
        """Returns input and target tokens of the decoder; two fifths have timestamps."""
        start, plain = self._id("<|startoftranscript|>"), self._id("<|notimestamps|>")
        end, zero = self._id("<|endoftext|>"), self._id("<|notimestamps|>") + 1
        if not example.text:
            return [start, plain], [self._id("<|nospeech|>"), end]
        words = self._tokenizer.encode(f" {example.text}", add_special_tokens=False).ids
        if self._rng.random() < 0.6:
            return [start, plain, *words], [plain, *words, end]
        first, last = (zero + min(1500, round(second / 0.02)) for second in example.span)
        return [start, first, *words, last], [first, *words, last, end]


def train(model: Any, batches: Batches, *, minutes: float, steps: int, rate: float) -> int:
    """Trains for `minutes` of CPU or `steps`; returns the steps done."""
    ctc = torch.nn.Linear(model.config.d_model, len(LETTERS) + 1)
    parameters = [*model.parameters(), *ctc.parameters()]
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    began, step, smooth = time.process_time(), 0, 0.0
    model.train()
    while step < steps and (done := (time.process_time() - began) / (minutes * 60)) < 1:
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / 300) * max(0.02, 1 - done)
        loss = _loss(model, ctc, batches.next(), 1.0 if done < 0.4 else 0.3)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        smooth = loss.item() if step == 1 else 0.97 * smooth + 0.03 * loss.item()
        if step % 100 == 0:
            click.echo(f"step {step}: loss {smooth:.3f}, {100 * done:.0f} %")
    return step


def _loss(model: Any, ctc: Any, batch: Batch, ctc_weight: float) -> Any:
    hidden = _encoded(model.model.encoder, batch.features)
    decoded = model.model.decoder(input_ids=batch.fed, encoder_hidden_states=hidden, use_cache=False)
    logits = model.proj_out(decoded.last_hidden_state)
    words = functional.cross_entropy(
        logits.flatten(0, 1), batch.wanted.flatten(), ignore_index=-100, label_smoothing=0.02
    )
    letters = functional.ctc_loss(
        ctc(hidden).log_softmax(-1).transpose(0, 1),
        batch.letters,
        batch.frame_counts,
        batch.letter_counts,
        zero_infinity=True,
    )
    return words + ctc_weight * letters


def _encoded(encoder: Any, features: Any) -> Any:
    """Runs the encoder on fewer than 3000 frames, which its own `forward` refuses."""
    hidden = functional.gelu(encoder.conv1(features))
    hidden = functional.gelu(encoder.conv2(hidden)).transpose(1, 2)
    hidden = hidden + encoder.embed_positions.weight[: hidden.shape[1]]
    for layer in encoder.layers:
        out = layer(hidden, None, None)
        hidden = out[0] if isinstance(out, tuple) else out
    return encoder.layer_norm(hidden)


def _padded(rows: Sequence[Sequence[int]], filler: int) -> Any:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="folder of the model"
)
@click.option("--init", type=click.Path(path_type=Path, exists=True), help="weights.pt of an earlier run")
@click.option("--minutes", default=22.0, show_default=True, help="of CPU")
@click.option("--steps", default=20000, show_default=True, help="at most")
@click.option("--rate", default=2e-3, show_default=True, help="peak learning rate")
@click.option("--batch", default=48, show_default=True)
@click.option("--whole-windows", default=0.0, show_default=True, help="share of steps on 30 s windows")
def main(*, data: Path, out: Path, init: Path | None, **options: Any) -> None:
    """Trains a model and writes it for CTranslate2 (OUT/model) with its weights (OUT/weights.pt)."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    words = tokenizer(WORDS)
    model = network(words)
    if init is not None:
        model.load_state_dict(torch.load(init))
    examples = load(data)
    click.echo(
        f"{len(examples)} utterances, {sum(weight.numel() for weight in model.parameters())} parameters"
    )
    batches = Batches(examples, words, size=options["batch"], whole_windows=options["whole_windows"])
    train(model, batches, minutes=options["minutes"], steps=options["steps"], rate=options["rate"])
    out.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), out / "weights.pt")
    export(model, words, out / "model")
