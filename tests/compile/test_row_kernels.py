"""The six kernels of each built-in row operation: they compile, and no register is spilt.

Operations, types and architectures meet pairwise: all with all are 1,200 kernels, which would take seven minutes. A
kernel spills if all of its attempts do, so the one that leaves most registers tells.
"""

import pytest

from lowlevel_reduce.compiler import supported_architectures
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.rowops import exponentials, losses, norms, quantisation
from lowlevel_reduce.rowops.family import row_family

try:
    ARCHITECTURES = [each for each in supported_architectures() if each in ("sm_80", "sm_90", "sm_100")]
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

OPERATIONS = {
    "softmax": exponentials.softmax_of(log=False, causal=False, lengths=False, scaled=False),
    "causal log_softmax": exponentials.softmax_of(log=True, causal=True, lengths=True, scaled=True),
    "softmax_gradient": exponentials.softmax_gradient_of(log=False),
    "log_softmax_gradient": exponentials.softmax_gradient_of(log=True),
    "cross_entropy": losses.cross_entropy_of(counts=True),
    "cross_entropy of weights and smoothed labels": losses.cross_entropy_of(counts=True, weight=True, smooth=True),
    "cross_entropy_gradient": losses.cross_entropy_gradient_of(),
    "cross_entropy_gradient of both": losses.cross_entropy_gradient_of(weight=True, smooth=True),
    "rms_norm": norms.rms_norm_of(weight=True, residual=False, keeps=False),
    "rms_norm of a residual": norms.rms_norm_of(weight=True, residual=True, keeps=True),
    "rms_norm_gradient": norms.rms_norm_gradient_of(weight=True, terms=True),
    "layer_norm": norms.layer_norm_of(weight=True, bias=True, keeps=True),
    "layer_norm_gradient": norms.layer_norm_gradient_of(weight=True, terms=True),
    "group_norm_gradient": norms.group_norm_gradient_of(),
    "group_norm_means": norms.group_norm_means_of(),
    "group_norm_sums": norms.group_norm_sums_of(),
    "group_norm_single_gradient": norms.group_norm_single_gradient_of(),
    "group_norm_single_terms": norms.group_norm_single_terms_of(),
    "group_norm": norms.group_norm_of(weight=True, bias=True),
    "softmax of vocabularies in parts": exponentials.softmax_with_stats_of(log=False),
    "normalize": norms.normalize_of("norm2"),
    "quantize": quantisation.quantize_of("float8_e4m3fn"),
    "rms_norm_quantize": quantisation.quantize_of("int8", norm=True, weight=True),
}


def meetings():
    """Yield each operation with each type, and an architecture in turn, so that each meets each of both."""
    for i, name in enumerate(OPERATIONS):
        for k, dtype in enumerate(["bfloat16", "float32", "float64"]):
            yield name, dtype, ARCHITECTURES[(i + k) % len(ARCHITECTURES)]


@pytest.mark.parametrize(("name", "dtype", "architecture"), list(meetings()))
def test_no_spills(name, dtype, architecture, few):
    for source in few(list(row_family(OPERATIONS[name], dtype=dtype)), 1):
        last = source._replace(text=(source.text, *source.spare)[-1], spare=())
        use = compile_kernel(last, architecture).kernels[source.entry]
        assert use.spill_store_bytes + use.spill_load_bytes == 0, f"{source.entry} spills: {use}"
