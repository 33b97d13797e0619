"""Adds vowel signs to Arabic text for espeak-ng, which adds none: it reads "خمسة وعشرون" as "khmst
wʕshruun", which is unintelligible.

The words that the server itself writes (numbers, money, dates, units, its phrases) and those that open and
close most calls get vowel signs, for this engine only, since a transcript with vowel signs is hard to
read."""

from __future__ import annotations

import re
from typing import Final

_MARKS: Final = dict.fromkeys((0x0640, 0x0670, *range(0x064B, 0x0660)))
_SHORT_VOWELS: Final = re.compile(r"[\u064c-\u0650]")  # without tanwin fath (-an), which is usually written
_WORD: Final = re.compile(r"[\u0620-\u065f\u0670]+")
_AND: Final = "و"

_WORDS: Final = """
صِفْر وَاحِد وَاحِدَة اِثْنَان اِثْنَتَان اِثْنَيْن اِثْنَتَيْن ثَلاثَة ثَلاث أَرْبَعَة أَرْبَع خَمْسَة خَمْس سِتَّة سِتّ سَبْعَة سَبْع
ثَمانِيَة ثَمان تِسْعَة تِسْع عَشَرَة عَشَر أَحَد إِحْدَى اِثْنَا اِثْنَتَا عِشْرُون ثَلاثُون أَرْبَعُون خَمْسُون سِتُّون سَبْعُون
ثَمانُون تِسْعُون عِشْرِين ثَلاثِين أَرْبَعِين خَمْسِين سِتِّين سَبْعِين ثَمانِين تِسْعِين مِئَة مِئَتَان مِئَتَا مِئَتَيْن
ثَلاثُمِئَة أَرْبَعُمِئَة خَمْسُمِئَة سِتُّمِئَة سَبْعُمِئَة ثَمانُمِئَة تِسْعُمِئَة أَلْف أَلْفَان أَلْفَا أَلْفَيْن آلاف أَلْفاً
مِلْيُون مِلْيُونَان مِلْيُونَا مَلايِين مِلْيُوناً مِلْيَار مِلْيَارَان مِلْيَارَات نِصْف ثُلْث رُبْع
رِيَال رِيَالان رِيَالات رِيَالاً دِرْهَم دِرْهَمَان دَرَاهِم دِرْهَماً دُولَار دُولَارَان دُولَارَات دُولَاراً دِينَار دِينَارَان
دَنَانِير دِينَاراً جُنَيْه جُنَيْهَان جُنَيْهَات جُنَيْهاً هَلَلَة هَلَلَتَان هَلَلات سِنْت سِنْتَان سِنْتَات سِنْتاً قِرْش قُرُوش قِرْشاً
فِلْس فُلُوس فِلْساً سَاعَة سَاعَتَان سَاعَات دَقِيقَة دَقِيقَتَان دَقَائِق ثَانِيَة ثَانِيَتَان دَرَجَة دَرَجَات مِئَوِيَّة مِتْر أَمْتَار
كِيلُومِتْر كِيلُومِتْرَات كِيلُومِتْراً كِيلُوغِرَام كِيلُوغِرَامَات غِرَام غِرَامَات لِتْر لِتْرَات نُقْطَة فَاصِلَة شَرْطَة زَائِد نَاقِص
بِالمِئَة رَقْم عَام إِلَى صَبَاحاً مَسَاءً السَاعَة الوَاحِدَة الثَانِيَة الثَالِثَة الرَابِعَة الخَامِسَة السَادِسَة السَابِعَة
الثَامِنَة التَاسِعَة العَاشِرَة الحَادِيَة النِصْف الرُبْع الأَوَّل الثَانِي الثَالِث الرَابِع الخَامِس السَادِس السَابِع الثَامِن
التَاسِع العَاشِر الحَادِي العِشْرُون الثَلاثُون يَنَايِر فِبْرَايِر مَارِس أَبْرِيل مَايُو يُونْيُو يُولْيُو أَغُسْطُس سِبْتَمْبِر أُكْتُوبَر
نُوفَمْبِر دِيسَمْبِر الأَحَد الاِثْنَيْن الثُلاثَاء الأَرْبِعَاء الخَمِيس الجُمُعَة السَبْت اليَوْم غَداً يَوْم
السَلامُ عَلَيْكُم مَرْحَباً أَهْلاً سَهْلاً شُكْراً نَعَم مِنْ فَضْلِك لَحْظَة مَعَ السَلامَة عُذْراً هَلْ مَوْعِد مَوْعِدُك هَاتِف هَاتِفُك
اِسْم اِسْمُك حَدَثَت مُشْكِلَة فَنِّيَّة يُرْجَى الاِتِّصَال بِنَا لاحِقاً تَفَضَّل أَكْمِل يُمْكِن لأَحَد أَنْ يُجِيب عَلَى مُكَالَمَتِك
الآن عَنْ هُوَ هِيَ مَتَى أَيْنَ كَيْفَ حَالُك صَحِيح
"""


def _plain(word: str) -> str:
    return word.translate(_MARKS)


_VOWELLED: Final = {_plain(word): word for word in _WORDS.split()}


def vowelled(sentence: str) -> str:
    """Adds vowel signs to the known words of `sentence`, except words that have some. The number of words and
    the spaces stay the same."""
    return _WORD.sub(lambda match: _vowelled(match[0]), sentence)


def _vowelled(word: str) -> str:
    if _SHORT_VOWELS.search(word):
        return word
    plain = _plain(word)
    if plain in _VOWELLED:
        return _VOWELLED[plain]
    rest = plain.removeprefix(_AND)
    return f"{_AND}َ{_VOWELLED[rest]}" if rest != plain and rest in _VOWELLED else word
