from __future__ import annotations

import pytest

from offramp.quality.words import contains_words, is_one_of, rouge_l_of_texts, same_but_spaces, words


def test_words_are_letters_and_digits_in_lower_case() -> None:
    assert words("It's 3.5%,\tO_K!") == ["it", "s", "3", "5", "o", "k"]
    assert words("Über Straße, 東京") == ["über", "straße", "東京"]
    assert words(" -- ") == []


@pytest.mark.parametrize(
    ("reference", "answer", "expected"),
    [
        ("police killed the gunman", "police kill the gunman", 3 / 4),
        ("police killed the gunman", "The gunman: police kill", 2 / 4),
        ("testing one two", "testing", 2 * 1 * (1 / 3) / (1 + 1 / 3)),
        ("testing one two", "TESTING -- One; three, two?", 2 * (3 / 4) / (3 / 4 + 1)),
        ("a b", "c d", 0.0),
        ("a b", "", 0.0),
        ("?", "!", 0.0),
    ],
)
def test_rouge_l_is_f1_of_recall_and_precision(reference: str, answer: str, expected: float) -> None:
    assert rouge_l_of_texts(reference, answer) == pytest.approx(expected)
    assert rouge_l_of_texts(answer, reference) == pytest.approx(expected)


def test_words_are_contained_as_a_whole_and_in_a_row() -> None:
    assert contains_words("The capital is: New   York.", "new york")
    assert not contains_words("The capital is Newer York", "new york")
    assert not contains_words("York is new", "new york")
    assert not contains_words("anything", "?")


def test_white_space_aside_texts_are_equal() -> None:
    assert same_but_spaces(" [IN:A [SL:B c ]\n ]", "[IN:A [SL:B c ] ]")
    assert not same_but_spaces("[IN:A]", "[in:a]")
    assert not same_but_spaces("ab", "a b")
    assert is_one_of(" b ", ("a", "b"))
    assert not is_one_of("a b", ("a", "b"))
    assert not is_one_of("", ())
