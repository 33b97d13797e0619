"""What the system says of processes."""

from __future__ import annotations

import subprocess
import sys

from bench.support.processes import Usage, children, command_of, module_of, tree, usage_of

BUSY = "while True: pass"


def test_a_process_its_child_and_what_both_use() -> None:
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        while not (started := children(process.pid)) or usage_of(started[0]).cpu_ms < 50:
            assert process.poll() is None
        assert list(tree(process.pid)) == [process.pid, *started]
        assert command_of(started[0])[1:3] == ["-c", BUSY]
        alone, whole = usage_of(process.pid, whole_tree=False), usage_of(process.pid)
        process.kill()
        subprocess.run(["kill", str(started[0])], check=True)
    assert 1 << 20 < alone.rss < whole.rss
    assert whole.cpu_ms >= alone.cpu_ms + 50
    assert children(process.pid) == []
    assert command_of(process.pid) == []
    assert usage_of(process.pid) == Usage(0.0, 0)


def test_the_module_that_a_process_runs() -> None:
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while module_of(process.pid) != "http.server":
            assert process.poll() is None
        process.kill()
    assert module_of(process.pid) == ""
