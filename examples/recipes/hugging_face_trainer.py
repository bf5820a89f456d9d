"""transformers' Trainer: one line before it is made. The model is a small Llama with random weights; `from_pretrained` takes the same line.

python examples/recipes/hugging_face_trainer.py
"""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import openaclnn.torch as fast


def train(steps: int = 3, **more: object) -> list[float]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32003, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    print(fast.apply_to(model))  # the line to add
    texts = torch.randint(1000, (16, 24))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=1e-2,
            logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, **more,
        )  # fmt: skip
        data = [{"input_ids": text, "labels": text} for text in texts]
        trainer = Trainer(model, arguments, train_dataset=data)
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    print("losses", *train())
