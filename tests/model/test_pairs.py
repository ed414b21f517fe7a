import itertools

import assets
import equinox as eqx
import jax
import mujoco
import numpy as np
import pytest
from hypothesis import given, strategies as st

from eqsim.io import load_mjcf, write_mjcf
from eqsim.model import candidate_pairs, pairs as pair_rules, System
from eqsim.model.pairs import touching_kinds
from eqsim.testing import random_system


def pairs_of_mujoco(m):
    """The pairs for which MuJoCo finds contacts when everything is near everything."""
    # Which shapes can touch does not depend on their kinds, except for planes.
    m.geom_type[m.geom_type != mujoco.mjtGeom.mjGEOM_PLANE] = (
        mujoco.mjtGeom.mjGEOM_SPHERE
    )
    m.geom_margin[:] = 50
    m.pair_margin[:] = 50
    m.body_margin[:] = 100
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    mujoco.mj_comPos(m, d)
    mujoco.mj_collision(m, d)
    weld = m.body_weldid[m.geom_bodyid]
    found = {(int(c.geom1), int(c.geom2)) for c in d.contact[: d.ncon]}
    # Between two things that cannot move a contact changes nothing.
    return {frozenset(pair) for pair in found if weld[pair[0]] != weld[pair[1]]}


def ours(sys):
    return {frozenset(pair[:2]) for pair in candidate_pairs(sys)}


@pytest.mark.parametrize("name", assets.FILES)
def test_pairs_of_files(name):
    sys = load_mjcf(assets.path(name))
    mujoco.set_mju_user_warning(lambda text: None)
    m = mujoco.MjModel.from_xml_path(str(assets.path(name)))
    mujoco.set_mju_user_warning(None)
    assert ours(sys) == pairs_of_mujoco(m)


@given(st.integers(0, 10_000), st.integers(1, 10))
def test_pairs_of_random_systems(seed, nlink):
    sys = random_system(seed, nlink, num_roots=1 + seed % nlink)
    m = mujoco.MjModel.from_xml_string(write_mjcf(sys))
    assert ours(sys) == pairs_of_mujoco(m)
    kinds = sys.geoms.kinds
    assert all(
        (kinds[a], kinds[b]) in touching_kinds() for a, b, _ in candidate_pairs(sys)
    )


TREE = """
<mujoco><option><flag filterparent="{filterparent}"/></option><worldbody>
  <geom name="wall" type="capsule" size=".1 .2"/>
  <geom name="floor" type="plane" size="1 1 1"/>
  <body name="a"><joint/><geom name="a1" type="capsule" size=".1 .2"/>
    <geom name="a2" size=".1"/>
    <body name="fixed"><geom name="f1" type="capsule" size=".1 .2"/>
      <body name="c"><joint/><geom name="c1" type="capsule" size=".1 .2"/>
        <body name="d"><joint/><geom name="d1" size=".1"/></body></body></body></body>
  <body name="b"><joint/><geom name="b1" type="capsule" size=".1 .2" contype="2"
      conaffinity="4"/><geom name="b2" size=".1" contype="4" conaffinity="1"/></body>
  <body name="static"><geom name="s1" size=".1"/>
    <body name="e"><joint/><geom name="e1" size=".1"/></body></body>
</worldbody><contact>{contact}</contact></mujoco>
"""
CONTACT = """
<pair geom1="b1" geom2="a1"/><pair geom1="c1" geom2="f1"/>
<pair geom1="b1" geom2="floor"/><pair geom1="a1" geom2="f1"/>
<pair geom1="wall" geom2="floor"/><exclude body1="b" body2="a"/>
<exclude body1="world" body2="e"/><exclude body1="fixed" body2="c"/>
"""


@pytest.mark.parametrize("filterparent", ("enable", "disable"))
@pytest.mark.parametrize("contact", ("", CONTACT))
def test_pairs_of_a_tree(contact, filterparent):
    text = TREE.format(contact=contact, filterparent=filterparent)
    sys = load_mjcf(text)
    m = mujoco.MjModel.from_xml_string(text)
    assert ours(sys) == pairs_of_mujoco(m)
    explicit = {frozenset(pair) for pair in sys.pairs.geoms}
    for a, b, index in candidate_pairs(sys):
        assert (index >= 0) == (frozenset((a, b)) in explicit)
        if index >= 0:
            assert frozenset(sys.pairs.geoms[index]) == frozenset((a, b))


def test_order():
    sys = random_system(5, nlink=8)
    pairs = candidate_pairs(sys)
    assert list(pairs) == sorted(pairs)
    kinds = [kind.value for kind in sys.geoms.kinds]
    assert all((kinds[a], a) < (kinds[b], b) for a, b, _ in pairs)


def test_only_structure_is_read():
    sys = load_mjcf(assets.path("ant"))
    expected = candidate_pairs(sys)
    shapes = eqx.filter_eval_shape(lambda s: s, sys)
    assert candidate_pairs(shapes) == expected

    @jax.jit
    def inside(traced: System):
        assert candidate_pairs(traced) == expected
        return traced.dt

    inside(sys)


def test_many_shapes():
    bodies = "".join(
        f'<body name="b{i}"><joint/><geom size=".1"/></body>' for i in range(60)
    )
    sys = load_mjcf(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    pairs = [(a, b) for a, b, _ in candidate_pairs(sys)]
    assert pairs == list(itertools.combinations(range(60), 2))


@given(st.integers(0, 10_000))
def test_results_do_not_depend_on_the_size_of_blocks(seed):
    sys = random_system(seed, nlink=8)
    rules = pair_rules._rules(sys)
    expected = pair_rules.select_pairs.__wrapped__(rules)
    with pytest.MonkeyPatch.context() as patch:
        for size in (1, 5, 64):
            patch.setattr(pair_rules, "_BLOCK", size)
            found = pair_rules.select_pairs.__wrapped__(rules)
            assert np.array_equal(found, expected)
    assert list(map(tuple, expected.tolist())) == list(candidate_pairs(sys))


def test_too_many_pairs(monkeypatch):
    monkeypatch.setattr(pair_rules, "MOST_PAIRS", 190)
    bodies = '<body><joint/><geom size=".1"/></body>'
    world = lambda count: f"<mujoco><worldbody>{bodies * count}</worldbody></mujoco>"
    assert len(candidate_pairs(load_mjcf(world(20)))) == 190
    with pytest.raises(ValueError, match=r"more than 190 pairs.*\(21 shapes\)"):
        load_mjcf(world(21))
