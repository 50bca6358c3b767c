"""What a matcher allows, forces and takes back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from offramp.errors import InvalidRequestError
from offramp.testing.models import CONTROLS, END_OF_TURN
from tests.grammar.grammars import VOCAB, allowed_ids, allowed_texts, compiled, feed, text_of, tokens
from tests.grammar.schemas import nested_definitions_are_shared, random_object


def test_end_tokens_are_allowed_exactly_where_the_answer_may_end() -> None:
    matcher = compiled(regex="ab+c?").matcher()
    assert allowed_texts(matcher) == {"a"}
    feed(matcher, "a")
    assert allowed_texts(matcher) == {"b"}
    feed(matcher, "b")
    assert allowed_texts(matcher) == {"b", "c", ""}
    assert not matcher.ended
    feed(matcher, "c")
    assert matcher.ended
    assert allowed_ids(matcher) == [END_OF_TURN]


def test_an_end_token_ends_it_and_more_may_be_asked() -> None:
    matcher = compiled(regex="ab?").matcher()
    feed(matcher, "a")
    assert not matcher.ended
    matcher.advance(END_OF_TURN)
    assert matcher.ended
    assert allowed_ids(matcher) == [END_OF_TURN]
    matcher.rewind(1)
    assert allowed_texts(matcher) == {"b", ""}


def test_control_tokens_and_rows_without_a_token_are_no_text() -> None:
    matcher = compiled(regex="(?s:.*)").matcher()
    assert len(matcher.allowed()) == VOCAB
    ids = allowed_ids(matcher)
    assert [token for token in ids if token < len(CONTROLS)] == [END_OF_TURN]
    assert max(ids) < VOCAB - 5
    matcher = compiled(choice=["<|im_end|>!"]).matcher()
    assert allowed_texts(matcher) == {"<"}


def test_tokens_of_several_letters_count() -> None:
    assert {"h", "he", "hell", "hello"} >= allowed_texts(compiled(choice=["hello", "help"]).matcher()) > {"h"}


def test_what_is_forced_is_what_the_tokenizer_makes_of_it() -> None:
    matcher = compiled(choice=["hello world"]).matcher()
    forced = matcher.forced(99)
    assert text_of(list(forced)) == "hello world"
    assert len(forced) < len("hello world")
    assert matcher.forced(2) == forced[:2]
    for token in forced:
        assert allowed_ids(matcher) == [token]
        matcher.advance(token)
    assert matcher.ended


def test_a_long_fixed_text_is_found_once() -> None:
    matcher = compiled(regex="[ab](hello){600}").matcher()
    looked, inner = 0, matcher._matcher

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def compute_ff_tokens(self) -> list[int]:
            nonlocal looked
            looked += 1
            return inner.compute_ff_tokens()

    matcher._matcher = Counting()  # type: ignore[assignment]
    matcher.advance(tokens("a")[0])
    written = b""
    while len(written) < 2500:
        (token, *_) = matcher.forced(32)
        assert allowed_ids(matcher)
        matcher.advance(token)
        written += text_of([token]).encode()
    assert written == b"hello" * (len(written) // 5)
    assert looked == 1
    matcher.advance(matcher.forced(32)[0])
    matcher.rewind(1)  # as verifying does
    matcher.forced(32)
    assert looked == 1
    matcher.rewind(1)
    matcher.advance(tokens("hello")[0])
    rest = text_of(list(matcher.forced(9999)))
    assert len(written) + len(rest) == 3000
    assert looked == 2


@pytest.mark.parametrize("seed", range(12))
def test_a_walk_that_is_taken_back_leaves_no_trace(seed: int) -> None:
    """Random paths down a tree, rewound each time, against a matcher that never went there."""
    rng = random.Random(seed)
    grammar = compiled(json=nested_definitions_are_shared(random_object(rng)))
    walked, straight = grammar.matcher(), grammar.matcher()
    for _ in range(25):
        for _ in range(rng.randint(0, 2)):
            depth = 0
            while depth < rng.randint(0, 5) and not walked.ended:
                walked.advance(rng.choice(allowed_ids(walked)))
                depth += 1
            walked.rewind(depth)
        assert allowed_ids(walked) == allowed_ids(straight)
        assert walked.forced(9) == straight.forced(9)
        assert walked.ended == straight.ended
        if straight.ended:
            break
        token = rng.choice(allowed_ids(straight))
        walked.advance(token)
        straight.advance(token)


def test_matchers_of_one_grammar_do_not_meet() -> None:
    grammar = compiled(choice=["ab", "cd"])
    first, second = grammar.matcher(), grammar.matcher()
    feed(first, "a")
    assert allowed_texts(first) == {"b"}
    assert allowed_texts(second) == {"a", "c"}


@pytest.mark.parametrize("seed", range(8))
def test_forks_and_questions_leave_no_trace(seed: int) -> None:
    """Random paths, some of them broken, asked about and followed by forks, against a matcher nobody asked."""
    rng = random.Random(seed)
    grammar = compiled(json=nested_definitions_are_shared(random_object(rng)))
    asked, quiet = grammar.matcher(), grammar.matcher()
    for _ in range(25):
        fork, path = asked.fork(), []
        while len(path) < 5 and not fork.ended:
            path.append(rng.choice(allowed_ids(fork)))
            fork.advance(path[-1])
        assert asked.follows(path) == len(path)
        broken = rng.randrange(len(path) + 1)
        rest = grammar.matcher() if asked.ended else asked.fork()
        for token in path[:broken]:
            rest.advance(token)
        wrong = [token for token in range(VOCAB) if token not in allowed_ids(rest)]
        assert asked.follows([*path[:broken], rng.choice(wrong), 9]) == broken
        assert allowed_ids(asked) == allowed_ids(quiet)
        assert asked.forced(9) == quiet.forced(9)
        assert asked.ended == quiet.ended
        if quiet.ended:
            break
        token = rng.choice(allowed_ids(quiet))
        asked.advance(token)
        quiet.advance(token)


def test_a_fork_goes_on_where_its_origin_stands_and_breaks_alone() -> None:
    matcher = compiled(choice=["hello", "help"]).matcher()
    feed(matcher, "hel")
    fork = matcher.fork()
    assert allowed_ids(fork) == allowed_ids(matcher)
    fork.advance(0)
    with pytest.raises(InvalidRequestError):
        fork.allowed()
    assert fork.follows([1]) == 0
    feed(matcher, "p")
    assert matcher.ended


def test_an_end_token_follows_where_the_answer_may_end() -> None:
    matcher = compiled(regex="ab?").matcher()
    assert matcher.follows([END_OF_TURN]) == 0
    feed(matcher, "a")
    [b] = [token for token in allowed_ids(matcher) if token != END_OF_TURN]
    assert matcher.follows([END_OF_TURN]) == 1
    assert matcher.follows([b, END_OF_TURN]) == 2


def test_a_forbidden_token_shows_at_the_next_question() -> None:
    matcher = compiled(regex="ab").matcher()
    matcher.advance(0)
    assert not matcher.ended
    with pytest.raises(InvalidRequestError, match="the grammar can't go on"):
        matcher.allowed()


def test_a_dead_end_says_so_where_it_stops() -> None:
    matcher = compiled(grammar='start: /[a-f]{6}/ ("x" /[^\\s\\S]/ | "y")').matcher()
    feed(matcher, "abcdef")
    assert allowed_texts(matcher) == {"x", "y"}
    feed(matcher, "x")
    with pytest.raises(InvalidRequestError, match="can't go on"):
        matcher.allowed()
