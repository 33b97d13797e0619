"""Speech for tests of signal processing: espeak-ng from its wheel, in a process of its own.

talk("en-us", "One two three.") -> (int16 samples, 22050)
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
from typing import Any

import espeakng_loader
import numpy as np

from pipeline.audio import Pcm

RATE_HZ = 22050
_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
_UTF8 = 1


class _Voice(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_char_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("unused", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


@functools.cache
def talk(voice: str, text: str) -> tuple[Pcm, int]:
    """`text` spoken; `voice` is a language ("ar") or a voice file with a variant ("en-us+f3")."""
    done = subprocess.run(
        [sys.executable, __file__, voice, text], capture_output=True, check=True, timeout=60
    )
    return np.frombuffer(done.stdout, np.int16), RATE_HZ


def _main(voice: str, text: str) -> None:
    library: Any = ctypes.CDLL(espeakng_loader.get_library_path())
    rate_hz = library.espeak_Initialize(
        _SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), _DO_NOT_EXIT
    )
    if rate_hz != RATE_HZ:
        raise SystemExit(f"espeak-ng answers {rate_hz}")

    def heard(samples: Any, count: int, _events: Any) -> int:
        if samples and count:
            sys.stdout.buffer.write(ctypes.string_at(samples, 2 * count))
        return 0

    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(heard)
    library.espeak_SetSynthCallback(callback)
    if library.espeak_SetVoiceByName(voice.encode()) != 0:
        library.espeak_SetVoiceByProperties(ctypes.byref(_Voice(languages=voice.encode())))
    octets = text.encode()
    library.espeak_Synth(octets, len(octets) + 1, 0, 1, 0, _UTF8, None, None)


if __name__ == "__main__":
    _main(*sys.argv[1:])
