"""G.722 (ITU-T Recommendation G.722: 7 kHz audio at 64 kbit/s, mode 1), compiled like the other kernels.

Two bands of 8 kHz by a quadrature mirror filter, each coded by ADPCM: six bits of an octet for the lower
one, two for the higher one. The names of blocks and of most signals are those of clause 6 (QUANTL, INVQAL,
SL, DETL ...), where every signal is a word of 16 bits.

One stream in one direction is a row of COLUMNS int32, prepared by `g722_init`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from pipeline.audio.compiled import compiled
from pipeline.audio.frames import Pcm

Octets: TypeAlias = npt.NDArray[np.uint8]
Row: TypeAlias = npt.NDArray[np.int32]

_TYPES: Final[Any] = numba.types
_U8_IN: Final = _TYPES.Array(_TYPES.uint8, 1, "C", readonly=True)
_U8: Final = _TYPES.uint8[::1]
_I16_IN: Final = _TYPES.Array(_TYPES.int16, 1, "C", readonly=True)
_I16: Final = _TYPES.int16[::1]
_I32: Final = _TYPES.int32
_ROW: Final = _TYPES.int32[::1]
_VOID: Final = _TYPES.void

# --- the row ----------------------------------------------------------------------------------------

# A band's columns: the predicted signal, its part by zeros, the quantiser's scale and its logarithm, the two
# poles, the signs of the last two partial reconstructions (PLT: 0 or -1), the last reconstruction (RLT);
# then six zeros and six past differences (DLT).
_S, _SZ, _DET, _NB, _A1, _A2, _P1, _P2, _R1 = range(9)
_B, _D = 9, 15
_BAND: Final = 21
_LOW, _HIGH = 0, _BAND

# The filter's past: twelve pairs of samples, each half written twice, so that any twelve lie in one piece.
_TAPS: Final = 12
_AT: Final = 2 * _BAND
_FIRST: Final = _AT + 1
_SECOND: Final = _FIRST + 2 * _TAPS
COLUMNS: Final = _SECOND + 2 * _TAPS

# --- tables (clause 6.1.1 and 6.2.1) ----------------------------------------------------------------

_EVEN: Final = np.array([3, -11, 12, 32, -210, 951, 3876, -805, 362, -156, 53, -11], np.int32)
_ODD: Final = _EVEN[::-1].copy()
"""The filter's 24 coefficients H(0), H(2) ... and H(1), H(3) ...; they are symmetric."""

_Q6: Final = np.array(
    [
        35, 72, 110, 150, 190, 233, 276, 323, 370, 422, 473, 530, 587, 650, 714,
        786, 858, 940, 1023, 1121, 1219, 1339, 1458, 1612, 1765, 1980, 2195, 2557, 2919,
    ],
    np.int32,
)  # fmt: skip
"""Decision levels of the lower band's quantiser."""

_MIL_NEGATIVE: Final = np.array([63, 62, *range(31, 3, -1)], np.int32)
_MIL_POSITIVE: Final = np.array([*range(61, 31, -1)], np.int32)
"""Codes of the thirty intervals between them."""

_QM6: Final = np.array(
    [
        -136, -136, -136, -136, -24808, -21904, -19008, -16704, -14984, -13512, -12280, -11192, -10232, -9360,
        -8576, -7856, -7192, -6576, -6000, -5456, -4944, -4464, -4008, -3576, -3168, -2776, -2400, -2032,
        -1688, -1360, -1040, -728, 24808, 21904, 19008, 16704, 14984, 13512, 12280, 11192, 10232, 9360, 8576,
        7856, 7192, 6576, 6000, 5456, 4944, 4464, 4008, 3576, 3168, 2776, 2400, 2032, 1688, 1360, 1040, 728,
        432, 136, -432, -136,
    ],
    np.int32,
)  # fmt: skip
_QM4: Final = np.array(
    [
        0, -20456, -12896, -8968, -6288, -4240, -2584, -1200,
        20456, 12896, 8968, 6288, 4240, 2584, 1200, 0,
    ],
    np.int32,
)  # fmt: skip
_QM2: Final = np.array([-7408, -1616, 7408, 1616], np.int32)
_WL: Final = np.array(
    [-60, 3042, 1198, 538, 334, 172, 58, -30, 3042, 1198, 538, 334, 172, 58, -30, -60], np.int32
)
"""By how much a code of four bits moves the lower band's scale."""

_WH: Final = np.array([798, -214, 798, -214], np.int32)
_ILB: Final = np.array(
    [
        2048, 2093, 2139, 2186, 2233, 2282, 2332, 2383, 2435, 2489, 2543, 2599, 2656, 2714, 2774, 2834,
        2896, 2960, 3025, 3091, 3158, 3228, 3298, 3371, 3444, 3520, 3597, 3676, 3756, 3838, 3922, 4008,
    ],
    np.int32,
)  # fmt: skip
"""An octave of scales."""

_LEAST_LOW, _LEAST_HIGH = 32, 8
_MOST_LOW, _MOST_HIGH = 18432, 22528
_HIGH_LEVEL: Final = 564


@compiled(_VOID(_ROW))
def g722_init(row: Row) -> None:
    """Prepares a row of COLUMNS: the reset of the Recommendation."""
    row[:] = 0
    row[_LOW + _DET] = _LEAST_LOW
    row[_HIGH + _DET] = _LEAST_HIGH


# --- both bands -------------------------------------------------------------------------------------


@compiled(_I32(_I32), inner=True)
def _word(value: Any) -> Any:
    """Saturates to 16 bits."""
    return min(max(value, np.int32(-32768)), np.int32(32767))


@compiled(_I32(_I32, _I32), inner=True)
def _times(a: Any, b: Any) -> Any:
    """A product of words, as a word (MULT)."""
    return np.int32(a * b) >> np.int32(15)


@compiled(_VOID(_ROW, _I32), inner=True)
def _adapt(band: Row, d: Any) -> None:
    """Predicts a band's next sample from the quantised difference `d` (blocks PARREC, RECONS, UPPOL2, UPPOL1,
    UPZERO, FILTEP, FILTEZ, PREDIC)."""
    r: Any = _word(band[_S] + d)
    sign: Any = np.int32(_word(band[_SZ] + d)) >> np.int32(31)
    a1: Any = band[_A1]
    a2: Any = band[_A2]
    like1, like2 = sign == band[_P1], sign == band[_P2]
    four: Any = _word(a1 << 2)
    w: Any = _word(-four if like1 else four) >> np.int32(7)
    a2 = w + (128 if like2 else -128) + _times(a2, 32512)
    a2 = min(max(a2, -12288), 12288)
    most = 15360 - a2
    a1 = min(max(_times(a1, 32640) + (192 if like1 else -192), -most), most)
    band[_A1], band[_A2] = a1, a2
    band[_P2], band[_P1] = band[_P1], sign
    step = np.int32(128) if d != 0 else np.int32(0)
    sz: Any = np.int32(0)
    newer: Any = d
    for k in range(6):
        older: Any = band[_D + k]
        away = np.int32(older ^ d) >> np.int32(31)  # 0, or -1 where the signs differ
        b: Any = _times(band[_B + k], 32640) + ((step ^ away) - away)
        sz = np.int32(sz + _times(b, _word(newer << 1)))
        band[_B + k] = b
        band[_D + k] = newer
        newer = older
    sz = _word(sz)
    sp: Any = _times(a1, _word(r << 1)) + _times(a2, _word(band[_R1] << 1))
    band[_R1] = r
    band[_SZ] = sz
    band[_S] = _word(_word(sp) + sz)


@compiled(_I32(_I32, _I32), inner=True)
def _scale(nb: Any, octaves: Any) -> Any:
    """The scale of a logarithm (SCALEL: 8 octaves, SCALEH: 10)."""
    by = octaves - (nb >> 11)
    scale: Any = _ILB[(nb >> 6) & 31]
    return (scale << -by if by < 0 else scale >> by) << 2


@compiled(_VOID(_ROW, _I32, _I32), inner=True)
def _low_adapts(band: Row, code: Any, det: Any) -> None:
    """Takes the four bits of the lower band that steer it (INVQAL, LOGSCL, SCALEL)."""
    nb: Any = _times(band[_NB], 32512) + _WL[code]
    band[_NB] = nb = min(max(nb, 0), _MOST_LOW)
    band[_DET] = _scale(nb, 8)
    _adapt(band, _times(det, _QM4[code]))


@compiled(_VOID(_ROW, _I32, _I32), inner=True)
def _high_adapts(band: Row, code: Any, d: Any) -> None:
    """Takes the two bits of the higher band (LOGSCH, SCALEH)."""
    nb: Any = _times(band[_NB], 32512) + _WH[code]
    band[_NB] = nb = min(max(nb, 0), _MOST_HIGH)
    band[_DET] = _scale(nb, 10)
    _adapt(band, d)


# --- codec ------------------------------------------------------------------------------------------


@compiled(_VOID(_U8, _I16, _ROW), _VOID(_U8_IN, _I16, _ROW))
def g722_decode(src: Octets, dst: Pcm, row: Row) -> None:
    """Octets to 16 kHz, two samples for each octet, as many as both hold."""
    low, high = row[_LOW : _LOW + _BAND], row[_HIGH : _HIGH + _BAND]
    at: Any = row[_AT]
    for i in range(min(src.shape[0], dst.shape[0] // 2)):
        code = np.int32(src[i])
        det: Any = low[_DET]
        il, ih = code & 63, code >> 6
        rl: Any = low[_S] + _times(det, _QM6[il])
        rl = min(max(rl, -16384), 16383)
        _low_adapts(low, il >> 2, det)
        d: Any = _times(high[_DET], _QM2[ih])
        rh: Any = high[_S] + d
        rh = min(max(rh, -16384), 16383)
        _high_adapts(high, ih, d)
        # The receive filter.
        at = at - 1 if at > 0 else _TAPS - 1
        row[_FIRST + at] = row[_FIRST + _TAPS + at] = rl - rh
        row[_SECOND + at] = row[_SECOND + _TAPS + at] = rl + rh
        first: Any = np.int32(0)
        second: Any = np.int32(0)
        one, two = row[_FIRST + at : _FIRST + at + _TAPS], row[_SECOND + at : _SECOND + at + _TAPS]
        for k in range(_TAPS):
            first = np.int32(first + one[k] * _EVEN[k])
            second = np.int32(second + two[k] * _ODD[k])
        dst[2 * i] = _word(first >> 11)
        dst[2 * i + 1] = _word(second >> 11)
    row[_AT] = at


@compiled(_I32(_I32, _I32), inner=True)
def _low_quantised(e: Any, det: Any) -> Any:
    """The code of a difference in the lower band (QUANTL)."""
    size = e ^ (e >> 31)
    interval: Any = 0
    for k in range(29):
        interval += np.int32(size >= np.int32(_Q6[k] * det) >> np.int32(12))
    return _MIL_NEGATIVE[interval] if e < 0 else _MIL_POSITIVE[interval]


@compiled(_VOID(_I16, _U8, _ROW), _VOID(_I16_IN, _U8, _ROW))
def g722_encode(src: Pcm, dst: Octets, row: Row) -> None:
    """16 kHz to octets, one for each two samples, as many as both hold."""
    low, high = row[_LOW : _LOW + _BAND], row[_HIGH : _HIGH + _BAND]
    at: Any = row[_AT]
    for i in range(min(src.shape[0] // 2, dst.shape[0])):
        # The transmit filter.
        at = at - 1 if at > 0 else _TAPS - 1
        row[_FIRST + at] = row[_FIRST + _TAPS + at] = src[2 * i + 1]
        row[_SECOND + at] = row[_SECOND + _TAPS + at] = src[2 * i]
        xa: Any = np.int32(0)
        xb: Any = np.int32(0)
        one, two = row[_FIRST + at : _FIRST + at + _TAPS], row[_SECOND + at : _SECOND + at + _TAPS]
        for k in range(_TAPS):
            xa = np.int32(xa + one[k] * _EVEN[k])
            xb = np.int32(xb + two[k] * _ODD[k])
        xl: Any = min(max((xa + xb) >> 14, -16384), 16383)
        xh: Any = min(max((xa - xb) >> 14, -16384), 16383)
        det: Any = low[_DET]
        il = _low_quantised(_word(xl - low[_S]), det)
        _low_adapts(low, il >> 2, det)
        e: Any = _word(xh - high[_S])
        far = (e ^ (e >> 31)) >= (_HIGH_LEVEL * high[_DET]) >> 12
        ih = (0 if e < 0 else 2) + (0 if far else 1)
        _high_adapts(high, ih, _times(high[_DET], _QM2[ih]))
        dst[i] = np.uint8((ih << 6) | il)
    row[_AT] = at


def g722_warm() -> None:
    """Runs both once on a frame of 20 ms, for the page faults."""
    row, pcm, octets = np.zeros(COLUMNS, np.int32), np.zeros(320, np.int16), np.zeros(160, np.uint8)
    g722_init(row)
    g722_encode(pcm, octets, row)
    g722_decode(octets, pcm, row)
