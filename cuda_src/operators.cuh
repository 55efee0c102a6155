// The built-in operators, one family a header, and their adapters. What an operator is: operator.cuh.
#pragma once
#include "operators/operator_adapters.cuh"
#include "operators/operator_exponential.cuh"
#include "operators/operator_extreme.cuh"
#include "operators/operator_masked_moments.cuh"
#include "operators/operator_mean_variance.cuh"
#include "operators/operator_sum.cuh"
#include "operators/operator_truth.cuh"
