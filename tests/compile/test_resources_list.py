"""What the list of kernels says of one, beside what the compiler said of it."""

from benchmarks import resources
from lowlevel_reduce.plans.loading import compile_kernel


def test_a_kernel_is_listed_as_it_would_be_loaded():
    source = dict(resources.sources("sum", "float32"))["block"]
    row = resources.listed(source, "sm_90")
    use = compile_kernel(source, "sm_90").kernels[source.entry]
    assert (row["registers"], row["spilled"]) == (use.registers, [])
    assert row["instructions"] > 100
    assert row == resources.listed(source, "sm_90")
    other = source._replace(text=source.text.replace("reduce_cluster<Op, 8, 1,", "reduce_cluster<Op, 4, 1,"))
    assert other.text != source.text
    assert resources.listed(other, "sm_90")["code"] != row["code"]
