"""`mediaserver models get` and `list`: weights, fetched before anybody calls."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

DIRECTORY = "var/models"


def _models() -> Any:
    """`mediaserver.models`, which needs huggingface_hub: it comes with the extras that have models."""
    try:
        return resolve_name("mediaserver.models")
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
    """Model weights."""


@models.command()
@click.argument("name")
@_into
@click.option("--revision", default="main", show_default=True, help="A branch, tag or commit of the hub's.")
@click.option("--hub", help="Another hub's address; also HF_ENDPOINT. The token is HF_TOKEN.")
def get(name: str, into: Path, revision: str, hub: str | None) -> None:
    """Fetches NAME (see `models list`), checks every file's hash, and says where it lies."""
    found = _models()
    try:
        fetched = found.get(name, into, revision=revision, hub=hub)
    except found.ModelError as error:
        raise click.ClickException(str(error)) from None
    for path, digest in fetched.files.items():
        click.echo(f"{digest}  {path}")
    click.echo(f"{fetched.repository} at {fetched.revision}: {fetched.directory.resolve()}")


@models.command("list")
@_into
def list_(into: Path) -> None:
    """The names that `get` knows, and what is there."""
    found = _models()
    here = dict(found.installed(into))
    for name, model in found.KNOWN.items():
        state = f"here, {here[name]['revision'][:12]}" if name in here else "-"
        click.echo(f"{name:18} {state:20} {model.purpose} ({model.repository})")
    for name, manifest in here.items():
        if name not in found.KNOWN:
            click.echo(f"{name:18} here, {manifest['revision'][:12]:14} ({manifest['repository']})")
