"""Several nodes of one database: `mediaserver serve`, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.support.node.node import REAL_ENGINES, ServerProcess, Site, serving, write_site

SETTINGS = """[server]
requests_per_minute = 1000000
secret_key = "what every node of one database shares"
admin_key = "the-servers-own-admin-key"
"""


def write_nodes(directory: Path, database: str, *, company: str = "", count: int = 2) -> list[Site]:
    """Configurations that differ in ports only; `company` is more of acme's table. They have the first one's
    carrier. Each has its data where it is started, as on machines of their own."""
    sites: list[Site] = []
    for number in range(count):
        folder = directory / f"node{number}"
        folder.mkdir()
        site = write_site(folder, engines=REAL_ENGINES, database=database)
        first = sites[0] if sites else site
        settings = f'{SETTINGS}node_url = "http://127.0.0.1:{site.http}"\n'
        text = site.path.read_text().replace("[server]\n", settings, 1)
        text = text.replace(f'data_dir = "{site.data_dir}"', 'data_dir = "data"', 1)
        text = text.replace('name = "Acme"', f'name = "Acme"\n{company}', 1)
        text = text.replace(f"sip:127.0.0.1:{site.carrier};", f"sip:127.0.0.1:{first.carrier};")
        site.path.write_text(text)
        sites.append(replace(site, carrier=first.carrier))
    return sites


@contextmanager
def nodes_of(sites: Sequence[Site]) -> Iterator[list[ServerProcess]]:
    """Their servers, ready."""
    with ExitStack() as stack:
        nodes = []
        for site in sites:
            node = stack.enter_context(serving(site, cwd=site.path.parent))
            node.wait_ready(180.0)
            nodes.append(node)
        yield nodes
