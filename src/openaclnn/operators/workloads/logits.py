"""Workloads of cross entropy from logits and of its gradient, which no benchmark times by themselves."""

PATTERN = "rows"
