"""What the tests of every folder share: compiled kernels, databases, a clock."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from bench.support.cluster import FASTER, Cluster
from bench.support.virtual_clock import VirtualLoop
from mediaserver.store.store import Store
from tests.support.compile_sources import compile_sources
from tests.support.node.postgres import remove_shared, share_among_processes
from tests.support.node.store import ENGINES, Clock, on_engine, opened
from tests.support.paths import ROOT

SLOW_FILE = re.compile(r"^pytestmark = .*pytest\.mark\.slow", re.MULTILINE)

WAITING_FOLDERS = frozenset({"system", "peers", "mediaserver"})
"""Their tests wait for calls, for seconds."""

EVERYTHING = "everything"
"""Of `--nightly`: all tests, by day and by night."""

SOCKETS_S = 0.001
"""A datagram to ourselves is there at once, unless the kernel has put it off."""

# What an example takes depends on what else the machine does.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

# One cache of compiled kernels for the tests and for the servers that they start, each of which would compile
# them into its own data directory. numba reads this when it is first imported.
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".pytest_cache" / "kernels"))

# The processes of a run share the cores: OpenBLAS's threads would spin while they wait for one another. Numpy
# reads this when it is first imported, in the processes of a parallel run and in the programs they start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

MEMORY = Path("/dev/shm")
"""Files here are in memory."""

ROOM_BYTES = 2 << 30
"""More than the files of a run, which are 0.3 GB at once."""


def _kept_in_memory() -> bool:
    """Whether there is room for the tests' folders in memory, from which programs can be started too."""
    try:
        found = os.statvfs(MEMORY)
    except OSError:
        return False
    room = found.f_bavail * found.f_frsize >= ROOM_BYTES and not found.f_flag & os.ST_NOEXEC
    return room and os.access(MEMORY, os.W_OK)


# Databases wait for the disk at each commit, the runs of several processes for one another: on a disk half of
# the time that tests of the queue take. pytest reads this when the first test asks for a folder.
if _kept_in_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

KERNELS_LOCK = ROOT / ".pytest_cache" / "kernels.lock"
"""Held while the kernels are compiled for a parallel run."""

WITHOUT_KERNELS = (
    "numba",
    "scipy.sparse",
    "matplotlib.pyplot",
    "aiohttp.web",
    "aiortc",
    "psycopg",
    "sqlite_utils",
)
"""Libraries that the tests import, 1.5 s of CPU in each process."""

# So that one process compiles a source and the many that the tests start do not, whatever the shell has set.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make nightly` names its part with this."""
    parser.addoption("--nightly", metavar="PART", help="run the tests marked nightly(PART), and no others")


def pytest_configure(config: pytest.Config) -> None:
    """A test file that the command line names runs whole. pytest-xdist hands the option to its processes."""
    if config.option.nightly is None and any(".py" in argument for argument in config.args):
        config.option.nightly = EVERYTHING


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What is imported stays: without the garbage collector the imports of each process take 4 s of CPU less
    of 10, and what it never looks at again makes it faster afterwards."""
    gc.disable()
    if hasattr(session.config, "workerinput"):
        _wait_for_kernels()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what the night is for, or what is not in the part of it that is asked for. Sorts the rest so
    that a parallel run ends with short files: first those that one process has to itself, then other files
    with long tests, then the folders whose tests wait for calls."""
    part = config.option.nightly
    if part != EVERYTHING:
        wanted = [item for item in items if (part in parts_of(item) if part else not parts_of(item))]
        kept = set(wanted)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = wanted
    long = {item.path for item in items if any(item.iter_markers("slow")) or any(item.iter_markers("peer"))}
    apart = {path for path in {item.path for item in items} if SLOW_FILE.search(path.read_text())}
    items.sort(
        key=lambda item: (
            item.path not in apart,
            item.path not in long,
            WAITING_FOLDERS.isdisjoint(item.path.relative_to(ROOT).parts),
        )
    )


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The clock of the tests that are marked `virtual_clock` does not wait: a busy machine cannot be late.
    With `and_real=True` they run a second time, on the clock of the wall; with `only_real=True` on it alone,
    where the others of their file do not."""
    marker = item.get_closest_marker("virtual_clock")
    if marker is not None and not marker.kwargs.get("only_real"):
        loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
            "virtual": partial(VirtualLoop, sockets_s=SOCKETS_S)
        }
        if marker.kwargs.get("and_real"):
            loops["real"] = asyncio.new_event_loop
        return loops
    return {"real": asyncio.new_event_loop}


def parts_of(item: pytest.Item) -> set[str]:
    """The parts of `make nightly` that a test is in."""
    return {part for marker in item.iter_markers("nightly") for part in marker.args}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Compiles the kernels once, on one core; meanwhile the sources, before the processes of a parallel run
    start. The compiler holds the lock that these wait for."""
    KERNELS_LOCK.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "mediaserver.compile_kernels"]
    with KERNELS_LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        compiling = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, pass_fds=(lock.fileno(),))
    config.add_cleanup(partial(_reap, compiling))
    share_among_processes(ROOT / ".pytest_cache" / f"postgres-{os.getpid()}")
    config.add_cleanup(remove_shared)
    compile_sources(config)


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.wait()


def _wait_for_kernels() -> None:
    """Imports what needs no kernels, and waits until they are compiled. Where that failed, each process
    compiles them, and says why it cannot."""
    for module in WITHOUT_KERNELS:
        import_module(module)
    with KERNELS_LOCK.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """By day, one process runs the slow files one after the other."""
    return SlowFilesApart(config, log) if config.option.nightly is None else None


class SlowFilesApart(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives the files that are marked `slow` as a whole, browsers mostly, to one process: several at once
    leave no time for the calls of the others."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "slow" if SLOW_FILE.search((ROOT / file).read_text()) else file


@pytest.fixture(params=ENGINES)
def clock(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Clock]:
    """The clock of a store in `tmp_path`, on every engine in turn."""
    with on_engine(request.param, tmp_path):
        yield Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    """A store in `tmp_path`, of a company with an agent and a trunk."""
    async with opened(tmp_path, clock) as store:
        yield store


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server that the test may stop, crash and restart, with the database `calls`."""
    own = Cluster(**FASTER)
    try:
        own.execute("CREATE DATABASE calls")
        yield own
    finally:
        own.remove()
