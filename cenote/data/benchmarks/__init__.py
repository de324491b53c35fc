"""Published data sets, with their exact splits."""

from .registry import Benchmark, benchmarks, describe_benchmarks, find_benchmark

__all__ = ["Benchmark", "benchmarks", "describe_benchmarks", "find_benchmark"]
