"""G.711 against the recommendation's own arithmetic, value by value; mixing; what the kernels accept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio import g722, kernels, opus

EVERY_CODE = np.arange(256, dtype=np.uint8)
EVERY_SAMPLE = np.arange(-32768, 32768, dtype=np.int32).astype(np.int16)


def ulaw_compress(sample: int) -> int:
    """ulaw_compress of the ITU-T G.191 software tool library, line by line."""
    absolute = ((~sample >> 2) if sample < 0 else (sample >> 2)) + 33
    absolute = min(absolute, 0x1FFF)
    segment, rest = 1, absolute >> 6
    while rest:
        segment += 1
        rest >>= 1
    code = ((0x08 - segment) << 4) | (0x0F - ((absolute >> segment) & 0x0F))
    return code | 0x80 if sample >= 0 else code


def ulaw_expand(code: int) -> int:
    """ulaw_expand of the same library."""
    sign = -1 if code < 0x80 else 1
    mantissa = ~code & 0xFF
    exponent, segment = (mantissa >> 4) & 7, ((mantissa >> 4) & 7) + 1
    step = 4 << segment
    return sign * ((0x80 << exponent) + step * (mantissa & 0x0F) + step // 2 - 4 * 33)


def alaw_compress(sample: int) -> int:
    """alaw_compress of the same library."""
    level = (~sample >> 4) if sample < 0 else (sample >> 4)
    if level > 15:
        exponent = 1
        while level > 16 + 15:
            level >>= 1
            exponent += 1
        level = level - 16 + (exponent << 4)
    if sample >= 0:
        level |= 0x80
    return level ^ 0x55


def alaw_expand(code: int) -> int:
    """alaw_expand of the same library."""
    level = code ^ 0x55
    positive, level = bool(level & 0x80), level & 0x7F
    exponent, mantissa = level >> 4, level & 0x0F
    if exponent > 0:
        mantissa += 16
    mantissa = (mantissa << 4) + 8
    if exponent > 1:
        mantissa <<= exponent - 1
    return mantissa if positive else -mantissa


def test_ulaw_decodes_every_code_as_the_recommendation_says() -> None:
    out = np.zeros(256, np.int16)
    kernels.ulaw_decode(EVERY_CODE, out)
    assert out.tolist() == [ulaw_expand(code) for code in range(256)]
    assert (out[0x00], out[0x80], out[0xFF], out[0x7F]) == (-32124, 32124, 0, 0)


def test_alaw_decodes_every_code_as_the_recommendation_says() -> None:
    out = np.zeros(256, np.int16)
    kernels.alaw_decode(EVERY_CODE, out)
    assert out.tolist() == [alaw_expand(code) for code in range(256)]
    assert (out[0x2A], out[0xAA], out[0xD5], out[0x55]) == (-32256, 32256, 8, -8)


def test_ulaw_encodes_every_sample_as_the_recommendation_says() -> None:
    out = np.zeros(65536, np.uint8)
    kernels.ulaw_encode(EVERY_SAMPLE, out)
    assert out.tolist() == [ulaw_compress(sample) for sample in range(-32768, 32768)]
    assert out[32768] == 0xFF


def test_alaw_encodes_every_sample_as_the_recommendation_says() -> None:
    out = np.zeros(65536, np.uint8)
    kernels.alaw_encode(EVERY_SAMPLE, out)
    assert out.tolist() == [alaw_compress(sample) for sample in range(-32768, 32768)]
    assert out[32768] == 0xD5


@pytest.mark.parametrize("law", ["ulaw", "alaw"])
def test_a_code_survives_being_decoded_and_encoded(law: str) -> None:
    linear, again = np.zeros(256, np.int16), np.zeros(256, np.uint8)
    getattr(kernels, f"{law}_decode")(EVERY_CODE, linear)
    getattr(kernels, f"{law}_encode")(linear, again)
    different = {
        int(code): int(other) for code, other in zip(EVERY_CODE, again, strict=True) if code != other
    }
    assert different == ({0x7F: 0xFF} if law == "ulaw" else {})  # µ-law has a negative zero


def test_a_payload_can_be_decoded_where_it_lies() -> None:
    out = np.ones(4, np.int16)
    kernels.ulaw_decode(np.frombuffer(b"\xff\xff", np.uint8), out)
    assert out.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("law", ["ulaw", "alaw"])
def test_a_payload_longer_than_the_room_for_it_is_cut(law: str) -> None:
    room = np.full(8, 77, np.int16)
    getattr(kernels, f"{law}_decode")(np.zeros(1000, np.uint8), room[:4])
    assert room[4:].tolist() == [77] * 4
    octets = np.full(8, 77, np.uint8)
    getattr(kernels, f"{law}_encode")(np.zeros(1000, np.int16), octets[:4])
    assert octets[4:].tolist() == [77] * 4


@pytest.mark.parametrize(
    "wrong",
    [np.zeros(4, np.float32), np.zeros(4, np.int32), np.zeros(8, np.int16)[::2], np.zeros((2, 2), np.int16)],
)
def test_an_array_of_another_kind_is_refused(wrong: np.ndarray[tuple[int, ...], np.dtype[np.int16]]) -> None:
    with pytest.raises(TypeError):
        kernels.ulaw_encode(wrong, np.zeros(4, np.uint8))


def test_mixing_adds_and_saturates() -> None:
    a = np.array([1, -1, 30000, -30000, 32767, -32768], np.int16)
    b = np.array([2, -2, 30000, -30000, 1, -1], np.int16)
    kernels.mix(a, b, a)
    assert a.tolist() == [3, -3, 32767, -32768, 32767, -32768]


def test_the_peak_counts_either_sign() -> None:
    assert kernels.peak(np.array([5, -61, 60], np.int16)) == 61
    assert kernels.peak(np.array([32767, -32768], np.int16)) == 32768


def test_no_samples_are_silence() -> None:
    empty = np.zeros(0, np.int16)
    assert kernels.rms(empty) == 0.0
    assert kernels.rms_dbfs(empty) == -100.0
    assert kernels.peak(empty) == 0
    state = np.zeros(kernels.VAD_COLUMNS, np.float32)
    bands = np.zeros((kernels.VAD_ROWS, kernels.VAD_BANDS), np.float32)
    kernels.energy_vad_init(state, bands, 8000, (7.0, 4.5, -62.0), (2, 8))
    assert kernels.energy_vad_step(empty, state, bands) == 0


def test_warming_leaves_nothing_to_compile() -> None:
    compiled = [
        each
        for module in (kernels, g722, opus)
        for each in vars(module).values()
        if hasattr(each, "signatures")
    ]
    before = [kernel.signatures for kernel in compiled]
    kernels.warm()
    assert len(before) >= 10
    assert [kernel.signatures for kernel in compiled] == before


@pytest.mark.nightly("ci")
def test_kernels_work_where_no_cache_can_be_written(tmp_path: Path) -> None:
    """A read-only installation and a home that does not exist: slower to import, nothing worse."""
    audio = Path(kernels.__file__).parent
    copy = tmp_path / "pipeline" / "audio"
    copy.mkdir(parents=True)
    (copy.parent / "__init__.py").touch()
    for name in ("__init__", "compiled", "frames", "g722", "kernels", "opus"):
        (copy / f"{name}.py").write_bytes((audio / f"{name}.py").read_bytes())
    for name in ("errors", "kernel_cache"):
        (copy.parent / f"{name}.py").write_bytes((audio.parent / f"{name}.py").read_bytes())
    (tmp_path / "cache").write_text("a file where the cache would be")
    script = "from pipeline.audio import kernels\nkernels.warm()\nprint(kernels.__file__)\n"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(copy / "kernels.py")
