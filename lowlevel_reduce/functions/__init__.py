"""The public functions of one call, a family a file; each is `reduce` with the name of its operator filled in."""

from lowlevel_reduce.functions.exponentials import logsumexp, softmax_stats
from lowlevel_reduce.functions.extremes import max, min, minmax
from lowlevel_reduce.functions.indices import argmax, argmin
from lowlevel_reduce.functions.moments import mean_var, std, var
from lowlevel_reduce.functions.norms import dot, norm, sum_squares
from lowlevel_reduce.functions.sums import mean, prod, sum
from lowlevel_reduce.functions.truth import all, any, count_nonzero

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "dot",
    "logsumexp",
    "max",
    "mean",
    "mean_var",
    "min",
    "minmax",
    "norm",
    "prod",
    "softmax_stats",
    "std",
    "sum",
    "sum_squares",
    "var",
]
