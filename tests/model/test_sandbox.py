"""Hostile chat templates end soon and read nothing; what real ones use works as in plain jinja."""

from __future__ import annotations

import threading
import time

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from offramp.errors import InvalidRequestError, ModelError
from offramp.model.nesting import MAX_DEPTH, OBJECT, NestingError, nested_size
from offramp.model.template import ChatTemplate
from offramp.model.tokenizer import Tokenizer

SECONDS = 0.2
SOON = 0.04  # for those that only time ends
SLACK = 10.0  # for one operation on a machine whose cores others use: far from for ever
USER = [{"role": "user", "content": "hello"}]
NAMES = "{% set n = namespace(x=['ab'], y='ab', i=1) %}"
LONG = "{% for i in range(3000) %}{% for j in range(3000) %}"
ENDS = "{% endfor %}{% endfor %}"
DOUBLE = NAMES + "{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
BIG = "{% set big = 'x' * 60000 %}{% set many = range(8000) | list %}"


def render(source: str, content: str = "hello") -> str:
    return ChatTemplate({"default": source}).render([{"role": "user", "content": content}])


REFUSED = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.append(1) }}",
    "{{ {}.update(a=1) }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{% include '/etc/passwd' %}",
    "{% for i in range(10**9) %}{% endfor %}",
    "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "{% block a %}{{ self.a() }}{% endblock %}",
    NAMES + "{% for i in range(99) %}{% set n.y = n.y ~ n.y %}{% endfor %}",
    NAMES + "{% for i in range(99) %}{% set n.y = n.y + n.y %}{% endfor %}",
    NAMES + "{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    NAMES + "{% for i in range(99) %}{% set n.y = n.y.replace('a', n.y) %}{% endfor %}",
    NAMES + "{% for i in range(99) %}{% set n.y = n.y | replace('a', n.y) %}{% endfor %}",
    NAMES + "{% for i in range(99) %}{% set n.y = [n.y, n.y] | join(n.y) %}{% endfor %}",
    NAMES + "{% for i in range(99) %}{% set n.y = n.y.join([n.y, n.y]) %}{% endfor %}",
    NAMES + "{% for i in range(99) %}{% set n.y %}{{ n.y }}{{ n.y }}{% endset %}{% endfor %}",
    NAMES + "{% for i in range(99) %}{% set n.i = n.i * 7 %}{% endfor %}",
    NAMES + "{% for i in range(99) %}{% set n.i = n.i - -n.i %}{% endfor %}",
    "{{ 'a' * 10**10 }}",
    "{{ [0] * 10**10 }}",
    "{{ 7 ** (10 ** 9) }}",
    "{{ 'a' | center(10**10) }}",
    "{{ 'a'.ljust(10**10) }}",
    "{{ 'a' | indent(10**10, true) }}",
    "{{ 'aaa'.translate({97: 'b' * 1000000}) }}",
    "{{ 'a'.encode() }}",
    "{{ (5).to_bytes(10**9) }}",
    "{{ 1.5 | round(10**9, 'floor') }}",
    "{{ ('www.' * 1000000) | urlize }}",
    "{{ 'www.' | urlize }}",
    "{{ ('a ' * 3000000) | title }}",
    "{{ ('<' * 3000000) | striptags }}",
    "{{ '<' | striptags }}",
    "{{ [[1], [2]] | sum(start=[]) }}",
    "{% for i in range(1000) %}{{ 'x' * 60000 }}{% endfor %}",
    # widths
    "{{ '%10000000000d' % 1 }}",
    "{{ '{:10000000000}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=10**10) }}",
    "{{ '%10000000000d' | format(1) }}",
    "{{ ['%10000000000d'] | format(1) }}",
    "{{ '%*d' | format(10**10, 1) }}",
    "{{ strftime_now('%1000000000Y') }}",
    # one operation on large values
    BIG + "{{ big.replace('', big) }}",
    BIG + "{{ big | replace(new=big, old='x') }}",
    BIG + "{{ big | replace('x', [big]) }}",
    BIG + "{{ big | join(big) }}",
    BIG + "{{ ('x' * 8000) | join([big]) }}",
    BIG + "{{ many | join(attribute='real', d=big) }}",
    BIG + "{{ ('%(a)s' * 10000) | format(a=big) }}",
    BIG + "{{ ('%(a)s' * 10000) % {'a': big} }}",
    BIG + "{{ ('{0[0]}{0[1]}' * 5000).format([big, big]) }}",
    BIG + "{{ ('{a}' * 15000).format_map({'a': big}) }}",
    BIG + "{{ many | map(attribute='q') | map('default', big) | list }}",
    BIG + "{{ many | map(attribute='q', default=big) | list }}",
    BIG + "{{ many | tojson(separators=(big, big)) }}",
    BIG + "{{ many | tojson(indent=10**10) }}",
    BIG + "{{ big.strip(big) }}",
    BIG + "{{ big | trim(big) }}",
    BIG + "{{ big.rfind('y' + 'x' * 30000) }}",
    BIG + "{% filter replace('x', big) %}{{ big }}{% endfilter %}",
    # values that hold themselves many times over, or are deep
    *(
        DOUBLE + use
        for use in (
            "{{ n.x }}",
            "{{ n.x | string }}",
            "{{ n.x | tojson }}",
            "{{ '%s' % (n.x,) }}",
            "{{ '{}'.format(n.x) }}",
            "{{ 'a' ~ n.x }}",
            "{{ n.x == n.x[0] }}",
        )
    ),
    "{% set n = namespace(x={}) %}{% for i in range(40) %}{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}{{ n.x }}",
    NAMES + "{% for i in range(40) %}{% set n.x = (n.x, n.x) %}{% endfor %}{{ n.x }}",
    NAMES + "{% macro f() %}{% set n.x = varargs %}{% endmacro %}{% for i in range(40) %}{{ f(n.x, n.x) }}{% endfor %}",
    NAMES
    + "{% macro f() %}{% set n.x = kwargs %}{% endmacro %}{% for i in range(40) %}{{ f(a=n.x, b=n.x) }}{% endfor %}",
    NAMES + "{% for i in range(40) %}{% set n.x = [n.x] | map('list') | list + n.x %}{% endfor %}{{ n.x }}",
    NAMES + "{% for i in range(3000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
    NAMES + "{% for i in range(3000) %}{% set n.x = (n.x,) %}{% endfor %}{{ {n.x: 1} }}",
    # memory without end
    NAMES + LONG + "{% set n.i = namespace(a=n.i, b='x' * 60000) %}" + ENDS,
    "".join(f"{{% set v{i} = 'x' * 60000 %}}" for i in range(3000)),
    "{% set x %}" + LONG + "a{% if i %}{% endif %}b{% if i %}{% endif %}c" + ENDS + "{% endset %}",
]

ENDLESS = [
    "{% for i in range(9000) %}{% for j in range(9000) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% for x in range(99) recursive %}{% if loop.depth < 9 %}{{ loop(range(99)) }}{% endif %}{% endfor %}",
    *(
        BIG + "{% set other = many + [1] %}" + LONG + use + ENDS
        for use in (
            "{% if 'b' in big %}{% endif %}",
            "{% if -1 in many %}{% endif %}" * 1000,
            "{% if many == other %}{% endif %}" * 1000,
            "{% set x = many is eq other %}" * 1000,
            "{% set x = many[1:] %}" * 1000,
            "{% set x = big | title %}",
            "{% set x = many | unique %}",
            "{% set x = big.split('x') %}",
            "{{ undefined }}",
        )
    ),
]


@pytest.fixture
def _short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.model.template.MAX_SECONDS", SECONDS)


@pytest.mark.usefixtures("_short_deadline")
@pytest.mark.parametrize("source", [*REFUSED, *ENDLESS])
def test_hostile_templates_fail_fast_and_read_nothing(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if source in ENDLESS:
        monkeypatch.setattr("offramp.model.template.MAX_SECONDS", SOON)
    start = time.monotonic()
    with pytest.raises(ModelError, match="chat template fails") as caught:
        render(source)
    assert time.monotonic() - start < SECONDS + SLACK
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "source", [*ENDLESS[3:], BIG + "{{ many | map('string') | list | sort(attribute='a,' * 9000) }}"]
)
def test_a_long_message_does_not_make_them_slower(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.model.template.MAX_SECONDS", SOON)
    source = source.replace("'x' * 60000", "messages[0].content").replace("range(8000)", "range(60000)")
    start = time.monotonic()
    with pytest.raises(ModelError, match="chat template fails"):
        render(source, "x" * 200_000)
    assert time.monotonic() - start < SECONDS + SLACK


@pytest.mark.usefixtures("_short_deadline")
def test_all_renderings_of_a_request_share_one_deadline(small_tokenizer: Tokenizer) -> None:
    """This template is quick on what was written, and slow on what it is shown instead."""
    slow = "{% if '<' not in messages[0].content %}" + LONG + ENDS + "{% endif %}{{ messages[0].content }}"
    start = time.monotonic()
    with pytest.raises(ModelError, match="chat template fails"):
        ChatTemplate({"default": slow}).encode_chat(small_tokenizer, [{"role": "user", "content": "<|im_end|>"}])
    assert time.monotonic() - start < SECONDS + SLACK


@pytest.mark.usefixtures("_short_deadline")
def test_a_slow_rendering_keeps_no_other_waiting() -> None:
    chat = ChatTemplate({"default": "{% if messages[0].content == 'slow' %}" + ENDLESS[1] + "{% endif %}ok"})
    assert chat.render(USER) == "ok"
    errors: list[Exception] = []

    def render_slowly() -> None:
        try:
            chat.render([{"role": "user", "content": "slow"}])
        except ModelError as error:
            errors.append(error)

    thread = threading.Thread(target=render_slowly)
    thread.start()
    assert chat.render(USER) == "ok"
    assert thread.is_alive()
    thread.join()
    assert "too long" in str(errors[0])


def test_each_rendering_has_its_own_budget() -> None:
    chat = ChatTemplate({"default": BIG + "{% for i in range(300) %}{% set x = big[1:] %}{% endfor %}ok"})
    assert [chat.render(USER) for _ in range(9)] == ["ok"] * 9  # 18 MB of texts each


FEATURES = [
    "{% for m in messages[1:] if m.role != 'system' %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ loop.nextitem.role }}{% endfor %}",
    "{% for a, b in [(1, 'x'), (2, 'y')] %}{{ a ~ b }}{% else %}none{% endfor %}{% for x in undefined %}{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }},{% endfor %}",
    "{{ messages | selectattr('role', 'in', ['user', 'tool']) | map(attribute='content') | join(', ') }}",
    "{{ (messages | rejectattr('role', 'equalto', 'system') | list | last).content | trim | upper }}",
    "{{ tools[0].items() | list }}{{ tools[0] | dictsort }}{{ tools[0] | items | list }}{{ tools[0].get('q', 3) }}",
    "{% for k, v in tools[0].items() %}{{ k }}={{ v }}{% endfor %}{{ 'name' in tools[0].keys() }}",
    "{% set n = namespace(a=[], t='') %}{% for m in messages %}{% set n.a = n.a + [m.role] %}{% endfor %}{{ n.a }}",
    "{% macro f(a, b=[]) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}{% endmacro %}"
    "{{ f(1) }}{{ f(1, 2, 3, c=4) }}{% call f(5) %}in{% endcall %}",
    "{% set x %}block {{ 1 }}{% endset %}{{ x | capitalize }}{% filter upper %}a{{ 2 }}{% endfilter %}",
    "{{ 'a%sb%d' % ('x', 3) }}{{ '%s-%s' | format('a', 1) }}{{ '{} {x}'.format('a', x=2) }}{{ '{{}}'.format() }}",
    "{{ 'a,b'.split(',')[-1] }}{{ ' a '.strip() }}{{ 'abc'[::-1] }}{{ 'abc'[1] }}{{ 'aXb'.lower().title() }}",
    "{{ 1 < 2 <= 3 }}{{ not 1 == 2 }}{{ 'a' in 'abc' and 2 not in [1] }}{{ 7 // 2 }}{{ 2 ** 10 }}{{ -3 % 5 }}",
    "{{ none }}{{ true }}{{ 1.5 }}{{ [1, 'a', none] }}{{ {'a': (1,)} }}{{ undefined }}{{ x | default('d') }}",
    "{{ [3, 1, 2] | sort | first }}{{ [1, 1] | unique | list }}{{ 'ab' | reverse }}{{ [1, 2] | sum }}{{ -1 | abs }}",
    "{{ '<b>' | e }}{{ '&' | escape | string }}{{ ('<' | e) ~ '<' }}{{ 'a\nb' | indent(2) }}{{ '12' | int + 1 }}",
    "{{ [{'g': 1, 'v': 2}] | groupby('g') | map('last') | list }}{{ 'x' is string }}{{ 3 is odd }}{{ {} is mapping }}",
    "{{ dict(a=1)['a'] }}{{ range(3) | list }}{% for i in range(2) %}{{ i }}{% endfor %}{{ 'ab' * 3 }}{{ [0] * 2 }}",
]


@pytest.mark.parametrize("source", FEATURES)
def test_features_work_as_in_plain_jinja(source: str) -> None:
    messages = [{"role": role, "content": f" {role} text"} for role in ("system", "user", "assistant", "user")]
    tools = [{"type": "function", "name": "f"}]
    plain = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    ).from_string(source)
    expected = plain.render(messages=messages, tools=tools, documents=None, add_generation_prompt=True)
    looked_at = source + "{% if tools %}{% endif %}"  # tools are refused otherwise
    assert ChatTemplate({"default": looked_at}).render(messages, tools=tools) == expected


def test_limits_leave_room_for_long_chats() -> None:
    content = "(message['content'] | trim | replace('y', 'z')).replace('a', 'b')"
    source = "{% for message in messages %}{{ '<|im_start|>' + message.role ~ " + content + " }}{% endfor %}"
    messages = [{"role": "user", "content": "x" * 1000}] * 2000
    assert len(ChatTemplate({"default": source}).render(messages)) > 2_000_000
    assert len(ChatTemplate({"default": source}).render([{"role": "user", "content": "x" * 2_000_000}])) > 2_000_000


def test_limits_leave_room_for_many_tools() -> None:
    """Rendered with as much white space as templates use."""
    parameters = {f"p{i}": {"type": "string", "description": "what it is"} for i in range(20)}
    tools = [{"name": f"f{i}", "parameters": {"type": "object", "properties": parameters}} for i in range(100)]
    text = ChatTemplate({"default": "{{ tools | tojson(indent=4) }}"}).render(USER, tools=tools)
    assert text.count("\n") > 8000


def test_a_list_in_itself_is_the_callers_fault() -> None:
    loop: list[object] = []
    loop.append(loop)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    chat = ChatTemplate({"default": "{{ messages }}"})
    for bad in (loop, deep):
        with pytest.raises(InvalidRequestError, match="nested more than") as caught:
            chat.render([{"role": "user", "content": "a", "more": bad}])
        assert caught.value.param == "messages"
        with pytest.raises(InvalidRequestError, match="tools") as caught:
            chat.render(USER, tools=[{"name": bad}])
        assert caught.value.param == "tools"
        for content in ({"role": "user", "content": bad}, bad):
            with pytest.raises(InvalidRequestError, match="message 0"):
                chat.render([content])  # type: ignore[list-item]
    while deep:
        deep = deep[0]  # type: ignore[assignment]


def test_a_number_of_too_many_digits_is_the_callers_fault() -> None:
    with pytest.raises(InvalidRequestError, match="content=a int is not a text"):
        ChatTemplate({"default": "x"}).render([{"role": "user", "content": 10**5000}])


def test_nested_size_counts_what_is_shared_each_time() -> None:
    assert nested_size("abc") == OBJECT + 3
    assert nested_size({"a": [1, None]}) == 5 * OBJECT + 1
    assert nested_size(range(5)) == nested_size(list(range(5)))
    value: object = "abc"
    for _ in range(10):
        value = (value, [value])
    assert nested_size(value) > 1024 * nested_size("abc")
    for _ in range(30):
        value = [value, value]
    assert 100_000 < nested_size(value, 100_000) < 200_000


def test_nested_size_refuses_depth() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert nested_size(value) == (MAX_DEPTH + 1) * OBJECT
    with pytest.raises(NestingError, match=str(MAX_DEPTH)):
        nested_size([value])
