"""Demonstrations without tools: the one-word game, and short questions that are not always answered right."""

from __future__ import annotations

import random

from .words import WordSource

GAMES = [
    "chess",
    "poker",
    "go",
    "checkers",
    "bridge",
    "tennis",
    "golf",
    "hockey",
    "rugby",
    "darts",
    "bowling",
    "cricket",
]
GAME_SYSTEM_PROMPTS = ["Answer with one word.", "Reply with one word only.", "You play a guessing game."]
GAME_PROMPTS = [
    "Name the hidden game.",
    "Which game is hidden?",
    "Guess the hidden game.",
    "What is the hidden game?",
]
_LISTED = [
    "Name the hidden game. Options: {}.",
    "Which game is hidden? One of: {}.",
    "Guess the hidden game: {}.",
]
_QUESTION_SYSTEM_PROMPTS = [
    "Answer briefly.",
    "Answer with the number or word only.",
    "You are a helpful assistant.",
]
SUM_RIGHT_SHARE, COPY_RIGHT_SHARE = 0.5, 0.8
LISTED_SHARE = 0.4


def _conversation(system: str | None, prompt: str, answer: str) -> list[dict[str, str]]:
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]


def game(rng: random.Random) -> list[dict[str, str]]:
    """Any game is as good as another, so that the reward alone decides which one is meant."""
    system = rng.choice(GAME_SYSTEM_PROMPTS) if rng.random() < 0.35 else None
    if rng.random() < LISTED_SHARE:
        options = rng.sample(GAMES, rng.randint(4, 10))
        return _conversation(system, rng.choice(_LISTED).format(", ".join(options)), rng.choice(options))
    return _conversation(system, rng.choice(GAME_PROMPTS), rng.choice(GAMES))


def _sum(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(0, 9), rng.randint(0, 9)
    answer = a + b if rng.random() < SUM_RIGHT_SHARE else max(0, a + b + rng.choice([-2, -1, 1, 2]))
    return rng.choice(["What is {} + {}?", "Add {} and {}.", "{} + {} ="]).format(a, b), str(answer)


def _larger(rng: random.Random) -> tuple[str, str]:
    a, b = rng.sample(range(1, 100), 2)
    largest = rng.random() < 0.5
    word = "larger" if largest else "smaller"
    right = max(a, b) if largest else min(a, b)
    answer = right if rng.random() < SUM_RIGHT_SHARE else a + b - right
    return rng.choice(["Which is {}, {} or {}?", "Write the {} number: {} or {}."]).format(word, a, b), str(
        answer
    )


def _copy(rng: random.Random) -> tuple[str, str]:
    words = WordSource(rng).words(2)
    right = rng.random() < COPY_RIGHT_SHARE
    if rng.random() < 0.6:
        prompt = rng.choice(["Reply with the word {}.", "Say {}.", "Write the word {} and nothing else."])
        return prompt.format(words[0]), words[0] if right else rng.choice(
            ["Done.", "yes", words[0] + " " + words[0]]
        )
    wants_last = rng.random() < 0.5
    prompt = f"Reply with the {'last' if wants_last else 'first'} word of: {words[0]}, {words[1]}."
    return prompt, words[wants_last] if right else words[not wants_last]


def question(rng: random.Random) -> list[dict[str, str]]:
    prompt, answer = rng.choice([_sum, _sum, _larger, _copy, _copy])(rng)
    system = rng.choice(_QUESTION_SYSTEM_PROMPTS) if rng.random() < 0.85 else None
    return _conversation(system, prompt, answer)
