from baseten.loops import ServiceClient

training_client = ServiceClient().create_lora_training_client(
    base_model="loops-demo-1m",
    with_sampler=True,
    name="rl-example",  # without a name, the run shows up as the base model ID
)
sampling_client = training_client.save_weights_and_get_sampling_client()

import asyncio

from baseten.loops import ModelInput, SamplingParams

tokenizer = training_client.get_tokenizer()
prompt_ids = tokenizer.encode("What is 17 times 24?", add_special_tokens=False)
group_size = 4

prompt = ModelInput.from_ints(prompt_ids)


async def rollout():
    return await asyncio.gather(
        *[
            sampling_client.sample_async(
                prompt,
                sampling_params=SamplingParams(temperature=1.0, top_p=0.95),
            )
            for _ in range(group_size)
        ]
    )


responses = asyncio.run(rollout())

async def rollout():
    return await asyncio.gather(
        *[
            sampling_client.sample_async(
                prompt,
                sampling_params=SamplingParams(temperature=1.0, top_p=0.95),
                affinity_key="rollout-group-0",
            )
            for _ in range(group_size)
        ]
    )

sequences = [response.sequences[0] for response in responses]
scores = [1.0 if "408" in tokenizer.decode(seq.tokens) else 0.0 for seq in sequences]

mean = sum(scores) / len(scores)
std = (sum((score - mean) ** 2 for score in scores) / len(scores)) ** 0.5
advantages = [(score - mean) / std if std else 0.0 for score in scores]
print(f"mean reward {mean:.2f} over {len(scores)} completions")

from baseten.loops import Datum, TensorData

prompt_len = len(prompt_ids)


def build_datum(sequence, advantage):
    tokens = prompt_ids + sequence.tokens
    L = len(tokens)
    return Datum(
        model_input=ModelInput.from_ints(tokens),
        loss_fn_inputs={
            "logprobs": TensorData(
                data=[0.0] * prompt_len + sequence.logprobs, dtype="float32", shape=[L]
            ),
            "advantages": TensorData(
                data=[0.0] * prompt_len + [advantage] * len(sequence.tokens),
                dtype="float32",
                shape=[L],
            ),
        },
    )


datums = [
    build_datum(sequence, advantage)
    for sequence, advantage in zip(sequences, advantages)
]

from baseten.loops import AdamParams

fb = training_client.forward_backward(
    data=datums,
    loss_fn="ppo",  # or "cispo", "importance_sampling", "dppo", "dro"
).result(timeout=600.0)

training_client.optim_step(AdamParams(learning_rate=1e-4)).result(timeout=600.0)

sampling_client = training_client.save_weights_and_get_sampling_client("default")

sampling_client.close()
training_client.close()
