"""What is run: prompts with, where there are any, references and tests to judge answers by."""

from offramp.bench.workloads.item import CodeTest, Item, Refused, Workload
from offramp.bench.workloads.read import read_workload, shipped_workload

__all__ = ["CodeTest", "Item", "Refused", "Workload", "read_workload", "shipped_workload"]
