"""Published data sets, with their exact splits."""

from .registry import Benchmark, benchmarks, find_benchmark

__all__ = ["Benchmark", "benchmarks", "find_benchmark"]
