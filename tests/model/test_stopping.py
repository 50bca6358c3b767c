"""Stop strings: the streamed result equals a search of the whole text, and no part of a stop is ever shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offramp.model.stopping import StopMatcher


def naive_cut(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the text is cut: by the stop that is complete first, the longest of those that end together."""
    for end in range(len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return end - max(lengths)
    return None


def run(stops: tuple[str, ...], pieces: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    shown = []
    for piece in pieces:
        text, stopped = matcher.push(piece)
        shown.append(text)
        if stopped:
            break
    shown.append(matcher.flush())
    return shown, matcher.stopped


STOPS = st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4).map(tuple)
PIECES = st.lists(st.text("ab\n", max_size=4), max_size=20)


@given(stops=STOPS, pieces=PIECES)
def test_equals_a_search_of_the_whole_text(stops: tuple[str, ...], pieces: list[str]) -> None:
    text = "".join(pieces)
    cut = naive_cut(text, stops)
    shown, stopped = run(stops, pieces)
    assert stopped == (cut is not None)
    assert "".join(shown) == (text if cut is None else text[:cut])


@given(stops=STOPS, pieces=PIECES)
def test_shows_all_that_is_decided_and_nothing_else(stops: tuple[str, ...], pieces: list[str]) -> None:
    matcher = StopMatcher(stops)
    seen = shown = ""
    for piece in pieces:
        text, stopped = matcher.push(piece)
        seen, shown = seen + piece, shown + text
        if stopped:
            return
        held = seen[len(shown) :]
        longest = max((n for stop in stops for n in range(len(stop)) if seen.endswith(stop[:n])), default=0)
        assert len(held) == longest


def test_no_part_of_the_stop_is_shown_b28() -> None:
    shown, stopped = run(("DEFGHIJ",), [" ABC", "DE", "FGH", "IJ", "K"])
    assert (shown, stopped) == ([" ABC", "", "", "", ""], True)
    shown, stopped = run(("DEFGHIJ",), [" ABC", "DE", "FGH", "IX"])
    assert (shown, stopped) == ([" ABC", "", "", "DEFGHIX", ""], False)
    shown, stopped = run(("DEFGHIJ",), [" ABC", "DE"])
    assert (shown, stopped) == ([" ABC", "", "DE"], False)


def test_overlapping_stops() -> None:
    assert run(("abcd", "bc"), ["xa", "bcd"]) == (["x", "a", ""], True)
    assert run(("bc", "abc"), ["xab", "c"]) == (["x", "", ""], True)
    assert run(("aab",), ["aa", "a", "b!"]) == (["", "a", "", ""], True)


def test_no_stops_holds_nothing() -> None:
    assert run((), ["a", "b"]) == (["a", "b", ""], False)
