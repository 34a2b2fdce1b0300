"""The losses of the trainer, written once, on log-probabilities only.

How the server uses this package::

    loss = build_loss("ppo", {"clip_high_threshold": 1.3})      # LossConfigError on a bad name or config
    data = [loss.prepare(tokens, tensors) for tokens, tensors in datums]   # DatumError on a bad datum
    loss.check_batch(data)                                      # dpo: an even number of rows
    scores = backend.accumulate(
        weights, adapter, [d.row for d in data],
        lambda rows, s: loss.evaluate([data[i] for i in rows], [x.logprobs for x in s]).gradients,
        gradients, rows_together=loss.rows_together)
    result = loss.evaluate(data, [s.logprobs for s in scores])  # loss and metrics of the whole request
    outputs = [d.output(s.logprobs) for d, s in zip(data, scores)]   # aligned as the datum was

``result.tokens`` is the denominator to add to the optimizer step's; it is 0.0 where the request asked for
``skip_token_normalization``. :func:`mean_loss` gives the number to report.
"""

from engine.local_loops.losses.configs import LOSS_NAMES, LossConfigError
from engine.local_loops.losses.data import DatumError, PreparedDatum, wire_tensor
from engine.local_loops.losses.functions import Loss, build_loss, mean_loss

__all__ = [
    "LOSS_NAMES",
    "DatumError",
    "Loss",
    "LossConfigError",
    "PreparedDatum",
    "build_loss",
    "mean_loss",
    "wire_tensor",
]
