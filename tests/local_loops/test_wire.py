"""Parsing large bodies value by value gives what parsing them whole gives."""

from __future__ import annotations

import json

import pytest

from engine.local_loops.wire import parse_object


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        ' { "a" : 1 , "b" : [ ] } ',
        '{"data":[{"x":[1,2.5,null]},{"y":{"z":"}]"}}],"loss_fn":"ppo","c":{"d":[{"e":1}]}}',
        '{"data":[ {"a":1} , {"b":"\\u00e9"} ] , "n":-1e-3}',
        "[1,2]",
        '"text"',
    ],
)
def test_it_agrees_with_the_whole_parser(text: str) -> None:
    assert parse_object(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a"}',
        '{"a":1,}',
        '{"a":1} x',
        '{"data":[{"a":1}',
        '{"data":[{"a":1},]}',
        "{1:2}",
        '{"a":[{}}',
    ],
)
def test_it_refuses_what_the_whole_parser_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="char"):
        parse_object(text.encode())
