"""Networks that see are the same layers of Equinox; images change only as said."""

import colorsys
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from helpers import check_gradients, examples
from hypothesis import given, settings, strategies as st
from scipy.ndimage import gaussian_filter
from scipy.special import softmax

from eqsim_zoo.vision import (
    AbstractAugmentation,
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    augment,
    ColorJitter,
    Conv,
    Flatten,
    gaussian_blur,
    GroupNorm,
    Impala,
    max_pool,
    Mean,
    RandomBlur,
    RandomCrop,
    RandomFlip,
    RandomSolarize,
    ResNet18,
    ResNet34,
    ResNet50,
    SmallCNN,
    solarize,
    SpatialEmbeddings,
    SpatialSoftmax,
)
from eqsim_zoo.vision.resnet import _Maker


SMALL = dict(widths=(3, 2), kernels=(3, 2), strides=(2, 1), outputs=4)
RECIPES = {
    "softmax": (SmallCNN(**SMALL, pool=SpatialSoftmax(0.5)), (8, 9, 1)),
    "impala": (Impala(widths=(2, 3), outputs=8), (9, 6, 3)),
    "resnet": (ResNet18(widths=(2, 2, 2, 4), groups=2), (32, 35, 3)),
}
each_network = pytest.mark.parametrize("name", RECIPES)
relu = jax.nn.relu
apply = eqx.filter_jit(lambda module, x: module(x))


def shaken(net):
    """Return a network with random numbers added to initial zeros and ones."""
    rng = np.random.default_rng(0)
    more = lambda x: x + jnp.asarray(0.1 * rng.normal(size=x.shape))
    return jtu.tree_map(more, net)


@functools.cache
def creator(name):
    recipe, shape = RECIPES[name]
    return jax.jit(lambda key: recipe.create(key, shape, jnp.float64))


@functools.cache
def network(name):
    """Return an untrained network."""
    return creator(name)(jr.key(2))


# References: layers of Equinox, channels first.


def conv(layer, x):
    kernel, _, inputs, outputs = layer.weight.shape
    same = eqx.nn.Conv2d(
        inputs,
        outputs,
        kernel,
        layer.stride,
        layer.padding,
        use_bias=False,
        key=jr.key(0),
    )
    same = eqx.tree_at(lambda c: c.weight, same, layer.weight.transpose(3, 2, 0, 1))
    return same(x) if layer.bias is None else same(x) + layer.bias[:, None, None]


def group_norm(layer, x):
    same = eqx.nn.GroupNorm(layer.groups, len(layer.scale))
    parameters = layer.scale, layer.shift
    return eqx.tree_at(lambda norm: (norm.weight, norm.bias), same, parameters)(x)


halve = eqx.nn.MaxPool2d(3, 2, padding=1)


def small(net, x):
    for layer in net.layers:
        x = relu(conv(layer, x))
    return jnp.tanh(net.norm(net.last(net.pool(x.transpose(1, 2, 0)))))


def impala(net, x):
    for stack in net.stacks:
        x = halve(conv(stack.entry, x))
        for block in stack.blocks:
            x = x + conv(block.second, relu(conv(block.first, relu(x))))
    return relu(net.last(relu(x).transpose(1, 2, 0).ravel()))


def residual(block, x, names):
    """Return the output of a residual block whose layers have these names."""
    y = x
    for name in names:
        layer = getattr(block, name)
        y = group_norm(layer.norm, conv(layer.conv, y))
        y = y if name == names[-1] else relu(y)
    straight = x
    if block.shortcut is not None:
        straight = group_norm(block.shortcut.norm, conv(block.shortcut.conv, x))
    return relu(straight + y)


def resnet(net, x):
    x = halve(relu(group_norm(net.entry.norm, conv(net.entry.conv, x))))
    for block in net.blocks:
        x = residual(block, x, ("first", "second"))
    return jnp.mean(x, (1, 2))


REFERENCES = {SmallCNN: small, Impala: impala, ResNet18: resnet}


# Layers


@pytest.mark.parametrize("scale", (1.0, 2.0))
def test_conv_begins_uniform(scale):
    """With the variance of `scale` over the number of terms, and no bias."""
    layer = Conv.create(jr.key(1), 32, 64, 3, scale=scale, dtype=jnp.float64)
    weight, bound = np.asarray(layer.weight), np.sqrt(3.0 * scale / (9 * 32))
    assert np.var(weight) == pytest.approx(scale / (9 * 32), rel=0.03)
    assert 0.99 * bound < np.max(np.abs(weight)) <= bound
    np.testing.assert_array_equal(layer.bias, 0.0)
    assert Conv.create(jr.key(1), 1, 1, 3, bias=False).bias is None


def test_group_norm_is_equinox(getkey):
    """Also of equal numbers, where there is nothing to divide by."""
    layer = shaken(GroupNorm.create(4, 2, jnp.float64))
    x = 5.0 + 3.0 * jr.normal(getkey(), (2, 3, 4))
    expected = group_norm(layer, x.transpose(2, 0, 1)).transpose(1, 2, 0)
    np.testing.assert_allclose(apply(layer, x), expected, rtol=1e-10)
    equal = jnp.full((2, 3, 4), 7.0)
    np.testing.assert_array_equal(GroupNorm.create(4, 2, jnp.float64)(equal), 0.0)
    check_gradients(apply, layer, equal)


@pytest.mark.parametrize("shape", ((5, 4, 2), (1, 6, 1)))
@pytest.mark.quick_cases("shape1")
def test_max_pool_is_equinox(shape, getkey):
    x = jr.normal(getkey(), shape)
    expected = halve(x.transpose(2, 0, 1)).transpose(1, 2, 0)
    np.testing.assert_array_equal(max_pool(x), expected)
    check_gradients(jax.jit(max_pool), x)


# Pools


def test_spatial_softmax(getkey):
    """A point is where it is, between -1 and 1 at the edges; an empty image is its middle,
    and other images are the mean place of their softmax."""
    sharp = SpatialSoftmax(0.01).create(jr.key(0), (4, 5, 3), jnp.float64)
    x = jnp.zeros((4, 5, 3)).at[3, 0, 0].set(1.0).at[1, 2, 1].set(1.0)
    expected = [-0.8, 0.75, 0.0, -0.25, 0.0, 0.0]
    np.testing.assert_allclose(apply(sharp, x), expected, atol=1e-12)
    pool = SpatialSoftmax(0.3).create(jr.key(0), (3, 5, 2), jnp.float64)
    x = jr.normal(getkey(), (3, 5, 2))
    expected = []
    for channel in softmax(np.asarray(x) / 0.3, axis=(0, 1)).transpose(2, 0, 1):
        expected += [channel.sum(0) @ [-0.8, -0.4, 0.0, 0.4, 0.8]]
        expected += [channel.sum(1) @ [-2 / 3, 0.0, 2 / 3]]
    np.testing.assert_allclose(apply(pool, x), expected, rtol=1e-10, atol=1e-12)
    assert all(value > 0.0 for value in check_gradients(apply, pool, x).values())


def test_flatten_and_mean(getkey):
    x = jr.normal(getkey(), (3, 2, 4))
    flatten, mean = (pool.create(jr.key(0), x.shape) for pool in (Flatten(), Mean()))
    np.testing.assert_array_equal(flatten(x), np.asarray(x).ravel())
    np.testing.assert_allclose(mean(x), np.asarray(x).mean((0, 1)), rtol=1e-12)


def test_spatial_embeddings(getkey):
    """Sums of each channel with weights of its own, which begin with the variance of one
    over the number of places."""
    pool = SpatialEmbeddings(6).create(jr.key(0), (4, 5, 200), jnp.float64)
    assert np.var(pool.weight) == pytest.approx(1.0 / 20, rel=0.05)
    x = jr.normal(getkey(), (4, 5, 200))
    expected = np.sum(x[..., None] * pool.weight, (0, 1)).ravel()
    np.testing.assert_allclose(pool(x), expected, atol=1e-12)


# Encoders


@each_network
@pytest.mark.quick_cases("softmax")
def test_encoder_is_equinox(name, getkey):
    """Images have values from -0.5 to 0.5, whether they are bytes or from 0 to 1; and
    `vmap` in single precision, the default, gives the same."""
    recipe, shape = RECIPES[name]
    net = shaken(network(name))
    images = jr.randint(getkey(), (2, *shape), 0, 256).astype(jnp.uint8)
    centered = images[0].transpose(2, 0, 1).astype(jnp.float64) / 255.0 - 0.5
    expected = eqx.filter_jit(REFERENCES[type(recipe)])(net, centered)
    found = apply(net, images[0])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    floats = apply(net, images[0].astype(jnp.float64) / 255.0)
    np.testing.assert_allclose(floats, expected, rtol=1e-9, atol=1e-12)
    assert jnp.max(jnp.abs(found)) > 0.01
    default = jax.eval_shape(lambda key: recipe.create(key, shape), getkey())
    assert {x.dtype for x in jtu.tree_leaves(default)} == {jnp.dtype(jnp.float32)}
    single = jtu.tree_map(lambda x: x.astype(jnp.float32), net)
    many = eqx.filter_jit(lambda net, xs: jax.vmap(net)(xs))(single, images)
    assert many.dtype == jnp.float32
    for x, image in zip(many, images):
        np.testing.assert_allclose(x, apply(net, image), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ("softmax", "impala"))
@pytest.mark.quick_cases("softmax")
def test_encoder_gradients(name, getkey):
    leaves, treedef = jtu.tree_flatten(shaken(network(name)))
    fn = lambda leaves, x: jtu.tree_unflatten(treedef, leaves)(x)
    some = leaves[:1] + leaves[-2:]
    few = lambda some, x: fn([*some[:1], *leaves[1:-2], *some[1:]], x)
    image = jr.uniform(getkey(), RECIPES[name][1])
    largest = check_gradients(eqx.filter_jit(few), some, image)
    assert all(value > 0.0 for value in largest.values())


def test_block_gradients(getkey):
    """Of a residual block that halves the image, and changes its channels."""
    block = shaken(_Maker(2, jnp.float64).basic(getkey(), 2, 4, 2))
    assert block.shortcut is not None
    largest = check_gradients(apply, block, jr.normal(getkey(), (3, 4, 2)))
    assert all(value > 0.0 for value in largest.values())


@pytest.mark.slow
def test_bottleneck_is_equinox(getkey):
    """One block that halves the image, and one that keeps it."""
    make = _Maker(2, jnp.float64)
    halves = shaken(make.bottleneck(getkey(), 4, 2, 2))
    keeps = shaken(make.bottleneck(getkey(), 8, 2, 1))
    assert halves.shortcut is not None and keeps.shortcut is None
    x = jr.normal(getkey(), (5, 4, 4))
    for block in (halves, keeps):
        expected = residual(block, x.transpose(2, 0, 1), ("first", "second", "third"))
        expected = expected.transpose(1, 2, 0)
        np.testing.assert_allclose(apply(block, x), expected, rtol=1e-9, atol=1e-12)
        x = expected
    assert x.shape == (3, 2, 8)


@each_network
@pytest.mark.quick_cases("impala")
def test_gradients_of_one_color_are_finite(name):
    """Where there is nothing to divide by, and ReLUs have their kink."""
    total = lambda both: jnp.sum(both[0](both[1]))
    slope = eqx.filter_jit(eqx.filter_value_and_grad(total))
    for color in (0.0, 1.0):
        image = jnp.full(RECIPES[name][1], color)
        value, gradient = slope((network(name), image))
        assert jnp.isfinite(value)
        assert all(jnp.all(jnp.isfinite(x)) for x in jtu.tree_leaves(gradient))


def results(recipe, shape):
    see = lambda key: recipe.create(key, shape)(jnp.zeros(shape, jnp.uint8))
    return jax.eval_shape(see, jr.key(0)).shape


@settings(max_examples=examples(3))
@given(st.integers(32, 70), st.integers(32, 70), st.integers(1, 9))
def test_encoder_shapes(height, width, channels):
    """As many numbers for any image; or as many as there are."""
    shape = (height, width, channels)
    assert results(SmallCNN(), shape) == (256,)
    assert results(SmallCNN(pool=SpatialSoftmax(), outputs=5), shape) == (5,)
    assert results(Impala(outputs=7), shape) == (7,)
    places = -(-height // 32) * -(-width // 32)
    assert results(ResNet18(pool=Flatten()), shape) == (512 * places,)
    assert results(ResNet18(pool=SpatialSoftmax()), shape) == (1024,)


@pytest.mark.parametrize(
    "recipe, count",
    ((ResNet18(), 11_176_512), (ResNet34(), 21_284_672), (ResNet50(), 23_508_032)),
    ids=("18", "34", "50"),
)
def test_resnet_parameters(recipe, count):
    """As many as in torchvision without its last layer, as group normalization has as many
    as batch normalization."""
    net = jax.eval_shape(lambda key: recipe.create(key, (64, 64, 3)), jr.key(0))
    assert sum(x.size for x in jtu.tree_leaves(net)) == count


def test_default_places():
    """64 x 64 leave as many places to the small network as 84 x 84 did to DQN."""
    net = jax.eval_shape(lambda key: SmallCNN().create(key, (64, 64, 3)), jr.key(0))
    assert net.last.weight.shape == (7 * 7 * 64, 256)


@each_network
def test_weights_differ(name):
    """By key, and between layers of one network; also where these are of one shape."""
    leaves = jtu.tree_leaves((network(name), creator(name)(jr.key(3))))
    # Not by the deviation, which layers may differ in.
    ratios = [float(x.ravel()[0] / x.ravel()[1]) for x in leaves if x.ndim > 1]
    assert len(set(ratios)) == len(ratios)


@pytest.mark.parametrize(
    "recipe, least",
    ((SmallCNN(), 27), (Impala(), 8), (ResNet18(widths=(1, 1, 1, 1), groups=1), 32)),
    ids=("small", "impala", "resnet"),
)
def test_small_images(recipe, least):
    jax.eval_shape(lambda key: recipe.create(key, (least, least, 1)), jr.key(0))
    for shape in ((least - 1, least, 1), (least, least - 1, 1), (least, least, 0)):
        with pytest.raises(
            ValueError, match=rf"{least} x {least} x 1, got shape \({shape[0]}, "
        ):
            recipe.create(jr.key(0), shape)


# Augmentations


ALL = ColorJitter(0.4, 0.4, 0.4, 0.2)
CHAIN = (RandomCrop(2), RandomFlip(), ALL)
LUMA = np.array([0.2989, 0.587, 0.114])


def picture(key, shape=(6, 5, 3)):
    """Return an image of different bytes."""
    numbers = jr.permutation(key, 256)[: np.prod(shape)]
    return numbers.reshape(shape).astype(jnp.uint8)


def draws(change, image, key, number=1000):
    """Return an image changed with each of so many keys."""
    return np.asarray(
        jax.jit(jax.vmap(change, (None, 0)))(image, jr.split(key, number))
    )


def test_crops(getkey):
    """Each place of the window in the image, extended by its edges, equally often."""
    image = picture(getkey())
    found = draws(RandomCrop(padding=2), image, getkey())
    assert found.dtype == image.dtype
    wide = np.pad(image, ((2, 2), (2, 2), (0, 0)), mode="edge")
    crops = [wide[i : i + 6, j : j + 5].tobytes() for i in range(5) for j in range(5)]
    assert len(set(crops)) == 25
    counts = np.bincount([crops.index(x.tobytes()) for x in found], minlength=25)
    np.testing.assert_allclose(counts, 40.0, atol=25.0)


@pytest.mark.parametrize(
    "change, changed",
    (
        (RandomFlip(0.3), lambda x: x[:, ::-1]),
        (RandomSolarize(100 / 255, 0.3), lambda x: np.where(x < 100, x, 255 - x)),
    ),
    ids=("flip", "solarize"),
)
def test_changes_by_chance(change, changed, getkey):
    """With the given probability; else the image stays as it is."""
    image = np.asarray(picture(getkey()))
    found = draws(change, image, getkey())
    assert found.dtype == np.uint8
    is_changed = np.all(found == changed(image)[None], (1, 2, 3))
    np.testing.assert_array_equal(np.all(found == image[None], (1, 2, 3)), ~is_changed)
    assert np.mean(is_changed) == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("factor", (0.4, 1.7))
def test_blends(factor, getkey):
    """With black, the mean gray, and the gray of each pixel; clipped."""
    image = jr.uniform(getkey(), (4, 3, 3))
    x, gray = np.asarray(image), (np.asarray(image) @ LUMA)[..., None]
    mix = lambda y: np.clip(factor * x + (1.0 - factor) * y, 0.0, 1.0)
    blends = {
        adjust_brightness: 0.0,
        adjust_contrast: gray.mean(),
        adjust_saturation: gray,
    }
    for blend, other in blends.items():
        found = blend(image, jnp.array(factor))
        np.testing.assert_allclose(found, mix(other), atol=1e-14)
        if factor < 1.0:
            check_gradients(jax.jit(blend), image, jnp.array(factor))
    one = adjust_contrast(image[..., :1], jnp.array(factor))
    expected = np.clip(factor * x[..., :1] + (1 - factor) * x[..., 0].mean(), 0.0, 1.0)
    np.testing.assert_allclose(one, expected, atol=1e-14)


def test_hue_is_colorsys(getkey):
    """Also where two colors are equal; the derivative is finite there."""
    image, turns = jr.uniform(getkey(), (5, 4, 3)), jnp.array(-0.2)
    equal = image.at[0, 0].set(0.3).at[0, 1].set(0.0)
    equal = equal.at[0, 2].set(jnp.array([0.7, 0.7, 0.1]))
    expected = []
    for rgb in np.asarray(equal).reshape(-1, 3):
        hue, saturation, value = colorsys.rgb_to_hsv(*rgb)
        expected.append(colorsys.hsv_to_rgb((hue - 0.2) % 1.0, saturation, value))
    found = jax.jit(adjust_hue)(equal, turns)
    np.testing.assert_allclose(found.reshape(-1, 3), expected, atol=1e-12)
    slope = jax.jit(jax.jacrev(adjust_hue, (0, 1)))(equal, turns)
    assert all(jnp.all(jnp.isfinite(x)) for x in slope)
    check_gradients(jax.jit(adjust_hue), image[:3, :2], jnp.array(0.13))


def test_no_jitter_is_identity(getkey):
    image = picture(getkey())
    found = jax.jit(ColorJitter())(image, getkey())
    assert found.dtype == jnp.uint8
    np.testing.assert_array_equal(found, image)


def test_jitter_factors(getkey):
    """Of brightness, everything between, as often; and no other light than asked for."""
    image = jnp.full((1, 1, 3), 0.5)
    found = draws(ColorJitter(brightness=0.4), image, getkey(), 2000)
    np.testing.assert_array_equal(found[..., 1:], found[..., :1].repeat(2, -1))
    counts, _ = np.histogram(found[..., 0], 5, (0.3, 0.7))
    np.testing.assert_allclose(counts, 400, atol=80)
    # A factor is never below zero.
    found = draws(ColorJitter(brightness=3.0), jnp.full((1, 1, 1), 0.1), getkey(), 2000)
    assert 0.0 <= np.min(found) < 0.001 and 0.399 < np.max(found) <= 0.4


@pytest.mark.slow
def test_jitter_of_one_kind(getkey):
    """Each argument changes what it names, and keeps what its blend keeps."""
    image, key = jr.uniform(getkey(), (4, 4, 3), minval=0.3, maxval=0.7), getkey()
    gray = lambda x: np.asarray(x) @ LUMA
    found = jax.jit(ColorJitter(contrast=0.5))(image, key)
    assert np.mean(gray(found)) == pytest.approx(np.mean(gray(image)), abs=1e-4)
    ratio = (found - jnp.mean(gray(image))) / (image - jnp.mean(gray(image)))
    np.testing.assert_allclose(ratio, ratio[0, 0, 0], rtol=1e-9)
    found = jax.jit(ColorJitter(saturation=0.5))(image, key)
    np.testing.assert_allclose(gray(found), gray(image), atol=1e-4)
    found = jax.jit(ColorJitter(hue=0.5))(image, key)
    np.testing.assert_allclose(jnp.max(found, -1), jnp.max(image, -1), rtol=1e-12)
    np.testing.assert_allclose(jnp.min(found, -1), jnp.min(image, -1), rtol=1e-12)
    assert jnp.max(jnp.abs(found - image)) > 0.01


def test_frames_change_alike(getkey):
    first, second, key = picture(getkey()), picture(getkey()), getkey()
    alone, found = jax.jit(ALL), jax.jit(ALL)(jnp.concatenate([first, second], -1), key)
    alike = lambda x, y: np.testing.assert_allclose(
        x.astype(int), y.astype(int), atol=1
    )
    alike(found[..., :3], alone(first, key))
    alike(found[..., 3:], alone(second, key))


def test_gray_has_no_colors(getkey):
    image = picture(getkey(), (4, 4, 1))
    found = jax.jit(ColorJitter(saturation=0.5, hue=0.5))(image, getkey())
    np.testing.assert_array_equal(found, image)


def test_jitter_of_bytes_is_rounded(getkey):
    image, key = picture(getkey()), getkey()
    found = jax.jit(ALL)(image, key)
    numbers = jax.jit(ALL)(image.astype(jnp.float32) / 255.0, key)
    assert found.dtype == jnp.uint8
    off = np.asarray(found) - 255.0 * np.asarray(numbers)
    assert np.max(np.abs(off)) < 0.5001


@pytest.mark.parametrize("std, radius", ((0.3, 1), (1.7, 4), (1e-3, 2)))
@pytest.mark.quick_cases("0.3-1")
def test_blur_is_scipy(std, radius, getkey):
    image = jr.uniform(getkey(), (7, 5, 2))
    found = jax.jit(gaussian_blur, static_argnums=2)(image, jnp.array(std), radius)
    for channel in range(2):
        expected = gaussian_filter(
            np.asarray(image[..., channel]), std, mode="nearest", radius=radius
        )
        np.testing.assert_allclose(found[..., channel], expected, atol=1e-12)
    if std > 0.1:
        blur = lambda x, std: gaussian_blur(x, std, radius)
        check_gradients(jax.jit(blur), image[:3, :2], jnp.array(std))


def test_solarize_inverts_bright_values(getkey):
    image = jr.uniform(getkey(), (4, 5, 3)).at[0, 0, 0].set(0.25)
    found = solarize(image, jnp.array(0.25))
    x = np.asarray(image)
    np.testing.assert_array_equal(found, np.where(x < 0.25, x, 1.0 - x))
    assert found[0, 0, 0] == 0.75


def test_random_blur(getkey):
    """With the given probability, and deviations between the bounds: the brightest pixel
    of a point tells which."""
    image = jnp.zeros((9, 9, 1), jnp.float32).at[4, 4].set(1.0)
    found = draws(RandomBlur(0.5, 1.0, radius=3, probability=0.7), image, getkey())
    assert found.dtype == image.dtype
    peaks = found[:, 4, 4, 0]
    assert np.mean(peaks < 1.0) == pytest.approx(0.7, abs=0.05)
    of = lambda std: np.exp(-0.5 * (np.arange(-3, 4) / std) ** 2)
    sharp, soft = (1.0 / of(std).sum() ** 2 for std in (0.5, 1.0))
    blurred = peaks[peaks < 1.0]
    assert soft - 0.003 < blurred.min() < soft + 0.02
    assert sharp - 0.03 < blurred.max() < sharp + 0.003


class Half(AbstractAugmentation):
    """Darker."""

    def __call__(self, image, key):
        return image / 2.0


class Noise(AbstractAugmentation):
    """Brighter, by chance."""

    def __call__(self, image, key):
        return image + jr.uniform(key, (), image.dtype)


def test_augment_goes_in_order(getkey):
    """With numbers drawn anew for each."""
    image, key = jr.uniform(getkey(), (2, 2, 1)), getkey()
    change = lambda *them: augment(them, image, key)
    noise = change(Noise()) - image
    np.testing.assert_allclose(change(Noise(), Half()), (image + noise) / 2.0)
    second = change(Half(), Noise()) - image / 2.0
    np.testing.assert_allclose(second, second[0, 0, 0], rtol=1e-12)
    assert jnp.abs(second[0, 0, 0] - noise[0, 0, 0]) > 1e-3
    np.testing.assert_array_equal(change(), image)


def test_augment_changes_images_only(getkey):
    image = picture(getkey())
    obs = {
        "pixels": image,
        "goal": {"pixels": image},
        "wrist": image[:4, :4].astype(jnp.float32) / 255.0,
        "proprio": jr.normal(getkey(), (7,)),
        "time": jnp.array(3),
    }
    key = getkey()
    change = jax.jit(lambda obs, key: augment(CHAIN[:2], obs, key))
    found = change(obs, key)
    assert jtu.tree_structure(found) == jtu.tree_structure(obs)
    for x, y in zip(jtu.tree_leaves(found), jtu.tree_leaves(obs)):
        assert x.shape == y.shape and x.dtype == y.dtype
    for name in ("proprio", "time"):
        np.testing.assert_array_equal(found[name], obs[name])
    # What was equal stays so, and the same key does the same again.
    np.testing.assert_array_equal(found["pixels"], found["goal"]["pixels"])
    np.testing.assert_array_equal(found["pixels"], change(obs, key)["pixels"])
    assert np.any(found["pixels"] != image) and np.any(found["wrist"] != obs["wrist"])


def changed(shape, dtype):
    """Return an image of zeros, augmented."""
    return augment(CHAIN, {"pixels": jnp.zeros(shape, dtype)}, jr.key(0))


@pytest.mark.parametrize(
    "make, message",
    (
        (lambda: GroupNorm.create(4, 3), "groups, 3, got 4"),
        (lambda: SpatialSoftmax(0.0), "temperature must be positive, got 0.0"),
        (lambda: SpatialSoftmax(float("nan")), "temperature.* got nan"),
        (lambda: SpatialSoftmax(float("inf")), "temperature.* got inf"),
        (lambda: SpatialEmbeddings(0), "SpatialEmbeddings.features`.* 1, got 0"),
        (lambda: SmallCNN(widths=(3, 4)), "must be equal"),
        (lambda: SmallCNN(strides=(3, 0, 1)), r"SmallCNN.strides\[1\]`.* 1, got 0"),
        (lambda: SmallCNN(outputs=0), "SmallCNN.outputs`.* 1, got 0"),
        (lambda: Impala(widths=()), r"Impala.widths`.* positive integers, got \(\)"),
        (lambda: Impala(blocks=0), "Impala.blocks`.* 1, got 0"),
        (lambda: ResNet18(groups=48), "number of groups, 48"),
        (lambda: ResNet18(widths=(32, 32)), r"four.*\(32, 32\)"),
        (lambda: RandomBlur(2.0, 1.0), "got 2.0 and 1.0"),
        (lambda: RandomBlur(radius=0), "RandomBlur.radius`.* 1, got 0"),
        (lambda: RandomBlur(probability=-0.1), "got -0.1"),
        (lambda: RandomSolarize(1.2), "RandomSolarize.threshold`.* 0 and 1, got 1.2"),
        (lambda: RandomSolarize(probability=2.0), "got 2.0"),
        (lambda: RandomCrop(0), "RandomCrop.padding`.* 1, got 0"),
        (lambda: RandomFlip(1.5), "got 1.5"),
        (lambda: ColorJitter(hue=0.6), "hue=0.6"),
        (lambda: ColorJitter(contrast=-0.1), "contrast=-0.1"),
        (lambda: ALL(jnp.zeros((4, 4, 4)), jr.key(0)), "got 4"),
        (lambda: changed((4, 6, 5, 3), jnp.uint8), r"\(4, 6, 5, 3\).*jax.vmap"),
        (lambda: changed((6, 5, 3), jnp.int32), "must have type uint8 .* got int32"),
    ),
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
