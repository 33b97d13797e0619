"""Runs a PostgreSQL server: a cluster in a scratch folder, reachable only by a socket in that folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from bench.support.processes import children
from mediaserver.db.database import bring_up_to_date
from mediaserver.db.postgres import PostgresTx

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "log_min_messages": "fatal",
    # A plan shows that a statement reads every row only when the planner may choose otherwise.
    "random_page_cost": "1.1",
}
FASTER = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Faster settings, safe unless the machine fails: the operating system has the data even when the server is
killed."""

TEMPLATE = "migrated"


def programs() -> Path:
    """Returns the folder of the server's programs, Debian's or that in PATH. Raises FileNotFoundError."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    named = shutil.which("initdb")
    if found:
        return found[-1].parent
    if named is None:
        raise FileNotFoundError("PostgreSQL is not installed: apt-get install postgresql")
    return Path(named).parent


class Cluster:
    """A PostgreSQL server. `crash` is kill -9 of all its processes, `stop` ends it in order, `start` starts
    it (again). `runs_in`: the folder of a server that another process has started."""

    def __init__(self, *, runs_in: Path | None = None, **changes: str) -> None:
        self.folder = runs_in or Path(tempfile.mkdtemp(prefix="pg-"))
        self._programs = programs()
        self._settings = {**SETTINGS, **changes}
        self._owner: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam("nobody")
            self._owner = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        if runs_in is not None:
            return
        self._fill(str(self.folder / "data"))
        self.start()

    def _fill(self, data: str) -> None:
        self._run("initdb", "-D", data, "-U", "tests", "-A", "trust", "-N", "-E", "UTF8")

    def url(self, database: str) -> str:
        """Returns the URL of a database of this server."""
        return f"postgresql:///{database}?host={self.folder}&user=tests"

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        options = " ".join(f"-c {name}='{value}'" for name, value in self._settings.items())
        data, log = str(self.folder / "data"), str(self.folder / "log")
        options += f" -k {self.folder}"
        self._run("pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "-t", "60", "start")

    def stop(self) -> None:
        """Stops the server in order; connections are closed."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "fast", "-w", "stop")

    def run(self, program: str, *arguments: str) -> None:
        """Runs a program of PostgreSQL."""
        self._run(program, *arguments)

    def crash(self) -> None:
        """Kills every process of the server at once, as a power cut does."""
        postmaster = self._postmaster()
        os.kill(postmaster, signal.SIGSTOP)  # stopped, so that it starts no more children
        started = children(postmaster)
        for pid in (*started, postmaster):
            _kill(pid)
        for pid in (*started, postmaster):
            _gone(pid)
        # Where no parent reaps the killed processes, their ids look alive to the next server.
        for lock in ("data/postmaster.pid", ".s.PGSQL.5432.lock"):
            (self.folder / lock).unlink(missing_ok=True)

    def processes(self) -> list[int]:
        """Returns the postmaster and its children."""
        return [self._postmaster(), *children(self._postmaster())]

    def _postmaster(self) -> int:
        return int((self.folder / "data/postmaster.pid").read_text().split()[0])

    def remove(self) -> None:
        """Stops the server and removes its folder."""
        data = str(self.folder / "data")
        self._run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Runs a statement outside of any transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def new_database(self, *, migrated: bool = True) -> str:
        """Makes a database and returns its URL."""
        name = f"t{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE if migrated else 'template0'}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Removes a database that `new_database` made."""
        name = url.removeprefix("postgresql:///").partition("?")[0]
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def prepare_template(self) -> None:
        """Makes the template that `new_database` copies."""
        self.execute(f"CREATE DATABASE {TEMPLATE}")
        with psycopg.connect(self.url(TEMPLATE), row_factory=dict_row) as connection:
            bring_up_to_date(PostgresTx(connection, b"", None))

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=check,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if check else subprocess.DEVNULL,
            **self._owner,
        )


class Standby(Cluster):
    """A server that replicates `primary`, until it is promoted."""

    def __init__(self, primary: Cluster, **changes: str) -> None:
        self._primary = primary
        super().__init__(**changes)

    def _fill(self, data: str) -> None:
        source = ("-h", str(self._primary.folder), "-U", "tests", "-c", "fast")
        self._run("pg_basebackup", "-D", data, "-R", "-X", "stream", *source)

    def promote(self) -> None:
        """Promotes the standby to a primary."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "promote")


def _kill(pid: int) -> None:
    """Kills a process, which may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _gone(pid: int) -> None:
    """Waits until a killed process has ended (or is a zombie)."""
    status = Path(f"/proc/{pid}/stat")
    for _ in range(500):
        try:
            if status.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.01)
