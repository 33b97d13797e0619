"""Runs the called person of the demo as a process: a telephone on another SIP stack, with a voice and a
recogniser of its own.

`python -m mediaserver.demo.callee --dir DIR` answers the first call, talks as `mediaserver.demo.persona`
says, and reports what it heard and said as JSON lines on standard output. This process shares the telephone
line with the agent and nothing else. With local speech the voice is Kokoro, where the agent's is Piper; both
ends recognise speech with Whisper, in a process each."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import click
import numpy as np

from mediaserver.demo.micro_whisper import MODEL_DIR
from mediaserver.demo.persona import PATIENTS, Persona
from mediaserver.demo.sentences import file_of
from mediaserver.demo.speech import Speech
from mediaserver.demo.telephone import Events, Line, Telephone, telephone
from pipeline.audio import FRAME_MS, Pcm, frame_samples
from pipeline.audio.vad import EnergyVad
from pipeline.stt.faster_whisper import FasterWhisper

END_OF_UTTERANCE_MS = 700
WAV_HEADER_BYTES = 44


def recogniser(speech: Speech) -> FasterWhisper:
    """Makes the recogniser of the called person. Not pocketsphinx: measured, it gets 38 of the agent's 95
    words wrong (Whisper 3), digits among them."""
    if speech is Speech.EMBEDDED:
        small = {"model": str(MODEL_DIR), "encoder_window_s": 1, "min_confidence": 0.2}
        return FasterWhisper.from_settings({**small, "partial_every_s": 0})
    return FasterWhisper.from_settings({"min_confidence": 0.2, "threads": 1, "partial_every_s": 0})


class Recognizer:
    """Reads the recording that the telephone is writing at `rate_hz` and cuts it into utterances."""

    def __init__(self, recording: Path, rate_hz: int) -> None:
        self._recording, self._offset, self._rate_hz = recording, WAV_HEADER_BYTES, rate_hz
        self._vad = EnergyVad(rate_hz)
        self._utterance: list[Pcm] = []
        self._quiet_ms = 0
        self.speaking_ms = 0

    def listen(self) -> list[Pcm]:
        """Returns the utterances that ended since the last call: int16 at the recording's rate."""
        ended = []
        for frame in self._new_frames():
            self._vad.push(frame)
            if self._vad.active:
                self.speaking_ms += self._quiet_ms + FRAME_MS
                self._quiet_ms = 0
            elif self.speaking_ms:
                self._quiet_ms += FRAME_MS
            self._utterance.append(frame)
            if not self.speaking_ms:
                del self._utterance[:-15]  # 300 ms before the first sound belong to it
            elif self._quiet_ms >= END_OF_UTTERANCE_MS:
                ended.append(np.concatenate(self._utterance))
                self._utterance, self._quiet_ms, self.speaking_ms = [], 0, 0
        return ended

    def rest(self) -> list[Pcm]:
        """Returns the last utterances, with the one that the hang-up cut short."""
        return [*self.listen(), *([np.concatenate(self._utterance)] if self.speaking_ms else [])]

    def _new_frames(self) -> list[Pcm]:
        if not self._recording.exists():
            return []
        size = frame_samples(self._rate_hz)
        with self._recording.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = len(data) // (2 * size)
        self._offset += whole * 2 * size
        return list(np.frombuffer(data, np.int16, whole * size).reshape(whole, size))


class Callee:
    """The called person during one call: hears with `recogniser(speech)`, answers with files from the
    directory `sentences`. `report` gets an event for everything heard and said."""

    def __init__(self, phone: Telephone, report: Events, *, speech: Speech, sentences: Path) -> None:
        self._phone, self._report, self._speech, self._sentences = phone, report, speech, sentences
        self._persona = Persona(PATIENTS[speech])
        self._recogniser = recogniser(speech)

    async def start(self) -> None:
        """Starts the recogniser. The sentences are synthesised before (`mediaserver.demo.sentences`), so that
        answers take no longer than a person's."""
        await self._recogniser.start()

    async def talk(self) -> None:
        """Waits for the first call and talks until it ends."""
        while not self._phone.lines:
            await self._tick()
        line: Line = self._phone.lines[0]
        recognizer = Recognizer(line.recording, self._phone.heard_rate_hz)
        while not line.ended:
            await self._tick()
            for utterance in recognizer.listen():
                await self._answer(line, utterance)
            if sentence := self._persona.hears_voice(recognizer.speaking_ms):
                self._say(line, sentence, over=True)
        for utterance in recognizer.rest():
            await self._understand(utterance)
        self._report("ended", {"finished": self._persona.finished, "misheard": self._persona.misheard})

    async def _tick(self) -> None:
        self._phone.poll(5)
        await asyncio.sleep(0.01)

    async def _answer(self, line: Line, utterance: Pcm) -> None:
        if sentence := self._persona.hears(await self._understand(utterance)):
            self._say(line, sentence, over=False)

    async def _understand(self, utterance: Pcm) -> str:
        listening = self._recogniser.listen(rate_hz=self._phone.heard_rate_hz, language="en", expected=None)
        listening.push(utterance)
        heard = await listening.result()
        listening.close()
        self._report("heard", {"text": heard.text, "confidence": round(heard.confidence, 3)})
        return heard.text

    def _say(self, line: Line, sentence: str, *, over: bool) -> None:
        self._report("said", {"text": sentence, "over": over})
        self._phone.play(line.number, str(file_of(self._sentences, self._speech, sentence)))

    async def close(self) -> None:
        """Closes the recogniser and frees its memory."""
        await self._recogniser.close()


async def live(directory: Path, port: int, speech: Speech, sentences: Path) -> None:
    """Starts the telephone on SIP `port`, has one call and closes."""
    report = Events()
    phone = telephone(directory, report, port=port, answer_after_s=0.4)
    callee = Callee(phone, report, speech=speech, sentences=sentences)
    await callee.start()
    report("ready", {"port": phone.port})
    try:
        await callee.talk()
    finally:
        await callee.close()
        phone.close()


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path), required=True)
@click.option("--port", default=0)
@click.option("--speech", type=click.Choice([each.value for each in Speech]), required=True)
@click.option("--sentences", type=click.Path(path_type=Path), required=True, help="Where its words are.")
def main(directory: Path, port: int, speech: str, sentences: Path) -> None:
    """Answers one call and ends with it."""
    gc.disable()  # a cycle collected on a recogniser's thread could free a PJSIP object there, which aborts
    directory.mkdir(parents=True, exist_ok=True)
    asyncio.run(live(directory, port, Speech(speech), sentences))


if __name__ == "__main__":
    main()
