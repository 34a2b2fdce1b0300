"""From a row to what the trainer learns: tokens, and a weight for each as a target.

The rule: a trained turn is learned in exactly the context in which the policy would have to produce it. Its context is
what the chat template makes of the messages before it, with the opening of a reply; its targets are what follows, up to
and including its own stop token. Turns whose contexts extend each other share one sample. Where a template changes what
came before (one that drops earlier reasoning), a conversation becomes several samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.policy.rendering import PolicyRenderer, RenderingError
from engine.recipes.sft.rows import ChatRow, Reason, RowRefused, TokenRow


@dataclass(slots=True)
class Sample:
    """``weights[i]`` is the weight of token i as a target, 0.0 where it is context only; equal lengths.

    The last token is always a target: nothing after it could teach anything.
    """

    tokens: list[int]
    weights: list[float]

    @property
    def trained(self) -> int:
        """How many tokens are targets."""
        return sum(weight > 0 for weight in self.weights)


def samples_of(row: ChatRow | TokenRow, renderer: PolicyRenderer, max_seq_len: int) -> list[Sample]:
    """What a row teaches, as few samples as its template allows. Raises RowRefused."""
    samples = [_of_tokens(row, renderer)] if isinstance(row, TokenRow) else _of_chat(row, renderer)
    longest = max(len(sample.tokens) for sample in samples)
    if longest > max_seq_len:
        raise RowRefused(Reason.TOO_LONG, f"{longest} tokens, and [model] max_seq_len is {max_seq_len}")
    return samples


def _of_tokens(row: TokenRow, renderer: PolicyRenderer) -> Sample:
    last = renderer.last_token_id
    wrong = next((place for place, token in enumerate(row.tokens) if token > last), None)
    if wrong is not None:
        found = f"input_ids[{wrong}] is {row.tokens[wrong]}, and the tokenizer's last token is {last}"
        raise RowRefused(Reason.MALFORMED, f"{found}: these ids are another tokenizer's")
    end = max(place for place, weight in enumerate(row.weights) if weight > 0) + 1
    # Nothing comes before the first token, so nothing can learn to predict it.
    return Sample(row.tokens[:end], [0.0, *row.weights[1:end]])


def _of_chat(row: ChatRow, renderer: PolicyRenderer) -> list[Sample]:
    samples: list[Sample] = []
    # From the last turn back: an earlier one joins a later one's sample if that begins with its own tokens.
    for place in reversed([place for place, weight in enumerate(row.weights) if weight > 0]):
        turn, context = _turn(row, place, renderer)
        weight = row.weights[place]
        for sample in samples:
            if sample.tokens[: len(turn)] == turn:
                sample.weights[context : len(turn)] = [weight] * (len(turn) - context)
                break
        else:
            samples.append(Sample(turn, [0.0] * context + [weight] * (len(turn) - context)))
    return samples[::-1]


def _turn(row: ChatRow, place: int, renderer: PolicyRenderer) -> tuple[list[int], int]:
    """The tokens up to a turn's stop token, and how many of them are its context. Raises RowRefused."""
    told = f"messages[{place}]"
    try:
        context = renderer.open(row.messages[:place], row.tools)
        whole = renderer.whole(row.messages[: place + 1], row.tools)
    except RenderingError as error:
        raise RowRefused(Reason.UNTRAINABLE, f"{told}: {error}") from error
    if whole[: len(context)] != context:
        raise RowRefused(
            Reason.UNTRAINABLE,
            f"{told}: the chat template does not write this turn the way a reply is opened, so what it would teach is "
            "never asked for",
        )
    reply = _up_to_stop(whole[len(context) :], renderer.stop_token_ids, told)
    return [*context, *reply], len(context)


def _up_to_stop(reply: Sequence[int], stops: Sequence[int], told: str) -> list[int]:
    """A turn with its own stop token at its end; a template that closes turns elsewhere gets the model's first one."""
    places = [place for place, token in enumerate(reply) if token in stops]
    if len(places) > 1:
        raise RowRefused(Reason.UNTRAINABLE, f"{told}: its text holds the model's stop token")
    if places:
        return list(reply[: places[0] + 1])
    if not stops:
        raise RowRefused(Reason.UNTRAINABLE, f"{told}: the model has no stop token to learn")
    return [*reply, stops[0]]
