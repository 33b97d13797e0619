"""`mediaserver models get` and `list`: weights, fetched before anybody calls."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from mediaserver.models import wheel
from mediaserver.models.files import Fetched, ModelError
from mediaserver.models.places import USUAL, models_in
from pipeline.engines import local_weights

DIRECTORY = "var/models"


def _models() -> Any:
    """`mediaserver.models.hub`, which needs huggingface_hub: it comes with the extras that have models."""
    try:
        return resolve_name("mediaserver.models.hub")
    except ImportError as error:
        raise click.ClickException(
            f"{error.name} is not installed: pip install 'openline-mediaserver[whisper]'"
        ) from None


_into = click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=DIRECTORY,
    show_default=True,
    help="The directory that holds the models.",
)


@click.group()
def models() -> None:
    """Fetches model weights, and lists those on this machine."""


@models.command()
@click.argument("name")
@_into
@click.option("--revision", default="main", show_default=True, help="A branch, tag or commit of the hub's.")
@click.option("--hub", help="Another hub's address; also HF_ENDPOINT. The token is HF_TOKEN.")
def get(name: str, into: Path, revision: str, hub: str | None) -> None:
    """Fetches NAME (see `models list`), checks every file's hash, and prints where the files are."""
    try:
        fetched = _fetched(name, into, revision, hub)
    except ModelError as error:
        raise click.ClickException(str(error)) from None
    for path, digest in fetched.files.items():
        click.echo(f"{digest}  {path}")
    click.echo(f"{fetched.repository} at {fetched.revision}: {fetched.directory.resolve()}")


def _fetched(name: str, into: Path, revision: str, hub: str | None) -> Fetched:
    if name in wheel.WHEELS:
        return wheel.get(name, into)
    fetched: Fetched = _models().get(name, into, revision=revision, hub=hub)
    return fetched


@models.command("list")
@_into
def list_(into: Path) -> None:
    """Lists the models installed by pip, those in the directory, and the names that `get` knows."""
    click.echo(f"by pip ({local_weights.INSTALL}):")
    for found in local_weights.found():
        weights = found.weights
        state = "whole" if found.whole else "broken" if found.directory else "-"
        languages = ", ".join(weights.languages)
        click.echo(
            f"{weights.name:18} {state:20} {_KINDS[weights.kind]}: engine {weights.engine}, {languages}"
        )
        click.echo(f"{'':18} {found.directory or ''}" if found.whole else f"{'':18} {found.problem}")
    for place in dict.fromkeys((into, *USUAL)):
        _list_place(place)
    click.echo(f"to fetch into {into} (mediaserver models get NAME, or owner/repository):")
    here = {model.name for model in models_in([into])}
    for name, (purpose, source) in _known().items():
        click.echo(f"{name:18} {'here' if name in here else '-':20} {purpose} ({source})")


def _list_place(place: Path) -> None:
    """The models of a directory and their state."""
    found = models_in([place])
    if found:
        click.echo(f"in {place}:")
    for model in found:
        state = ", ".join(filter(None, ("broken" if model.problem else "whole", model.revision[:12])))
        languages = ", ".join(model.languages) or "many languages"
        purpose = f"{_PURPOSES[model.engine]}, {languages}" if model.engine else ""
        click.echo(f"{model.name:18} {state:20} {purpose}".rstrip())
        told = model.problem or f"{model.directory} {f'({model.source})' if model.source else ''}"
        click.echo(f"{'':18} {told}".rstrip())


def _known() -> dict[str, tuple[str, str]]:
    """Names that `get` knows: what for, and from where."""
    names = {name: (model.purpose, model.requirement) for name, model in wheel.WHEELS.items()}
    try:
        hub = _models().KNOWN
    except click.ClickException as error:
        click.echo(f"names of the hub: {error.message}")
        return names
    return names | {name: (model.purpose, model.repository) for name, model in hub.items()}


_PURPOSES = {
    "faster-whisper": "speech-to-text: engine faster-whisper",
    "piper": "text-to-speech: engine piper",
}
_KINDS = {"stt": "speech-to-text", "tts": "text-to-speech"}
