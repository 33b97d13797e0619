"""Everything that is compiled, with `g722` and `opus`: the loops over samples, in numba, with explicit
signatures.

With explicit signatures numba compiles (or loads from its cache) when this module is imported, never on the
first frame of a call: lazily compiled kernels blocked the event loop for 260 to 700 ms. The import takes
about 0.7 s with a warm cache and some seconds without; `warm()` then runs each kernel once, for the page
faults.

The cache lies where `pipeline.kernel_cache` says: in the user's cache unless the environment variable
NUMBA_CACHE_DIR names another place, which has to be set before anything of this package is imported. Where
nothing can be written the kernels are compiled without a cache.

All arrays are contiguous. Inputs may be read-only (`np.frombuffer` of a packet). A kernel allocates nothing,
raises nothing and checks no index: the code that calls it must keep to the sizes in its docstring. A kernel
keeps the GIL: it takes 1 to 3 µs, and a thread that releases the GIL may wait 5 ms (the switch interval) to
get it back.
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from pipeline.audio import FRAME_MS, LINE_RATES_HZ, Pcm, frame_samples, g722, opus
from pipeline.audio.compiled import compiled

Octets: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]

_TYPES: Final[Any] = numba.types  # its own stubs cover a part of it only
_U8_IN: Final = _TYPES.Array(_TYPES.uint8, 1, "C", readonly=True)
_U8: Final = _TYPES.uint8[::1]
_I16_IN: Final = _TYPES.Array(_TYPES.int16, 1, "C", readonly=True)
_I16: Final = _TYPES.int16[::1]
_F32: Final = _TYPES.float32[::1]
_F32_2D: Final = _TYPES.float32[:, ::1]
_I64: Final = _TYPES.int64
_I16_: Final = _TYPES.int16
_F32_: Final = _TYPES.float32
_F64: Final = _TYPES.float64
_VOID: Final = _TYPES.void
_STEP: Final[Any] = _TYPES.UniTuple(_I64, 2)

# --- digital silence --------------------------------------------------------------------------------

# The state of a recursive filter decays in digital silence (µ-law 0xFF, a pause of DTX) and is subnormal
# (below 1.2e-38) within a second; many processors then take a hundred times as long for a product, in every
# frame until the next voice. An offset far below a sample step keeps such a state from becoming subnormal.
_OFFSET: Final = np.float32(1e-9)
_OFFSET_POWER: Final = np.float32(1e-18)

# --- G.711 (ITU-T G.711; the bit manipulation of the ITU-T G.191 software tool library) -----------


def _ulaw_expanded() -> Pcm:
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = ((((code & 0x0F) << 1) + 33) << ((code >> 4) & 7)) - 33
    return (np.where(code & 0x80, -magnitude, magnitude) << 2).astype(np.int16)


def _alaw_expanded() -> Pcm:
    code = np.arange(256, dtype=np.int32) ^ 0x55
    exponent, mantissa = (code >> 4) & 7, code & 0x0F
    first, others = (mantissa << 4) + 8, ((mantissa << 4) + 0x108) << np.maximum(exponent - 1, 0)
    magnitude = np.where(exponent == 0, first, others)
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


_ULAW_LINEAR: Final = _ulaw_expanded()
_ALAW_LINEAR: Final = _alaw_expanded()


@compiled(_VOID(_U8, _I16), _VOID(_U8_IN, _I16))
def ulaw_decode(src: Octets, dst: Pcm) -> None:
    """Decodes µ-law octets to int16, up to the shorter of both arrays."""
    for i in range(min(src.shape[0], dst.shape[0])):
        dst[i] = _ULAW_LINEAR[src[i]]


@compiled(_VOID(_U8, _I16), _VOID(_U8_IN, _I16))
def alaw_decode(src: Octets, dst: Pcm) -> None:
    """Decodes A-law octets to int16, up to the shorter of both arrays."""
    for i in range(min(src.shape[0], dst.shape[0])):
        dst[i] = _ALAW_LINEAR[src[i]]


@compiled(_VOID(_I16, _U8), _VOID(_I16_IN, _U8))
def ulaw_encode(src: Pcm, dst: Octets) -> None:
    """Encodes int16 to µ-law octets (silence is 0xFF), up to the shorter of both arrays."""
    for i in range(min(src.shape[0], dst.shape[0])):
        x: Any = np.int32(src[i])  # Any: numba's arithmetic is not what numpy's stubs say
        sign = x >> 31  # -1 for the negative half: one's complement, as ITU-T G.191 has it
        magnitude = min(((x ^ sign) >> 2) + 33, 0x1FFF)
        # The segment by comparisons instead of a loop, which lets the compiler work on many samples at once.
        segment = np.int32(magnitude > 0x3F) + np.int32(magnitude > 0x7F) + np.int32(magnitude > 0xFF)
        segment += np.int32(magnitude > 0x1FF) + np.int32(magnitude > 0x3FF) + np.int32(magnitude > 0x7FF)
        segment += np.int32(magnitude > 0xFFF)
        code = (segment << 4) | ((magnitude >> (segment + 1)) & 0x0F)
        dst[i] = np.uint8(~(code | (sign & 0x80)) & 0xFF)


@compiled(_VOID(_I16, _U8), _VOID(_I16_IN, _U8))
def alaw_encode(src: Pcm, dst: Octets) -> None:
    """Encodes int16 to A-law octets (silence is 0xD5), up to the shorter of both arrays."""
    for i in range(min(src.shape[0], dst.shape[0])):
        x: Any = np.int32(src[i])
        sign = x >> 31
        magnitude = (x ^ sign) >> 4
        segment = np.int32(magnitude > 0x0F) + np.int32(magnitude > 0x1F) + np.int32(magnitude > 0x3F)
        segment += np.int32(magnitude > 0x7F) + np.int32(magnitude > 0xFF) + np.int32(magnitude > 0x1FF)
        segment += np.int32(magnitude > 0x3FF)
        code = (segment << 4) | ((magnitude >> max(segment - 1, 0)) & 0x0F)
        dst[i] = np.uint8((code | (~sign & 0x80)) ^ 0x55)


# --- levels and mixing ----------------------------------------------------------------------------


@compiled(_F64(_I16), _F64(_I16_IN))
def rms(samples: Pcm) -> float:
    """Root mean square in sample steps; 0.0 for no samples."""
    if samples.shape[0] == 0:
        return 0.0
    total = np.int64(0)
    for i in range(samples.shape[0]):
        x = np.int64(samples[i])
        total += x * x
    return math.sqrt(total / samples.shape[0])


@compiled(_F64(_I16), _F64(_I16_IN))
def rms_dbfs(samples: Pcm) -> float:
    """Level in dBov (see `pipeline.audio.levels`), -100.0 for silence."""
    value = rms(samples)
    return 20.0 * math.log10(value / 32768.0) if value > 0.0 else -100.0


@compiled(_I64(_I16), _I64(_I16_IN))
def peak(samples: Pcm) -> int:
    """The greatest magnitude in sample steps; 0 for no samples."""
    greatest: Any = 0
    for i in range(samples.shape[0]):
        greatest = max(greatest, abs(np.int64(samples[i])))
    return int(greatest)


@compiled(_VOID(_I16, _I16, _I16), _VOID(_I16_IN, _I16_IN, _I16))
def mix(a: Pcm, b: Pcm, out: Pcm) -> None:
    """Adds two frames of the same length, saturating; `out` may be one of them."""
    for i in range(min(a.shape[0], b.shape[0], out.shape[0])):
        total: Any = np.int32(a[i]) + np.int32(b[i])
        out[i] = min(max(total, -32768), 32767)


# --- resampling -----------------------------------------------------------------------------------


@compiled(
    _VOID(_I16, _F32, _F32_2D, _I16, _STEP),
    _VOID(_I16_IN, _F32, _F32_2D, _I16, _STEP),
    fastmath=True,
)
def polyphase(samples: Pcm, buffer: Floats, phases: Floats, out: Pcm, step: tuple[int, int]) -> None:
    """Filters one chunk with a polyphase filter, with saturation, rounded to the nearest sample.

    `buffer`: the last `taps - 1` samples at its start, then room for `samples`; the new history is left at
    its start. `phases`: (up, taps). `step`: the position of the first output in 1/up samples, and the
    distance to the next. An output costs `taps` products whatever the chunk, so results are bit-equal however
    a stream is cut.
    """
    up, taps = phases.shape
    size = samples.shape[0]
    for i in range(size):
        buffer[taps - 1 + i] = samples[i]
    position, down = step
    first = position // up
    phase = position - first * up
    for k in range(out.shape[0]):
        row, heard = (
            phases[phase],
            buffer[first : first + taps],
        )  # as slices the loop is vectorised: five times faster
        total: Any = np.float32(0.0)
        for t in range(taps):
            total += row[t] * heard[t]
        rounded: Any = np.int32(total + np.float32(32768.5)) - 32768  # truncation of what is positive: floor
        out[k] = min(max(rounded, -32768), 32767)
        phase += down
        while phase >= up:
            phase -= up
            first += 1
    for i in range(taps - 1):
        buffer[i] = buffer[size + i]


# --- voice activity -------------------------------------------------------------------------------

# One call's detector is a row of float32: the first columns are settings, the others the detector's state.
VAD_COLUMNS: Final = 24
VAD_ACTIVE: Final = 8
VAD_SNR_DB: Final = 9
_HIGH_PASS, _LOW_PASS, _ON_DB, _OFF_DB, _QUIETEST_DB, _MIN_ON, _HANG = range(7)
_SMOOTHED, _ACTIVE, _SNR, _RUN, _LEFT, _HEARD = range(7, 13)
_X1, _Y1, _LOW1, _NOISE_LOW, _NOISE_HIGH = range(13, 18)
_MIN_LOW, _MIN_HIGH, _WAS_LOW, _WAS_HIGH, _WINDOW, _THIN = range(18, 24)
_WINDOW_FRAMES: Final = 38  # the minimum is taken over the last one to two windows of 0.76 s
_SETTLING_FRAMES: Final = 50  # the floor rises faster in these first frames, for a call that begins in noise
_FADE_FRAMES: Final = 4  # Opus fades in: the floor starts with the first frame at full level
_FADE_LEAST_DB, _FADE_MOST_DB = 2.5, 10.0  # a noise's frames differ by less, a voice begins with more
_MINIMUM_BIAS_DB: Final = 1.5  # distance of the minimum of a noise's frames below their mean
_START_AT_MOST_DB: Final = -45.0  # so that a voice in the very first frame does not become the noise floor

# Eight narrower bands, a column each, for a voice that is no louder than the noise: the voice's harmonics
# exceed the noise in some bands. The power is smoothed over two frames, so that 3 dB are significant.
VAD_ROWS: Final = 12
_BAND_EDGES_HZ: Final = (120, 280, 450, 650, 900, 1250, 1800, 2600, 3800)
VAD_BANDS: Final = len(_BAND_EDGES_HZ) - 1
_BAND_B0, _BAND_A1, _BAND_A2, _BAND_Z1, _BAND_Z2, _BAND_ENERGY = range(6)
_BAND_POWER, _BAND_CLIPPED, _BAND_NOISE, _BAND_MIN, _BAND_WAS, _BAND_OVER = range(6, 12)
_BAND_RATE_HZ: Final = 8000  # higher rates are decimated to this rate, by sums of samples
_BAND_BIAS_DB: Final = 1.4
_BAND_ON_DB, _BAND_OFF_DB = 3.3, 2.3  # mean of the three highest bands: speech begins, speech goes on
_BAND_LOUDEST: Final = 3
_BAND_RING_DB: Final = -3.0  # a frame below its noise is silent, although the narrow filters still ring
_BAND_CLIP: Final = np.float32(10**0.9)  # limit over the noise, so that a loud frame does not smear
_BAND_UNKNOWN_FRAMES: Final = 6  # frames at the start before a band's noise is known
_BAND_QUIETER_DB: Final = 4.0  # distance of a band's least floor below that of the whole signal


def energy_vad_init(
    state: Floats,
    bands: npt.NDArray[np.float32],
    rate_hz: int,
    decibels: tuple[float, float, float],
    frames: tuple[int, int],
) -> None:
    """Initialises `state`, a row of VAD_COLUMNS, and `bands`, of shape (VAD_ROWS, VAD_BANDS) or (0,
    VAD_BANDS). `decibels`: on, off and least floor; `frames`: min-on and hang."""
    state[:] = 0.0
    bands[:] = 0.0
    for k in range(VAD_BANDS if bands.shape[0] else 0):
        lowest, highest = _BAND_EDGES_HZ[k : k + 2]
        middle_hz = math.sqrt(lowest * highest)
        turn = 2.0 * math.pi * middle_hz / _BAND_RATE_HZ
        alpha = math.sin(turn) * (highest - lowest) / (2.0 * middle_hz)
        bands[_BAND_B0, k] = alpha / (1.0 + alpha)
        bands[_BAND_A1, k] = -2.0 * math.cos(turn) / (1.0 + alpha)
        bands[_BAND_A2, k] = (1.0 - alpha) / (1.0 + alpha)
    state[_THIN] = max(1, rate_hz // _BAND_RATE_HZ)
    state[_HIGH_PASS] = 1.0 - 2.0 * math.pi * 120.0 / rate_hz  # DC and mains hum
    corner = 2.0 * math.pi * 1000.0 / rate_hz
    state[_LOW_PASS] = corner / (1.0 + corner)
    state[_ON_DB], state[_OFF_DB], state[_QUIETEST_DB] = decibels
    state[_MIN_ON], state[_HANG] = frames


@compiled(_TYPES.void(_F32, _TYPES.float32, _TYPES.float32), fastmath=True, inner=True)
def _vad_floor(state: Floats, low_db: float, high_db: float) -> None:
    """Follows the noise floor of both bands: the smoothed minimum of the last two windows."""
    rise_db = high_db - state[_MIN_HIGH]
    fades_in = state[_HEARD] <= _FADE_FRAMES and _FADE_LEAST_DB < rise_db < _FADE_MOST_DB
    state[_HEARD] = 1.0 if fades_in else state[_HEARD] + 1.0
    if state[_HEARD] == 1.0:
        state[_NOISE_LOW] = min(low_db, _START_AT_MOST_DB)
        state[_NOISE_HIGH] = min(high_db, _START_AT_MOST_DB)
        state[_MIN_LOW] = state[_WAS_LOW] = low_db
        state[_MIN_HIGH] = state[_WAS_HIGH] = high_db
    state[_MIN_LOW] = min(low_db, state[_MIN_LOW])
    state[_MIN_HIGH] = min(high_db, state[_MIN_HIGH])
    state[_WINDOW] += 1.0
    if state[_WINDOW] > _WINDOW_FRAMES:
        state[_WAS_LOW], state[_WAS_HIGH] = state[_MIN_LOW], state[_MIN_HIGH]
        state[_MIN_LOW], state[_MIN_HIGH] = low_db, high_db
        state[_WINDOW] = 0.0
    up = 0.05 if state[_ACTIVE] > 0.0 else 0.10  # under speech the floor rises slowly
    if state[_HEARD] < _SETTLING_FRAMES:
        up = 0.15
    low_to = min(state[_MIN_LOW], state[_WAS_LOW]) + _MINIMUM_BIAS_DB - state[_NOISE_LOW]
    high_to = min(state[_MIN_HIGH], state[_WAS_HIGH]) + _MINIMUM_BIAS_DB - state[_NOISE_HIGH]
    state[_NOISE_LOW] += (0.3 if low_to < 0.0 else up) * low_to
    state[_NOISE_HIGH] += (0.3 if high_to < 0.0 else up) * high_to


@compiled(_TYPES.void(_I16, _F32_2D, _I64), _TYPES.void(_I16_IN, _F32_2D, _I64), fastmath=True, inner=True)
def _vad_bands(frame: Pcm, bands: npt.NDArray[np.float32], thin: int) -> None:
    """The energy of each band in a frame."""
    b0, a1, a2, z1, z2, energy = bands[0], bands[1], bands[2], bands[3], bands[4], bands[5]
    for k in range(VAD_BANDS):
        energy[k] = np.float32(0.0)
    scale = np.float32(1.0 / (32768.0 * thin))
    for i in range(frame.shape[0] // thin):
        total: Any = np.float32(0.0)
        for j in range(thin):
            total += np.float32(frame[i * thin + j])
        for k in range(VAD_BANDS):  # innermost, so that eight products share a vector register
            new = b0[k] * (scale * total + _OFFSET)
            y = new + z1[k]
            z1[k] = z2[k] - a1[k] * y
            z2[k] = -new - a2[k] * y
            energy[k] += y * y


@compiled(_F64(_F32), fastmath=True, inner=True)
def _vad_loudest(over: Floats) -> float:
    """The mean of the highest values of `over`, which are overwritten."""
    total = 0.0
    for _ in range(_BAND_LOUDEST):
        most = 0
        for k in range(1, VAD_BANDS):
            if over[k] > over[most]:
                most = k
        total += over[most]
        over[most] = np.float32(-100.0)
    return total / _BAND_LOUDEST


@compiled(_F64(_F32_2D, _F32, _I64), fastmath=True, inner=True)
def _vad_over(bands: npt.NDArray[np.float32], state: Floats, samples: int) -> float:
    """The mean level over the noise, in dB, of the `_BAND_LOUDEST` highest bands; call after `_vad_floor`."""
    quietest = state[_QUIETEST_DB] - _BAND_QUIETER_DB
    up = 0.05 if state[_ACTIVE] > 0.0 else 0.10
    if state[_HEARD] < _SETTLING_FRAMES:
        up = 0.3
    half = np.float32(0.5)
    for k in range(VAD_BANDS):
        power = bands[_BAND_ENERGY, k] / np.float32(samples) + _OFFSET_POWER
        if state[_HEARD] == 1.0:
            bands[_BAND_POWER, k] = power
        bands[_BAND_POWER, k] += half * (power - bands[_BAND_POWER, k])
        level_db = 10.0 * np.log10(bands[_BAND_POWER, k] + 1e-9)
        if state[_HEARD] == 1.0:
            bands[_BAND_NOISE, k] = min(level_db, _START_AT_MOST_DB)
            bands[_BAND_MIN, k] = bands[_BAND_WAS, k] = level_db
        bands[_BAND_MIN, k] = min(level_db, bands[_BAND_MIN, k])
        if state[_WINDOW] == 0.0:
            bands[_BAND_WAS, k] = bands[_BAND_MIN, k]
            bands[_BAND_MIN, k] = level_db
        to = min(bands[_BAND_MIN, k], bands[_BAND_WAS, k]) + _BAND_BIAS_DB - bands[_BAND_NOISE, k]
        bands[_BAND_NOISE, k] += (0.3 if to < 0.0 else up) * to
        noise = np.float32(10.0 ** (0.1 * max(bands[_BAND_NOISE, k], quietest)))
        clipped = min(power, _BAND_CLIP * noise)
        bands[_BAND_CLIPPED, k] += half * (clipped - bands[_BAND_CLIPPED, k])
        there = min(bands[_BAND_CLIPPED, k], np.float32(1.4) * power)  # smoothing must not outlast a sound
        bands[_BAND_OVER, k] = 10.0 * np.log10(there / noise + 1e-6)
    return _vad_loudest(bands[_BAND_OVER]) if state[_HEARD] > _BAND_UNKNOWN_FRAMES else 0.0


@compiled(_TYPES.int64(_F32), fastmath=True, inner=True)
def _vad_verdict(state: Floats) -> int:
    """Applies hysteresis and hang-over: bit 0 voiced, bit 1 active."""
    snr = state[_SNR]
    voiced = snr > (state[_OFF_DB] if state[_ACTIVE] > 0.0 else state[_ON_DB])
    # Clipped first, so that a loud click does not keep the smoothed value above the threshold.
    state[_SMOOTHED] += 0.5 * (min(snr, 2.0 * state[_ON_DB]) - state[_SMOOTHED])
    if state[_ACTIVE] == 0.0:
        state[_RUN] = state[_RUN] + 1.0 if state[_SMOOTHED] > state[_ON_DB] and snr > state[_OFF_DB] else 0.0
        if state[_RUN] >= state[_MIN_ON]:
            state[_ACTIVE] = 1.0
            state[_LEFT] = state[_HANG]
    elif state[_SMOOTHED] > state[_OFF_DB]:
        state[_LEFT] = state[_HANG]
    else:
        state[_LEFT] -= 1.0
        if state[_LEFT] <= 0.0:
            state[_ACTIVE] = 0.0
            state[_RUN] = 0.0
    return int(voiced) + 2 * int(state[_ACTIVE] > 0.0)


@compiled(_TYPES.int64(_I16, _F32, _F32_2D), _TYPES.int64(_I16_IN, _F32, _F32_2D), fastmath=True)
def energy_vad_step(frame: Pcm, state: Floats, bands: npt.NDArray[np.float32]) -> int:
    """Takes one frame of a call, with the call's `state` and `bands` (`energy_vad_init`): bit 0 voiced, bit 1
    active, as in `pipeline.audio.vad`."""
    if frame.shape[0] == 0:
        return 0
    high_pass, low_pass = state[_HIGH_PASS], state[_LOW_PASS]
    x1, y1, low = state[_X1], state[_Y1], state[_LOW1]
    energy_low = np.float32(0.0)
    energy_high = np.float32(0.0)
    for i in range(frame.shape[0]):
        x = np.float32(frame[i]) * np.float32(1.0 / 32768.0)
        y1 = high_pass * (y1 + x - x1) + _OFFSET
        x1 = x
        low += low_pass * (y1 - low)
        high = y1 - low
        energy_low += low * low
        energy_high += high * high
    state[_X1], state[_Y1], state[_LOW1] = x1, y1, low
    low_db = np.float32(10.0) * np.log10(energy_low / np.float32(frame.shape[0]) + np.float32(1e-9))
    high_db = np.float32(10.0) * np.log10(energy_high / np.float32(frame.shape[0]) + np.float32(1e-9))
    _vad_floor(state, low_db, high_db)
    quietest = state[_QUIETEST_DB]
    snr = max(low_db - max(state[_NOISE_LOW], quietest), high_db - max(state[_NOISE_HIGH], quietest))
    if bands.shape[0]:
        thin = int(state[_THIN])
        _vad_bands(frame, bands, thin)
        over = _vad_over(bands, state, frame.shape[0] // thin) - _BAND_OFF_DB
        wide = (state[_ON_DB] - state[_OFF_DB]) / (_BAND_ON_DB - _BAND_OFF_DB)
        narrow = min(state[_OFF_DB] + wide * over, 2.0 * state[_ON_DB])
        snr = max(snr, narrow) if snr > _BAND_RING_DB else snr
    state[_SNR] = snr
    return _vad_verdict(state)


# --- loss concealment -----------------------------------------------------------------------------


@compiled(_I64(_F32, _I64, _I64, _I64), fastmath=True)
def pitch_period(history: Floats, shortest: int, longest: int, window: int) -> int:
    """The lag with the highest normalised cross-correlation of the last `window` samples of `history`.

    `history`: at least `window + longest` samples. Lags from `shortest` to `longest` inclusive are tried.
    """
    recent = history[history.shape[0] - window :]
    best_lag, best = longest, np.float32(-1.0)
    for lag in range(shortest, longest + 1):
        earlier = history[history.shape[0] - window - lag : history.shape[0] - lag]
        product = np.float32(0.0)
        energy = np.float32(1.0)
        for i in range(window):
            product += recent[i] * earlier[i]
            energy += earlier[i] * earlier[i]
        score = product / np.sqrt(energy)
        if score > best:
            best, best_lag = score, lag
    return best_lag


# --- DTMF -----------------------------------------------------------------------------------------

# At 8 kHz a window of 20 ms every 5 ms. One detector's row: what was decided, then two spectra.
DTMF_RATE_HZ: Final = 8000
DTMF_WINDOW: Final = 160
DTMF_HOP: Final = 40
DTMF_BINS: Final = 8
DTMF_COLUMNS: Final = 4 + 4 * DTMF_BINS  # the decision, the last spectrum, and room for the next
DTMF_HIT, DTMF_RUN, DTMF_MISSES, DTMF_KEY = range(4)
DTMF_HZ: Final = np.array((697, 770, 852, 941, 1209, 1336, 1477, 1633), np.float64)
_QUIETEST: Final = (32768.0 * 10 ** (-40 / 20)) ** 2  # -40 dBov together: below what Q.24 has networks accept
# Share of the two tones in all energy of the window; speech has it for a window, not for five.
_PURITY: Final = 0.8
_DEVIATION: Final = 0.025  # midway between the 1.5 % to be accepted and the 3.5 % to be refused
# Q.24: 4 dB of twist with the high tone louder, 8 dB with the low one, and two more for a line that is worse
# than it should be.
_HIGH_AT_MOST: Final = 10 ** (6 / 10)
_LOW_AT_MOST: Final = 10 ** (10 / 10)
# Consecutive windows that make a digit, tones of 28 to 33 ms and longer (Q.24: 23 no, 40 yes), and those
# without that end it: a pause of about 25 ms and longer; drop-outs of 10 ms do not split a digit.
_HITS: Final = 5
_MISSES: Final = 7


@compiled(_F64(_F32, _F32_2D, _F32_2D, _F32), fastmath=True, inner=True)
def _dtmf_spectrum(window: Floats, cosines: Floats, sines: Floats, spectrum: Floats) -> float:
    """Real parts, then imaginary parts at the eight frequencies; returns the energy under the taper (row
    0)."""
    energy: Any = np.float32(0.0)
    taper = cosines[0]
    for i in range(DTMF_WINDOW):
        x = window[i] * taper[i]
        energy += x * x
    for k in range(DTMF_BINS):
        cosine, sine = cosines[k + 1], sines[k + 1]
        real = np.float32(0.0)
        imaginary = np.float32(0.0)
        for i in range(DTMF_WINDOW):
            real += window[i] * cosine[i]
            imaginary += window[i] * sine[i]
        spectrum[k] = real
        spectrum[DTMF_BINS + k] = imaginary
    return float(energy)


@compiled(_I64(_F32, _I64), fastmath=True, inner=True)
def _dtmf_strongest(spectrum: Floats, first: int) -> int:
    """The index of the strongest of the four frequencies from `first` on."""
    best, best_power = first, np.float32(-1.0)
    for k in range(first, first + 4):
        power = spectrum[k] * spectrum[k] + spectrum[DTMF_BINS + k] * spectrum[DTMF_BINS + k]
        if power > best_power:
            best, best_power = k, power
    return best


@compiled(_F64(_F32, _F32, _I64), fastmath=True, inner=True)
def _dtmf_power(now: Floats, before: Floats, k: int) -> float:
    """Power of the tone near frequency `k`, -1.0 if it is off frequency.

    The frequency comes from the turn of the phase between two windows 5 ms apart (unambiguous to 100 Hz); the
    power is corrected for the taper's response at that distance from the bin.
    """
    real = now[k] * before[k] + now[DTMF_BINS + k] * before[DTMF_BINS + k]
    imaginary = now[DTMF_BINS + k] * before[k] - now[k] * before[DTMF_BINS + k]
    if real == 0.0 and imaginary == 0.0:
        return -1.0
    hop_s = DTMF_HOP / DTMF_RATE_HZ
    turns = math.atan2(imaginary, real) / (2.0 * math.pi) - DTMF_HZ[k] * hop_s
    off_hz = (turns - math.floor(turns + 0.5)) / hop_s
    if abs(off_hz) > _DEVIATION * DTMF_HZ[k]:
        return -1.0
    bins_off = off_hz * DTMF_WINDOW / DTMF_RATE_HZ
    response = 1.0
    if abs(bins_off) > 1e-3:  # of a raised cosine, beside its bin
        response = math.sin(math.pi * bins_off) / (math.pi * bins_off) / (1.0 - bins_off * bins_off)
    power: float = now[k] * now[k] + now[DTMF_BINS + k] * now[DTMF_BINS + k]
    return power / (response * response)


@compiled(_I64(_F32, _F32_2D, _F32_2D, _F32, _F32), fastmath=True, inner=True)
def _dtmf_hit(window: Floats, cosines: Floats, sines: Floats, spectrum: Floats, before: Floats) -> int:
    """The digit (0 to 15, row by row) in this window, or -1. `before`: the last spectrum, overwritten."""
    energy = _dtmf_spectrum(window, cosines, sines, spectrum)
    row, column = _dtmf_strongest(spectrum, 0), _dtmf_strongest(spectrum, 4)
    low, high = _dtmf_power(spectrum, before, row), _dtmf_power(spectrum, before, column)
    for k in range(2 * DTMF_BINS):
        before[k] = spectrum[k]
    if energy < _QUIETEST or low <= 0.0 or high <= 0.0:
        return -1
    if high > _HIGH_AT_MOST * low or low > _LOW_AT_MOST * high or low + high < _PURITY * energy:
        return -1
    return 4 * row + column - 4


@compiled(_I64(_F32, _I64), inner=True)
def _dtmf_decide(state: Floats, hit: int) -> int:
    """Counts hits and misses: the digit that this window confirms, or -1."""
    state[DTMF_RUN] = state[DTMF_RUN] + 1 if hit >= 0 and hit == state[DTMF_HIT] else 1
    state[DTMF_HIT] = hit
    if state[DTMF_KEY] >= 0:
        state[DTMF_MISSES] = 0 if hit == state[DTMF_KEY] else state[DTMF_MISSES] + 1
        if state[DTMF_MISSES] >= _MISSES:
            state[DTMF_KEY] = -1
    if hit < 0 or hit == state[DTMF_KEY] or state[DTMF_RUN] < _HITS:
        return -1
    state[DTMF_KEY] = hit
    state[DTMF_MISSES] = 0
    return hit


@compiled(
    _I64(_I16, _F32, _F32_2D, _F32_2D, _F32),
    _I64(_I16_IN, _F32, _F32_2D, _F32_2D, _F32),
    fastmath=True,
)
def dtmf_step(frame: Pcm, buffer: Floats, cosines: Floats, sines: Floats, state: Floats) -> int:
    """Takes one frame of 20 ms: the digit (0 to 15) that the frame confirms, or -1.

    `frame`: a whole multiple of 160 samples; a higher rate is averaged down to 8 kHz, which suffices for
    tones below 1.7 kHz. `buffer`: 120 samples of the past and room for 160. `state`: DTMF_COLUMNS, the first
    four -1, 0, 0, -1 at the start. `cosines`, `sines`: (9, 160), tapered; row 0 of `cosines` is the taper
    itself.
    """
    past = DTMF_WINDOW - DTMF_HOP
    ratio = frame.shape[0] // DTMF_WINDOW
    if ratio == 0:
        return -1
    for i in range(DTMF_WINDOW):
        total = np.float32(0.0)
        for j in range(ratio):
            total += frame[i * ratio + j]
        buffer[past + i] = total / ratio
    before, spectrum = state[4 : 4 + 2 * DTMF_BINS], state[4 + 2 * DTMF_BINS :]
    confirmed = -1
    for hop in range(DTMF_WINDOW // DTMF_HOP):
        window = buffer[hop * DTMF_HOP : hop * DTMF_HOP + DTMF_WINDOW]
        key = _dtmf_decide(state, _dtmf_hit(window, cosines, sines, spectrum, before))
        if key >= 0:
            confirmed = key
    for i in range(past):
        buffer[i] = buffer[DTMF_WINDOW + i]
    return confirmed


# --- echo of the agent's voice ----------------------------------------------------------------------

# The lag is searched at 2 kHz (1160 lags at every other frame); the echo is then predicted at 4 kHz by a
# short adaptive filter around that lag. Both get the signal without its spectral tilt: two voices, and a
# voice and the same voice a pitch period later, then correlate less.
ECHO_RING: Final = 4096  # samples at 4 kHz, half as many at 2 kHz: a second, and a power of two
ECHO_RINGS: Final = ECHO_RING + ECHO_RING // 2
ECHO_EARLIEST: Final = -80  # lags at 2 kHz: 40 ms early (packets leave ahead of their time) to 540 ms late
ECHO_LATEST: Final = 1080
ECHO_LAGS: Final = ECHO_LATEST - ECHO_EARLIEST + 1
ECHO_TAPS: Final = 128  # 32 ms
ECHO_COLUMNS: Final = 10
ECHO_FINE: Final = 80  # samples of a frame at 4 kHz
ECHO_COARSE: Final = 40  # samples of a frame at 2 kHz
ECHO_THINNED: Final = ECHO_FINE + ECHO_COARSE
ECHO_LOCKED, ECHO_SHARE, ECHO_SEARCHES, ECHO_QUIET = 3, 4, 8, 9
_ENERGY, _CANDIDATE, _TIMES, _LOCKED, _SHARE, _ERROR, _RECENT, _COUNT, _SEARCHES, _QUIET = range(10)
_TILT: Final = 0.85
_MEMORY: Final = 0.9  # decay of the correlation per frame: it covers 0.2 s
_LOUDEST: Final = 0.45  # an echo is at least 7 dB below the played audio; another voice is not
_ALIKE: Final = 0.6  # least correlation, at one lag for `_LOCK_FRAMES`, that makes the lag that of the echo
_LOCK_FRAMES: Final = 5  # of the frames that are searched: 0.2 s
_NEAR: Final = 80  # 40 ms: movement of a known lag when the agent's words leave earlier in their tick
_SAME: Final = 4  # 2 ms: within the taps before the lag
_RELOCK_FRAMES: Final = 3
_RELEARN_FRAMES: Final = 8  # 0.3 s after which a wrong filter at the right lag is reset
_WORKS: Final = 0.5  # a filter that explains this share has the right lag, whatever else correlates
_LEAD: Final = 16  # taps before the lag: 4 ms
_PACE: Final = 0.5  # step size of the adaptive filter
_SILENT: Final = ECHO_FINE * 12.0**2  # energy of a frame at 4 kHz, of which nothing is heard
ECHO_HANG: Final = 25  # silent frames, half a second, in which what sounded before is still correlated


@compiled(_VOID(_F32, _F32, _F32, _F32), fastmath=True, inner=True)
def _echo_decimate(fresh: Floats, taps: Floats, history: Floats, out: Floats) -> None:
    """Low-passes `fresh` and decimates it to the length of `out`, without spectral tilt. `history`: taps - 1
    samples of the past and room for `fresh`, then the last output before the removal of the tilt."""
    past, size = taps.shape[0] - 1, fresh.shape[0]
    ratio = size // out.shape[0]
    for i in range(size):
        history[past + i] = fresh[i]
    last = history[history.shape[0] - 1]
    for k in range(out.shape[0]):
        heard = history[k * ratio : k * ratio + past + 1]
        total = np.float32(0.0)
        for t in range(past + 1):
            total += taps[t] * heard[t]
        out[k] = total - np.float32(_TILT) * last
        last = total
    history[history.shape[0] - 1] = last
    for i in range(past):
        history[i] = history[size + i]


@compiled(_VOID(_I16, _F32, _F32, _F32), _VOID(_I16_IN, _F32, _F32, _F32))
def echo_thin(frame: Pcm, taps: Floats, history: Floats, out: Floats) -> None:
    """Decimates a frame of 20 ms to 4 kHz and 2 kHz. `taps`: those for 4 kHz, then twice as many for 2 kHz.
    `history`: for each rate as many samples as taps, and a frame. `out`: 80 samples at 4 kHz and 40 at 2 kHz,
    then room for the frame."""
    size, split = frame.shape[0], taps.shape[0] // 3
    fresh = out[ECHO_THINNED : ECHO_THINNED + size]
    for i in range(size):
        fresh[i] = frame[i]
    _echo_decimate(fresh, taps[:split], history[: split + size], out[:ECHO_FINE])
    _echo_decimate(fresh, taps[split:], history[split + size :], out[ECHO_FINE:ECHO_THINNED])


@compiled(_I16_(_F32_), inner=True)
def _echo_rounded(sample: float) -> int:
    """Rounds to the nearest; saturates, since without its tilt a loud sample may be larger than it was."""
    rounded: Any = np.int32(sample + np.float32(65536.5)) - 65536  # truncation of what is positive: floor
    return int(min(max(rounded, -32768), 32767))


@compiled(_VOID(_I16, _I64, _F32))
def echo_remember(rings: Pcm, position: int, thinned: Floats) -> None:
    """Writes a played frame, `thinned` by `echo_thin`, to the rings: `ECHO_RING` samples at 4 kHz, then half
    as many at 2 kHz. `position`: that of the frame's first sample at 2 kHz on the common clock; not
    negative."""
    fine, coarse = ECHO_RING - 1, ECHO_RING // 2 - 1
    for i in range(ECHO_FINE):
        rings[(2 * position + i) & fine] = _echo_rounded(thinned[i])
    for i in range(ECHO_COARSE):
        rings[ECHO_RING + ((position + i) & coarse)] = _echo_rounded(thinned[ECHO_FINE + i])
    for i in range(2 * ECHO_FINE):  # replaces audio of a second ago, where nothing is played yet
        rings[(2 * position + ECHO_FINE + i) & fine] = 0
    for i in range(2 * ECHO_COARSE):
        rings[ECHO_RING + ((position + ECHO_COARSE + i) & coarse)] = 0


@compiled(_VOID(_F32, _F32, _F32), fastmath=True, inner=True)
def _echo_correlate(heard: Floats, played: Floats, products: Floats) -> None:
    """Adds a frame's products at every lag to `products`, which decay. The lags are the inner loop, so that
    they share a vector register: a sum for each lag on its own takes eight times as long."""
    for j in range(ECHO_LAGS):
        products[j] = products[j] * np.float32(_MEMORY) + _OFFSET
    for i in range(0, ECHO_COARSE, 4):
        part = played[i : i + ECHO_LAGS + 3]
        for j in range(ECHO_LAGS):
            products[j] += (
                heard[i] * part[j]
                + heard[i + 1] * part[j + 1]
                + heard[i + 2] * part[j + 2]
                + heard[i + 3] * part[j + 3]
            )


@compiled(_VOID(_F32, _F32, _F32_2D, _F32), fastmath=True, inner=True)
def _echo_search(heard: Floats, played: Floats, sums: Floats, state: Floats) -> None:
    """Adds a frame to the correlation at every lag (`sums`: products, played energies) and follows the lag of
    the highest correlation. `played`: the played audio from the latest lag on."""
    energy = np.float32(0.0)
    running = np.float32(0.0)
    for i in range(ECHO_COARSE):
        energy += heard[i] * heard[i]
        running += played[i] * played[i]
    memory = np.float32(_MEMORY)
    state[_ENERGY] = memory * state[_ENERGY] + energy + _OFFSET
    products, energies = sums[0], sums[1]
    _echo_correlate(heard, played, products)
    for j in range(ECHO_LAGS):
        energies[j] = memory * energies[j] + max(running, _OFFSET)
        if j + 1 < ECHO_LAGS:
            running += played[j + ECHO_COARSE] * played[j + ECHO_COARSE] - played[j] * played[j]
    best, best_score = -1, np.float32(0.0)
    least = np.float32(0.1) * state[_ENERGY] + np.float32(1.0)  # an echo is quieter than what it is of
    for j in range(ECHO_LAGS):
        score = products[j] * products[j] / (energies[j] + least)
        if score > best_score:
            best, best_score = j, score
    alike = best_score > np.float32(_ALIKE * _ALIKE) * (state[_ENERGY] + np.float32(1.0))
    if alike and abs(products[best]) > np.float32(_LOUDEST) * energies[best]:
        alike = False
    again = alike and abs(best - state[_CANDIDATE]) <= 1.0
    state[_TIMES] = state[_TIMES] + 1.0 if again else np.float32(alike)
    state[_CANDIDATE] = best


@compiled(_F64(_F32, _F32, _F32), fastmath=True, inner=True)
def _echo_unexplained(heard: Floats, played: Floats, weights: Floats) -> float:
    """Gives the energy of a frame (4 kHz) that the filter does not explain, and adapts the filter (NLMS:
    Haykin, Adaptive Filter Theory, chapter 6). `played`: 127 samples before those of the frame, and these."""
    power = np.float32(1e4)
    for t in range(ECHO_TAPS - 1):
        power += played[t] * played[t]
    error = np.float32(0.0)
    for i in range(ECHO_FINE):
        part = played[i : i + ECHO_TAPS]
        power += part[ECHO_TAPS - 1] * part[ECHO_TAPS - 1]
        total = np.float32(0.0)
        for t in range(ECHO_TAPS):
            total += part[t] * weights[t]
        off = heard[i] - total
        error += off * off
        step = np.float32(_PACE) * off / power
        for t in range(ECHO_TAPS):
            weights[t] += step * part[t]
        power -= part[0] * part[0]
    return float(error)


@compiled(_I64(_F32_2D, _F32_2D, _F32), fastmath=True, inner=True)
def _echo_lock(sums: Floats, weights: Floats, state: Floats) -> int:
    """Takes a lag that lasts for that of the echo, with a new filter of one tap at that lag. 1: both signals
    still correlate at the echo's lag."""
    lag = int(state[_CANDIDATE])
    off = abs(lag - state[_LOCKED])
    needed = _LOCK_FRAMES
    if state[_LOCKED] >= 0.0 and off <= _NEAR:
        needed = _RELOCK_FRAMES if off > _SAME else _RELEARN_FRAMES
    doubted = state[_LOCKED] < 0.0 or state[_SHARE] < _WORKS
    if state[_TIMES] >= needed and doubted:
        state[_LOCKED] = lag
        state[_TIMES] = state[_ERROR] = state[_RECENT] = 0.0
        weights[:, :] = np.float32(0.0)
        weights[:, ECHO_TAPS - 1 - _LEAD] = sums[0, lag] / (sums[1, lag] + np.float32(1.0))
    return int(state[_TIMES] >= 1.0 and off <= _SAME)


@compiled(_F64(_F32, _F32), fastmath=True, inner=True)
def _echo_energy(heard: Floats, state: Floats) -> float:
    """Gives the energy of a caller's frame (4 kHz), and counts silent frames up to `ECHO_HANG`."""
    energy = np.float32(1.0)
    for i in range(ECHO_FINE):
        energy += heard[i] * heard[i]
    silent = energy <= np.float32(_SILENT)
    state[_QUIET] = min(state[_QUIET] + 1.0, np.float32(ECHO_HANG)) if silent else 0.0
    return float(energy)


@compiled(_F64(_I16, _I64, _F32, _F32_2D, _F32_2D, _F32), fastmath=True)
def echo_share(  # noqa: PLR0917 (a kernel: numba takes no keywords)
    rings: Pcm, position: int, thinned: Floats, sums: Floats, weights: Floats, state: Floats
) -> float:
    """The share of a caller's frame that is the agent's echo, 0 to 1, over the last frames; 0 until an echo
    is found. No lag is searched while the caller is silent, which tells nothing about an echo. `thinned`: by
    `echo_thin`, with room for played audio at its end; `weights`: the filter and its last good state."""
    fine, coarse = thinned[:ECHO_FINE], thinned[ECHO_FINE:ECHO_THINNED]
    played = thinned[ECHO_THINNED:]
    energy = np.float32(_echo_energy(fine, state))
    searched = state[_QUIET] < np.float32(ECHO_HANG)
    state[_COUNT] += 1.0
    if state[_COUNT] >= 2.0:
        state[_COUNT] = 0.0  # the lag is searched at every other frame
    if searched and state[_COUNT] == 0.0:
        state[_SEARCHES] += 1.0
        for i in range(ECHO_LAGS + ECHO_COARSE - 1):
            played[i] = rings[ECHO_RING + ((position - ECHO_LATEST + ECHO_RING + i) & (ECHO_RING // 2 - 1))]
        _echo_search(coarse, played, sums, state)
    sure = _echo_lock(sums, weights, state) if searched else 0
    if state[_LOCKED] < 0.0:
        return 0.0
    delay = 2 * (ECHO_LATEST - int(state[_LOCKED])) - _LEAD
    first = 2 * position - delay - (ECHO_TAPS - 1) + 2 * ECHO_RING
    for i in range(ECHO_FINE + ECHO_TAPS - 1):
        played[i] = rings[(first + i) & (ECHO_RING - 1)]
    unexplained = np.float32(_echo_unexplained(fine, played, weights[0]))
    # This frame has two thirds of the weight, so that a voice over the echo counts at once.
    state[_ERROR] = np.float32(0.5) * state[_ERROR] + min(unexplained, energy) + _OFFSET
    state[_RECENT] = np.float32(0.5) * state[_RECENT] + energy
    if unexplained <= np.float32(0.7) * energy:
        weights[1, :] = weights[0, :]
    elif not sure:
        weights[0, :] = weights[1, :]  # drops what the filter learnt from another voice
    state[_SHARE] = 1.0 - state[_ERROR] / state[_RECENT]
    return float(state[_SHARE])


# --- prosody --------------------------------------------------------------------------------------

PROSODY_HZ: Final = 4000
PROSODY_HOP: Final = 40  # 10 ms
PROSODY_WINDOW: Final = 128  # 32 ms: two periods of the lowest voice
PROSODY_SHORTEST: Final = 9  # lags: 444 Hz
PROSODY_LONGEST: Final = 60  # to 67 Hz
PROSODY_QUIET: Final = 40.0  # 32 dB


@compiled(_VOID(_F32, _TYPES.int64[::1], _F64, _F32), fastmath=True, inner=True)
def _autocorrelate(samples: Floats, powers: npt.NDArray[np.int64], least: float, scores: Floats) -> None:
    """Normalised, at every lag, of the first window of `samples`. `powers`: sums of the squares of all
    samples before each; `least`: added to the power of a window. Lag 0 is left 0."""
    energy = powers[PROSODY_WINDOW] - powers[0] + least
    for lag in range(PROSODY_SHORTEST - 1, PROSODY_LONGEST + 2):
        later = samples[lag : lag + PROSODY_WINDOW]
        product = np.float32(0.0)
        for i in range(PROSODY_WINDOW):
            product += samples[i] * later[i]
        power = powers[lag + PROSODY_WINDOW] - powers[lag] + least
        scores[lag] = product / np.sqrt(energy * power)


@compiled(_I64(_F32), inner=True)
def _shortest_peak(scores: Floats) -> int:
    """The shortest lag whose peak is nearly the highest, 0 for none."""
    best = np.float32(0.0)
    for lag in range(PROSODY_SHORTEST, PROSODY_LONGEST + 1):
        best = max(best, scores[lag])
    for lag in range(PROSODY_SHORTEST, PROSODY_LONGEST + 1):
        peak = scores[lag] >= scores[lag - 1] and scores[lag] >= scores[lag + 1]
        if peak and scores[lag] > np.float32(0.9) * best:
            return lag
    return 0


@compiled(_TYPES.void(_I16, _I64, _F32, _F32_2D), _TYPES.void(_I16_IN, _I64, _F32, _F32_2D), fastmath=True)
def prosody(samples: Pcm, ratio: int, thin: Floats, out: Floats) -> None:
    """Level, pitch and voicing every 10 ms. `samples`: at `ratio` times 4 kHz; `thin`: room for all of them
    at 4 kHz, at least `rows * 40 + 188`; `out`: rows of (RMS, pitch in Hz, normalised autocorrelation at its
    lag). The pitch is that of the shortest lag whose correlation is nearly the best (Boersma 1993 has the
    reason: octaves), interpolated. No pitch is sought in rows more than `PROSODY_QUIET` times quieter than
    the loudest."""
    powers = np.empty(thin.shape[0] + 1, np.int64)
    powers[0] = 0
    for i in range(thin.shape[0]):
        total = 0
        for k in range(ratio):
            total += samples[i * ratio + k]
        thin[i] = total  # the mean of the samples, `ratio` times: whole numbers are added faster
        powers[i + 1] = powers[i] + total * total
    least = float(ratio * ratio)
    loudest = np.float32(0.0)
    for row in range(out.shape[0]):
        start = row * PROSODY_HOP
        out[row, 0] = np.sqrt(
            ((powers[start + PROSODY_WINDOW] - powers[start]) / least + 1.0) / PROSODY_WINDOW
        )
        loudest = max(loudest, out[row, 0])
    scores = np.zeros(PROSODY_LONGEST + 2, np.float32)
    for row in range(out.shape[0]):
        out[row, 1], out[row, 2] = 0.0, 0.0
        if (out[row, 0] + 1.0) * PROSODY_QUIET < loudest:
            continue
        start = row * PROSODY_HOP
        heard = thin[start : start + PROSODY_WINDOW + PROSODY_LONGEST + 1]
        _autocorrelate(heard, powers[start:], least, scores)
        lag = _shortest_peak(scores)
        out[row, 2] = scores[lag]
        if lag:
            bend = scores[lag - 1] - 2.0 * scores[lag] + scores[lag + 1]
            off = 0.5 * (scores[lag - 1] - scores[lag + 1]) / bend if bend < 0.0 else 0.0
            out[row, 1] = PROSODY_HZ / (lag + off)


# --- tones of the line ----------------------------------------------------------------------------

LINE_HZ: Final = 8000
LINE_WINDOW: Final = 320  # 40 ms
LINE_FIRST_HZ: Final = 300.0
LINE_STEP_HZ: Final = 25.0  # the resolution of the window
LINE_BINS: Final = 88  # to 2475 Hz
LINE_APART: Final = 2  # bins between two tones: 50 Hz; 440 and 480 Hz still give two humps by phase and time
LINE_COLUMNS: Final = 6
LINE_LEVEL, LINE_F1, LINE_SHARE1, LINE_F2, LINE_SHARE2, LINE_NARROW = range(6)


@compiled(_F64(_F32, _I64, _I64), inner=True)
def _line_band(power: Floats, centre: int, reach: int) -> float:
    """The power around a bin."""
    total = np.float32(0.0)
    for k in range(max(0, centre - reach), min(LINE_BINS, centre + reach + 1)):
        total += power[k]
    return float(total)


@compiled(_F64(_F32, _I64), inner=True)
def _line_hz(power: Floats, peak: int) -> float:
    """The frequency of a peak between its bins, by their centre of gravity."""
    below = power[peak - 1] if peak > 0 else np.float32(0.0)
    above = power[peak + 1] if peak + 1 < LINE_BINS else np.float32(0.0)
    off = (above - below) / (below + power[peak] + above + np.float32(1e-9))
    return float(LINE_FIRST_HZ + LINE_STEP_HZ * (peak + off))


@compiled(_F64(_F32, _F32_2D, _F32_2D, _F32), fastmath=True, inner=True)
def _line_power(buffer: Floats, cosines: Floats, sines: Floats, power: Floats) -> float:
    """The power in every bin; returns the energy under the taper."""
    energy = np.float32(1.0)
    taper = cosines[0]
    for i in range(LINE_WINDOW):
        x = buffer[i] * taper[i]
        energy += x * x
    for k in range(LINE_BINS):
        cosine, sine = cosines[k + 1], sines[k + 1]
        real = np.float32(0.0)
        imaginary = np.float32(0.0)
        for i in range(LINE_WINDOW):
            real += buffer[i] * cosine[i]
            imaginary += buffer[i] * sine[i]
        power[k] = real * real + imaginary * imaginary
    return float(energy)


@compiled(_I64(_F32, _I64), inner=True)
def _line_peak(power: Floats, beside: int) -> int:
    """The strongest bin that is not next to `beside`."""
    best = -1
    for k in range(LINE_BINS):
        if abs(k - beside) >= LINE_APART and (best < 0 or power[k] > power[best]):
            best = k
    return best


@compiled(
    _VOID(_I16, _F32, _F32_2D, _F32_2D, _F32),
    _VOID(_I16_IN, _F32, _F32_2D, _F32_2D, _F32),
    fastmath=True,
)
def line_step(frame: Pcm, buffer: Floats, cosines: Floats, sines: Floats, out: Floats) -> None:
    """Analyses the last 40 ms of a line, with a new frame of 20 ms.

    `frame`: a whole multiple of 160 samples, averaged down to 8 kHz. `buffer`: 160 samples of the past, room
    for 160, and for the power of 88 bins. `cosines`, `sines`: (89, 320), tapered; row 0 of `cosines` is the
    taper itself. `out`: level in steps (RMS of the window), the strongest frequency and the share of the
    window's energy near it, the same of the strongest one beside it, and the share of energy near both
    (1.0 for one or two pure tones).
    """
    half = LINE_WINDOW // 2
    ratio = frame.shape[0] // half
    for i in range(half):
        total = np.float32(0.0)
        for j in range(ratio):
            total += frame[i * ratio + j]
        buffer[half + i] = total / max(ratio, 1)
    plain = np.float32(0.0)
    for i in range(LINE_WINDOW):
        plain += buffer[i] * buffer[i]
    power = buffer[LINE_WINDOW:]
    energy = _line_power(buffer, cosines, sines, power)
    best = _line_peak(power, -LINE_APART)
    second = _line_peak(power, best)
    # So that one pure tone is 1.0: a Hann window has it in three bins, in either half of the spectrum.
    scale = 2.0 / (energy * LINE_WINDOW)
    near: Any = _line_band(power, best, 2)
    for k in range(max(0, second - 2), min(LINE_BINS, second + 3)):
        near += power[k] if abs(k - best) > 2 else np.float32(0.0)
    out[LINE_LEVEL] = np.sqrt(plain / LINE_WINDOW)
    out[LINE_F1] = _line_hz(power, best)
    out[LINE_SHARE1] = scale * _line_band(power, best, 1)
    out[LINE_F2] = _line_hz(power, second)
    out[LINE_SHARE2] = scale * _line_band(power, second, 1)
    out[LINE_NARROW] = scale * near
    for i in range(half):
        buffer[i] = buffer[half + i]


def warm() -> None:
    """Runs every kernel once on real shapes, for the page faults; called before the server reports ready."""
    octets = np.zeros(160, np.uint8)
    for rate_hz in LINE_RATES_HZ:
        frame = np.zeros(frame_samples(rate_hz), np.int16)
        state = np.zeros(VAD_COLUMNS, np.float32)
        bands = np.zeros((VAD_ROWS, VAD_BANDS), np.float32)
        energy_vad_init(state, bands, rate_hz, (7.0, 4.5, -62.0), (3, 160 // FRAME_MS))
        energy_vad_step(frame, state, bands)
        mix(frame, frame, frame)
        rms(frame)
        rms_dbfs(frame)
        peak(frame)
    g722.g722_warm()
    opus.opus_warm()
    pcm = np.zeros(160, np.int16)
    ulaw_decode(octets, pcm)
    alaw_decode(octets, pcm)
    ulaw_encode(pcm, octets)
    alaw_encode(pcm, octets)
    polyphase(pcm, np.zeros(163, np.float32), np.ones((2, 4), np.float32), np.empty(320, np.int16), (0, 1))
    pitch_period(np.zeros(480, np.float32), 40, 120, 160)
    tables = np.zeros((DTMF_BINS + 1, DTMF_WINDOW), np.float32)
    dtmf_step(pcm, np.zeros(280, np.float32), tables, tables, np.zeros(DTMF_COLUMNS, np.float32))
    thinned = np.zeros(ECHO_THINNED + ECHO_LAGS + ECHO_COARSE, np.float32)
    echo_thin(pcm, np.ones(72, np.float32), np.zeros(72 + 2 * 160, np.float32), thinned)
    rings, sums = np.zeros(ECHO_RINGS, np.int16), np.zeros((2, ECHO_LAGS), np.float32)
    echo_remember(rings, 0, thinned)
    weights, echo = np.zeros((2, ECHO_TAPS), np.float32), np.zeros(ECHO_COLUMNS, np.float32)
    echo_share(rings, 0, thinned, sums, weights, echo)
    prosody(np.zeros(456, np.int16), 2, np.zeros(PROSODY_HOP + 188, np.float32), np.zeros((1, 3), np.float32))
    tables = np.zeros((LINE_BINS + 1, LINE_WINDOW), np.float32)
    line_step(
        pcm, np.zeros(LINE_WINDOW + LINE_BINS, np.float32), tables, tables, np.zeros(LINE_COLUMNS, np.float32)
    )
