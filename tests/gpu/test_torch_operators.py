"""The operators for PyTorch on tensors of a GPU: the CPU's bits, opcheck, gradients, tracing, graphs, streams."""

from types import SimpleNamespace

import pytest

import lowlevel_reduce as lr

LENGTHS = (33, 4096)


@pytest.fixture(scope="module")
def torch(machine):
    found = pytest.importorskip("torch", reason="PyTorch is not installed")
    if machine != "cuda":
        pytest.skip("PyTorch speaks to NVIDIA's driver, not to a simulated one")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch has no GPU")
    return found


@pytest.fixture(scope="module")
def lt(torch):
    import lowlevel_reduce.torch as operators

    return operators


def drawn(torch, dtype, rows=6, length=33):
    """Return rows, two vectors beside them and targets, on the CPU."""
    generator = torch.Generator().manual_seed(length)
    x, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        for shape in ((rows, length), (length,), (length,))
    )
    target = torch.randint(length, (rows,), generator=generator)
    target[-1] = -100
    return SimpleNamespace(x=x, weight=weight, bias=bias, target=target)


def on_gpu(torch, drawn):
    return SimpleNamespace(**{name: each.cuda() for name, each in vars(drawn).items()})


def calls(lt):
    """Return calls by name: those by IEEE operations alone first, then those with ``exp`` and ``log``."""
    exact = {
        "sum": lambda of: lt.sum(of.x, -1),
        "mean of columns": lambda of: lt.mean(of.x, 0, True),
        "rms_norm": lambda of: lt.rms_norm(of.x, of.weight, 1e-5),
        "layer_norm": lambda of: lt.layer_norm(of.x, of.weight, of.bias),
        "group_norm": lambda of: lt.group_norm(of.x, of.x.shape[1] // 11 if of.x.shape[1] == 33 else 64, of.weight),
    }
    near = {
        "softmax": lambda of: lt.softmax(of.x, scale=0.5),
        "softmax of columns": lambda of: lt.softmax(of.x, 0),
        "log_softmax": lambda of: lt.log_softmax(of.x),
        "cross_entropy": lambda of: lt.cross_entropy(of.x, of.target),
        "smoothed": lambda of: lt.cross_entropy(of.x, of.target, of.weight.abs(), label_smoothing=0.1),
    }
    return exact, near


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "float64"])
def test_what_the_cpu_gives(torch, lt, name, length):
    host = drawn(torch, getattr(torch, name), length=length)
    there = on_gpu(torch, host)
    exact, near = calls(lt)
    for label, call in exact.items():
        assert torch.equal(call(there).cpu(), call(host)), label
    for label, call in near.items():
        torch.testing.assert_close(call(there).cpu(), call(host), msg=lambda text, label=label: f"{label}: {text}")


def test_a_row_has_its_bits_in_any_batch(torch, lt):
    many = on_gpu(torch, drawn(torch, torch.bfloat16, rows=300, length=1023))
    alone = SimpleNamespace(**{**vars(many), "x": many.x[17:18], "target": many.target[17:18]})
    exact, near = calls(lt)
    for name in ("sum", "rms_norm", "layer_norm", "softmax", "log_softmax"):
        call = (exact | near)[name]
        assert torch.equal(call(many)[17:18], call(alone)), name


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("softmax", (0.5, False)),
        ("softmax", (1.0, True)),
        ("rms_norm", ("weight", 1e-5)),
        ("layer_norm", ("weight", "bias", 1e-5)),
        ("cross_entropy", ("target", -100)),
        ("cross_entropy", ("target", -100, None, 0.1)),
        ("group_norm", (3, "weight", "bias", 1e-5)),
        ("sum", ([0], False, None)),
        ("mean", ([0, 1], True, "float32")),
    ],
)
def test_opcheck(torch, lt, name, rest):
    of = on_gpu(torch, drawn(torch, torch.float64))
    for each in (of.x, of.weight, of.bias):
        each.requires_grad_()
    known = {**vars(of), "float32": torch.float32}
    arguments = [known[each] if isinstance(each, str) else each for each in rest]
    operator = getattr(torch.ops.lowlevel_reduce, name).default
    assert set(torch.library.opcheck(operator, (of.x, *arguments)).values()) == {"SUCCESS"}


def test_gradients(torch, lt):
    of = on_gpu(torch, drawn(torch, torch.float64, rows=4, length=9))
    x, weight, bias = (each.requires_grad_() for each in (of.x, of.weight, of.bias))
    check = torch.autograd.gradcheck
    assert check(lt.layer_norm, (x, weight, bias))
    assert check(lambda x, w: lt.rms_norm(x, w, 1e-5), (x, weight))
    assert check(lambda x: lt.softmax(x, 0, scale=0.5), (x,))
    assert check(lt.log_softmax, (x,))
    assert check(lambda x: lt.cross_entropy(x, of.target), (x,))
    assert check(lambda x: lt.cross_entropy(x, of.target, of.weight.detach().abs(), label_smoothing=0.1), (x,))
    assert check(lambda x, w, b: lt.group_norm(x, 3, w, b), (x, weight, bias))
    assert check(lambda x: lt.group_norm(x.reshape(2, 2, 9), 2), (x,))
    assert check(lambda x: lt.mean(x, 0), (x,))


def test_gradients_have_the_cpus_bits(torch, lt):
    generator = torch.Generator().manual_seed(5)
    x, dy = torch.randn((2, 4, 6, 7, 5), generator=generator).bfloat16()
    weight, bias = torch.randn((2, 6), generator=generator).bfloat16()
    found = []
    for device in ("cpu", "cuda"):
        own = [each.to(device).requires_grad_() for each in (x, weight, bias)]
        found.append(torch.autograd.grad(lt.group_norm(own[0], 3, *own[1:]), own, dy.to(device)))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other.cpu())


def test_traced_without_a_graph_break(torch, lt):
    of = on_gpu(torch, drawn(torch, torch.float32))

    def block(x):
        return lt.softmax(lt.rms_norm(x, of.weight, 1e-5)).sum()

    assert torch.equal(torch.compile(block, fullgraph=True, backend="aot_eager")(of.x), block(of.x))


def test_in_any_stream_and_in_a_graph(torch, lt):
    of = on_gpu(torch, drawn(torch, torch.bfloat16, rows=64, length=4096))

    def block(x):
        return lt.softmax(lt.layer_norm(x, of.weight, of.bias)), lt.sum(x, -1)

    expected = block(of.x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            assert all(map(torch.equal, block(of.x), expected))
    torch.cuda.current_stream().wait_stream(side)
    graph, given = torch.cuda.CUDAGraph(), torch.zeros_like(of.x)
    with torch.cuda.graph(graph):
        captured = block(given)
    given.copy_(of.x)
    graph.replay()
    torch.cuda.synchronize()
    assert all(map(torch.equal, captured, expected))


def test_in_the_place_of_torchs_own(torch, lt):
    of = on_gpu(torch, drawn(torch, torch.bfloat16, rows=64, length=1000))
    functional = torch.nn.functional

    def model(x):
        hidden = functional.layer_norm(x, (1000,), of.weight, of.bias)
        return torch.log_softmax(functional.rms_norm(hidden, (1000,), of.weight), -1), hidden.mean(-1), hidden.sum(0)

    before = model(of.x)
    with lt.batch_invariant():
        batch, alone = model(of.x), model(of.x[5:6])
    hidden = lt.layer_norm(of.x, of.weight, of.bias)
    normal = lt.rms_norm(hidden, of.weight, torch.finfo(torch.float32).eps)  # torch's eps for types of 16 bits, too
    assert torch.equal(batch[0], lt.log_softmax(normal))
    assert torch.equal(batch[2], lt.sum(hidden, 0))
    for whole, one in zip(batch[:2], alone[:2], strict=True):
        assert torch.equal(whole[5:6], one)
    assert all(map(torch.equal, model(of.x), before)), "torch's own are not back"


def test_refusals(torch, lt):
    host = drawn(torch, torch.float32)
    of = on_gpu(torch, host)
    with pytest.raises(ValueError, match="weight of rms_norm is on cpu, the rows on cuda:0"):
        lt.rms_norm(of.x, host.weight)
    with pytest.raises(ValueError, match=r"weight of rms_norm has shape \(32,\)"):
        lt.rms_norm(of.x, of.weight[:32])
    with pytest.raises(lr.UnsupportedError, match="int64"):
        lt.softmax(of.target[None])
