// The built-in operators, one family a header, and their adapters. What an operator is: operator.cuh.
#pragma once
#include "operator_adapters.cuh"
#include "operator_exponential.cuh"
#include "operator_extreme.cuh"
#include "operator_masked_moments.cuh"
#include "operator_mean_variance.cuh"
#include "operator_sum.cuh"
#include "operator_truth.cuh"
