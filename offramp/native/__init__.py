"""The CPU executor: C++ kernels behind `LayerExecutor`."""

from offramp.native.executor import NativeExecutor, build_executor, executor_over, kernel_paths
from offramp.native.threads import default_threads

__all__ = ["NativeExecutor", "build_executor", "default_threads", "executor_over", "kernel_paths"]
