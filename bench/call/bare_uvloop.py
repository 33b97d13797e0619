"""The bare asyncio voice agent (`bench.call.bare`) on uvloop, the second floor: `python -m
bench.call.bare_uvloop PORT`."""

from __future__ import annotations

import sys

import uvloop

from bench.call.bare import serve

if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
