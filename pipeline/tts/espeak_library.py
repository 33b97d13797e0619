"""Binds libespeak-ng with ctypes, for processes of voices and for training.

The library is GPL-3.0-or-later, keeps its state in globals and crashes with several threads (measured:
SIGSEGV with four). Only the processes of voices (`pipeline.tts.espeak_process`, and
`pipeline.tts.onnx.process` for phonemes), which run one request at a time, may import this module.

Signatures are those of `speak_lib.h` of espeak-ng 1.52.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import espeakng_loader

_SYNCHRONOUS = 2  # AUDIO_OUTPUT_SYNCHRONOUS: samples come by callback, inside espeak_Synth
_DONT_EXIT = 0x8000  # espeakINITIALIZE_DONT_EXIT
_UTF8 = 1  # espeakCHARS_UTF8
_END_PAUSE = 0x1000  # espeakENDPAUSE: sentences keep their pause when they are synthesised one by one
_POSITION_CHARACTER = 1
_EVENT_END = 0  # espeakEVENT_LIST_TERMINATED
_EVENT_WORD = 1
_PHONEMES_IPA = 0x02  # espeakPHONEMES_IPA
_PHONEMES_TIE = 0x80  # espeakPHONEMES_TIE
_LANGUAGE_SWITCH = re.compile(r"\([^)]*\)")  # "(en)" before a word read by another language's rules
_CHUNK_MS = 60  # the shortest chunk that the library gives

PARAMETERS: Mapping[str, int] = {"rate_wpm": 1, "volume": 2, "pitch": 3}
"""Numbers of espeak_PARAMETER by setting."""


@dataclass(frozen=True, slots=True)
class WordEvent:
    """The beginning of a word. `position`: index of its first character in the text; `sample`: index of its
    first sample."""

    position: int
    sample: int


Sink = Callable[[bytes, list[WordEvent]], bool]
"""Takes 16-bit little-endian samples with the words that begin in them; True stops the synthesis."""


class VoiceUnknown(Exception):
    """The library has no voice of this name, and none for this language."""


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Id),
    )


class _Voice(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_void_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("xx1", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_short),
    ctypes.c_int,
    ctypes.POINTER(_Event),
)


class EspeakLibrary:
    """The library; make one per process. `rate_hz`: the rate of all voices. Raises OSError where the library
    cannot be loaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        self._library.espeak_Synth.argtypes = [
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_uint,
            ctypes.POINTER(ctypes.c_uint),
            ctypes.c_void_p,
        ]
        self._library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        data = espeakng_loader.get_data_path().encode()
        self.rate_hz: int = self._library.espeak_Initialize(_SYNCHRONOUS, _CHUNK_MS, data, _DONT_EXIT)
        if self.rate_hz <= 0:
            raise OSError("espeak-ng found no data files")
        self._sink: Sink | None = None
        self._failure: Exception | None = None
        self._callback = _CALLBACK(self._received)  # kept alive here, since the library keeps only a pointer
        self._library.espeak_SetSynthCallback(self._callback)
        self._voice = ""
        self._library.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_Voice))
        self._languages = frozenset(_languages(self._library.espeak_ListVoices(None)))

    def speak(self, text: str, sink: Sink, *, voice: str, parameters: Mapping[str, int]) -> None:
        """Synthesises `text`, calling `sink` as samples become ready, and returns when all have been given or
        `sink` stopped it. Raises `VoiceUnknown`, OSError, and whatever `sink` raised."""
        self._set_voice(voice)
        for name, number in PARAMETERS.items():
            if name in parameters:
                self._library.espeak_SetParameter(number, parameters[name], 0)
        self._sink, self._failure = sink, None
        raw = text.replace("\0", " ").encode()
        code = self._library.espeak_Synth(
            raw, len(raw) + 1, 0, _POSITION_CHARACTER, 0, _UTF8 | _END_PAUSE, None, None
        )
        self._sink = None
        if self._failure is not None:
            raise self._failure
        if code:
            raise OSError(f"espeak_Synth gave {code}")

    def phonemes(self, text: str, *, voice: str, tie: str = "") -> str:
        """Gives the IPA of `text`, word by word, without punctuation. `tie`: the character that joins the
        letters of one sound. Raises `VoiceUnknown`."""
        self._set_voice(voice)
        mode = _PHONEMES_IPA | (ord(tie) << 8 | _PHONEMES_TIE if tie else 0)
        raw = ctypes.c_char_p(text.replace("\0", " ").encode())
        at = ctypes.c_void_p(ctypes.cast(raw, ctypes.c_void_p).value)
        said = []
        while at.value:
            clause = self._library.espeak_TextToPhonemes(ctypes.byref(at), _UTF8, mode)
            said.append((clause or b"").decode())
        return " ".join(_LANGUAGE_SWITCH.sub("", " ".join(said)).split())

    def _set_voice(self, voice: str) -> None:
        if voice == self._voice:
            return
        name = voice.encode()
        if self._library.espeak_SetVoiceByName(name) != 0:
            # This build has some voices ("en-gb") only as languages. Only a language of the library is asked
            # for: with "no-such-voice" the library would speak Norwegian.
            self._voice = ""
            language = name.split(b"+")[0]
            wanted = _Voice()
            wanted.languages = ctypes.cast(ctypes.c_char_p(language), ctypes.c_void_p).value
            known = language in self._languages
            if not known or self._library.espeak_SetVoiceByProperties(ctypes.byref(wanted)) != 0:
                raise VoiceUnknown(voice)
        self._voice = voice

    def _received(
        self, samples: ctypes._Pointer[ctypes.c_short], count: int, events: ctypes._Pointer[_Event]
    ) -> int:
        """Takes samples and events from the library, as its callback. An exception must not cross C and is
        kept for `speak`, which raises it."""
        sink = self._sink
        if sink is None or self._failure is not None:
            return 1
        try:
            return int(sink(_samples(samples, count), _words(events)))
        except Exception as error:
            self._failure = error
            return 1


def _languages(voices: ctypes._Pointer[ctypes._Pointer[_Voice]]) -> Iterator[bytes]:
    """The languages of all voices. A voice's list has a priority byte and a name for each, and ends with a
    zero byte."""
    index = 0
    while voices[index]:
        at = voices[index].contents.languages
        while at and ctypes.string_at(at, 1) != b"\0":
            name = ctypes.string_at(at + 1)
            yield name
            at += len(name) + 2
        index += 1


def _samples(samples: ctypes._Pointer[ctypes.c_short], count: int) -> bytes:
    return ctypes.string_at(samples, count * 2) if samples and count > 0 else b""


def _words(events: ctypes._Pointer[_Event]) -> list[WordEvent]:
    words = []
    index = 0
    while (event := events[index]).type != _EVENT_END:
        if event.type == _EVENT_WORD:
            words.append(WordEvent(event.text_position - 1, event.sample))
        index += 1
    return words
