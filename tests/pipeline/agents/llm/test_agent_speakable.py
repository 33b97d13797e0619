"""What a person would not say of a model's words: formulas as they are written, stage directions, and words
in a script that the voice cannot read."""

from __future__ import annotations

import pytest

from pipeline.agent import Say, UserSaid
from tests.support.http.chat import FakeChat, acts_of, context
from tests.support.http.llm import agent


@pytest.mark.parametrize("size", [1, 3, 7, 500])
@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        (r"The area is \(\pi r^2\), so we say.", "The area is pi r squared, so we say."),
        (r"That is $\frac{1}{2}$ of it, and $5 more.", "That is one half of it, and five dollars more."),
        ("[laughs] Well, *smiles* that is (sighs) fine.", "Well, that is fine."),
        ("*clears her throat, then smiles* Hello. [warmly] It is *good*.", "Hello. It is good."),
        ("It helps with a cold (coughing too) and *pauses*.", "It helps with a cold (coughing too) and."),
        ("We say مرحبا to greet you.", "We say to greet you."),
        ("See [our site](https://a.example) now.", "See our site now."),
    ],
)  # fmt: skip
async def test_what_nobody_says_is_not_said(written: str, spoken: str, size: int) -> None:
    pieces = [written[at : at + size] for at in range(0, len(written), size)]
    acts = await acts_of(agent(FakeChat(pieces)).join(context()), UserSaid("go on", 0.9))
    assert " ".join(act.text for act in acts if isinstance(act, Say)) == spoken


async def test_a_model_that_answers_in_another_script_is_told_the_language() -> None:
    chat = FakeChat(["مرحبا بك."], ["You are welcome."])
    acts = await acts_of(agent(chat).join(context()), UserSaid("thanks", 0.9))
    assert acts == [Say("You are welcome.")]
    assert "speaks en only" in chat.last[-1]["content"]


async def test_latin_names_stay_in_an_arabic_call() -> None:
    chat = FakeChat(["[يضحك] أرسلته على WhatsApp يا صديقي."])
    acts = await acts_of(agent(chat).join(context(language="ar")), UserSaid("نعم", 0.9))
    assert acts == [Say("أرسلته على WhatsApp يا صديقي.")]
