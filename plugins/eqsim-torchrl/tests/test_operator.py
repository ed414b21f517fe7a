import jax
import jax.numpy as jnp
import pytest
import torch
from eqsim_torchrl._operator import Operator


def f(scale, x, n, y):
    z = jnp.sin(x) * y[0] + n.astype(x.dtype)
    return scale * z * jnp.sum(x**2), n + 1, y * x[:2]


def plain(x, n, y):
    z = torch.sin(x) * y[0] + n
    return 0.5 * z * torch.sum(x**2), n + 1, y * x[:2]


@pytest.fixture(scope="module")
def operator():
    return Operator(f, jnp.asarray(0.5))


def args(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(7, dtype=torch.float64, generator=generator).split([5, 2])
    return x.clone().requires_grad_(), torch.arange(5), y.clone().requires_grad_()


def test_values(operator):
    for out, expected in zip(operator(*args()), plain(*args())):
        torch.testing.assert_close(out, expected)


def test_gradcheck(operator):
    x, n, y = args()
    real = lambda x, y: operator(x, n, y)[::2]
    assert torch.autograd.gradcheck(real, (x, y), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(real, (x, y))


def test_graph_may_be_used_twice(operator):
    x, n, y = args()
    loss = sum(out.sum() for out in operator(x, n, y)[::2])
    first = torch.autograd.grad(loss, (x, y), retain_graph=True)
    second = torch.autograd.grad(loss, (x, y))
    for one, other in zip(first, second):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_integers_have_no_derivative(operator):
    x, n, y = args()
    assert [out.requires_grad for out in operator(x, n, y)] == [True, False, True]


@pytest.mark.parametrize("transform", ["grad", "jacrev", "jacfwd", "hessian"])
def test_func(operator, transform):
    x, n, y = (z.detach() for z in args())
    by = {"grad": torch.func.grad, "hessian": torch.func.hessian}.get(transform)
    if by is None:
        by = torch.func.jacrev if transform == "jacrev" else torch.func.jacfwd
        loss = lambda call: lambda x, y: call(x, n, y)[0]
    else:
        loss = lambda call: lambda x, y: call(x, n, y)[0].sum()
    found = by(loss(operator), (0, 1))(x, y)
    expected = by(loss(plain), (0, 1))(x, y)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("axes", [(0, None, 1), (1, 0, 0), (None, None, 0)])
def test_vmap(operator, axes):
    generator = torch.Generator().manual_seed(1)
    shapes = (5,), (5,), (2,)
    given = []
    for shape, axis in zip(shapes, axes):
        whole = list(shape)
        if axis is not None:
            whole.insert(axis, 3)
        given.append(torch.randn(whole, dtype=torch.float64, generator=generator))
    given[1] = given[1].to(torch.int64)
    found = torch.func.vmap(operator, axes)(*given)
    expected = torch.func.vmap(plain, axes)(*given)
    torch.testing.assert_close(found, expected)
    by = lambda call: torch.func.vmap(
        torch.func.grad(lambda *args: call(*args)[0].sum(), (0, 2)), axes
    )
    torch.testing.assert_close(by(operator)(*given), by(plain)(*given))


def test_compile_takes_it_whole(operator):
    x, n, y = args()

    def loss(x, y):
        out = operator(2.0 * x, n, y)
        return torch.relu(out[0]).sum() + out[2].sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(x, y), (x, y))
    torch.testing.assert_close(found, torch.autograd.grad(loss(x, y), (x, y)))


def test_is_traced_once():
    count = []

    def g(fixed, x):
        count.append(None)
        return (jnp.sin(x),)

    operator = Operator(g)
    for seed in range(4):
        x = args(seed)[0]
        operator(x)[0].sum().backward()
        torch.testing.assert_close(x.grad, torch.cos(x.detach()))
    assert operator.traces == operator.backward([True]).traces == 1
    assert len(count) == 2  # Forward, and within backward.


def test_double_precision_where_jax_has_single():
    operator = Operator(lambda fixed, x: (2.0 * x,))
    with jax.enable_x64(False), pytest.raises(TypeError, match="single precision"):
        operator(torch.ones(2, dtype=torch.float64))


def test_layout_does_not_matter():
    operator = Operator(lambda fixed, x: (2.0 * x,))
    x = torch.arange(24.0).reshape(4, 6)
    for view in (x.T, x[:, 1:3], x[1::2], x[0].expand(3, 6), x[:, None]):
        torch.testing.assert_close(operator(view)[0], 2.0 * view)


def test_numbers_that_pytorch_lacks():
    with pytest.raises(TypeError, match="complex64"):
        Operator(lambda fixed, x: (x,))(torch.ones(2, dtype=torch.complex64))


def test_functions_without_derivatives_are_named():
    x = torch.full((2,), 5.0, requires_grad=True)
    (out,) = Operator(lambda fixed, x: (halve(x),))(x)
    with pytest.raises(RuntimeError, match="cannot compute a derivative in reverse"):
        out.sum().backward()


def halve(x):
    """Has no derivative in reverse."""
    return jax.lax.while_loop(lambda x: x[0] > 1.0, lambda x: x / 2.0, x)


@pytest.mark.parametrize("compiled", [False, True])
def test_only_what_is_needed_is_differentiated(compiled):
    operator = Operator(lambda fixed, x, y: (jnp.sin(x) + halve(y),))
    call = lambda x, y: operator(x, y)[0].sum()
    if compiled:
        call = torch.compile(call, fullgraph=True, backend="aot_eager")
    x, y = torch.ones(2, requires_grad=True), torch.full((2,), 5.0)
    call(x, y).backward()
    torch.testing.assert_close(x.grad, torch.cos(x.detach()))
    found = torch.func.grad(lambda x: operator(x, y)[0].sum())(x.detach())
    torch.testing.assert_close(found, x.grad)


def test_each_set_of_needed_arguments_is_traced_once():
    operator = Operator(lambda fixed, x, y: (x * y,))
    x, y = torch.ones(2), torch.full((2,), 3.0)
    for _ in range(3):
        for needed in ([True, False], [False, True]):
            given = [z.clone().requires_grad_(need) for z, need in zip((x, y), needed)]
            operator(*given)[0].sum().backward()
            for one, other, need in zip(given, (y, x), needed):
                assert (one.grad is not None) is need
                if need:
                    torch.testing.assert_close(one.grad, other)
            assert operator.backward(needed).traces == 1


def test_more_than_needed_is_not_compiled_again():
    operator = Operator(lambda fixed, x, y: (x * y,))
    x, y = torch.ones(2, requires_grad=True), torch.full((2,), 3.0, requires_grad=True)
    operator(x, y)[0].sum().backward()
    (by,) = torch.autograd.grad(operator(x, y.detach())[0].sum(), x)
    torch.testing.assert_close(by, y.detach())
    assert len(operator._derived) == 1


def test_large_integers_where_jax_has_small_ones():
    operator = Operator(lambda fixed, n: (n + 1,))
    with jax.enable_x64(False):
        small = torch.tensor([-(2**31), 2**31 - 2])
        torch.testing.assert_close(operator(small)[0].long(), small + 1)
        for number in (2**31, -(2**31) - 1):
            with pytest.raises(ValueError, match=str(number)):
                operator(torch.tensor([0, number]))
    large = torch.tensor([2**40])
    torch.testing.assert_close(operator(large)[0], large + 1)
