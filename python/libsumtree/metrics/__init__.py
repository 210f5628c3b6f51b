"""What a replay rank measures of itself: histograms, lines of JSON, and what they add up to.

Needs NumPy alone, and no MPI: the lines are read wherever the file is.
"""

from .histogram import Histogram
from .lines import SCHEMA, decode_line, encode_line, shard_path
from .reader import MetricsReader, read_metrics
from .sink import MetricsSink
from .summary import Summary, summarize
from .together import summarize_together

__all__ = [
    "SCHEMA",
    "Histogram",
    "MetricsReader",
    "MetricsSink",
    "Summary",
    "decode_line",
    "encode_line",
    "read_metrics",
    "shard_path",
    "summarize",
    "summarize_together",
]
