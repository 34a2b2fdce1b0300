"""The smallest episode: ask the model one question and score its reply."""

from pydantic import BaseModel, ConfigDict

from engine.episodes import Episode, Grading, Model, Sampling, Task


class AnswerTask(BaseModel):
    """One line of tasks.jsonl."""

    model_config = ConfigDict(extra="forbid")

    name: str
    instruction: str
    answer: str


async def ask(model: Model, instruction: str) -> str:
    """One question, one reply."""
    conversation = model.conversation()
    reply = await conversation.generate(messages=[{"role": "user", "content": instruction}])
    return (reply.content or "").strip()


class AnswerEpisode(Episode[AnswerTask, None]):
    """Reward 1 for the hidden answer, 0 for anything else."""

    grading_retries = 2  # grade() has no side effects, so it is safe to run again

    def __init__(self, task: Task[AnswerTask], options: None) -> None:
        super().__init__(task, options)
        self.answer: str | None = None  # scored as wrong if the model never replies

    async def run(self, sample: Sampling) -> None:
        self.answer = await ask(sample.model, self.task.value.instruction)

    async def grade(self, grading: Grading) -> float:
        return float(self.answer == self.task.value.answer)
