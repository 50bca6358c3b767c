"""Clients take turns, the urgent go first, each client's own order is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offramp.serve.fair_queue import FairQueue


def drained(queue: FairQueue[str]) -> str:
    return " ".join(queue.take() for _ in range(len(queue)))


def test_turns() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.put(name, priority=0, client=name[0])
    assert queue.take() == "a1"
    queue.put("d1", priority=0, client="d")
    queue.put("u1", priority=-1, client="a")
    queue.put("z1", priority=1, client="z")
    assert queue.first() == "u1"
    assert drained(queue) == "u1 b1 c1 a2 d1 b2 a3 z1"


def test_a_client_that_comes_back_waits_for_its_turn() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.put("a1", priority=0, client="a")
    assert queue.take() == "a1"
    queue.put("b1", priority=0, client="b")
    queue.put("a2", priority=0, client="a")
    assert drained(queue) == "b1 a2"


Move = tuple[str, str, int]

MOVES = st.lists(st.tuples(st.sampled_from(["put", "take", "remove"]), st.sampled_from("abc"), st.integers(0, 2)))


@given(MOVES)
def test_nothing_is_lost_and_nobody_waits_for_more_than_one_of_another(moves: list[Move]) -> None:
    queue: FairQueue[tuple[str, int, int]] = FairQueue()
    model: list[tuple[str, int, int]] = []  # in the order of arrival
    for number, (move, client, priority) in enumerate(moves):
        if move == "put":
            item = (client, priority, number)
            queue.put(item, priority=priority, client=client)
            model.append(item)
        elif model:
            item = queue.take() if move == "take" else model[number % len(model)]
            if move == "take":
                urgent = [each for each in model if each[1] == min(each[1] for each in model)]
                assert item == next(each for each in urgent if each[0] == item[0])
            else:
                queue.remove(item)
            model.remove(item)
        assert set(queue) == set(model)
        assert all(item in queue for item in model)
    clients = [(item[1], item[0]) for item in (queue.take() for _ in range(len(queue)))]
    for priority in range(3):
        turns = [client for level, client in clients if level == priority]
        check_turns(turns)


def check_turns(turns: list[str]) -> None:
    """Between two services of one client every other client that still waits is served once."""
    for start, client in enumerate(turns):
        after = turns[start + 1 :]
        if client in after:
            between, rest = after[: after.index(client)], after[after.index(client) :]
            assert set(rest) - {client} <= set(between)
            assert len(set(between)) == len(between)
