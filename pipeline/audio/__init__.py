"""Signal processing on 20 ms PCM frames."""

from pipeline.audio.frames import FRAME_MS, LINE_RATES_HZ, Pcm, frame_samples, silence

__all__ = ["FRAME_MS", "LINE_RATES_HZ", "Pcm", "frame_samples", "silence"]
