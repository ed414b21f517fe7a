"""Table of supported and unsupported MJCF features, for the loader's errors and the
documentation."""

from . import _detect as detect
from ._feature import Feature, Status


_YES, _IDLE, _NO = Status.SUPPORTED, Status.NO_EFFECT, Status.REFUSED

FEATURES: tuple[Feature, ...] = (
    Feature(
        "joint",
        _YES,
        "free, ball, slide, hinge; several in one body; `ref`, `springref`, "
        "`armature`, `stiffness` and `damping` with their polynomials, "
        "`actuatorfrcrange`, `actuatorgravcomp`.",
    ),
    Feature(
        "joint limit", _YES, "slide, hinge and ball; `margin`, `solref`, `solimp`."
    ),
    Feature("dry friction", _YES, "`frictionloss` of joints, `solref`, `solimp`."),
    Feature(
        "equality constraint",
        _YES,
        "`connect` and `weld` of bodies and sites, `joint`, `tendon`; `active`, `solref`, "
        "`solimp`, `torquescale`, `relpose`, `polycoef`.",
    ),
    Feature(
        "body",
        _YES,
        "any tree, several roots, fixed bodies, inertia given or from shapes, "
        "`gravcomp`.",
    ),
    Feature(
        "mocap body", _YES, "its pose is an input; see `set_mocap` and `System.links`."
    ),
    Feature(
        "contact",
        _YES,
        "plane, sphere, capsule, ellipsoid, cylinder, box, mesh (its convex hull) with each "
        "other; `condim` 1, 3, 4, 6; `contype`, `conaffinity`, `priority`, `solmix`, "
        "`solref`, `solreffriction`, `solimp`, `margin`; `pair`, `exclude`; pyramidal and "
        "elliptic cone, `impratio`. Exception: where the face of a cylinder touches another "
        "face, MuJoCo keeps four of up to 16 corners; rounding chooses between equally good "
        "ones.",
    ),
    Feature(
        "actuator",
        _YES,
        "all elements, on joints, tendons, sites (with `refsite`), slider-cranks and bodies "
        "(adhesion); gain, bias and dynamics of motors, "
        "servos, muscles, DC motors, `pid` and `orientation`, alone and combined in "
        "`general`; several inputs; `gear`, `ctrlrange`, `forcerange`, `actrange`, "
        "`actearly`, `damping`, `armature`, `group`.",
    ),
    Feature(
        "mesh",
        _YES,
        "files and inline data, `scale`, `refpos`, `refquat`, `inertia`, `maxhullvert`; drawn, "
        "written by `write_mjcf`, and hit by rays of rangefinders; hulls collide. Textures and "
        "normals are left out.",
    ),
    Feature(
        "height field",
        _YES,
        "files and inline data; drawn, written by `write_mjcf`, hit by rays of rangefinders, "
        "and touched by spheres, capsules, ellipsoids, cylinders, boxes and meshes, in up to "
        "`load_mjcf(..., height_field_contacts=16)` points each. Exceptions: a ray that starts "
        "inside a terrain does not hit the plane z = 0 of its frame; the penetration of "
        "boxes and meshes is exact (MuJoCo: too small if their `margin` is zero).",
    ),
    Feature("site", _YES, "any shape; a mesh becomes its box."),
    Feature(
        "tendon",
        _YES,
        "fixed and spatial, pulleys, wrapping around spheres and cylinders with and "
        "without side sites; `stiffness` and `damping` with polynomials, "
        "`springlength`, `armature`, limits, `frictionloss`, `actuatorfrcrange`. "
        "Exception: where a tendon passes through the inside of a shape, the point of "
        "contact is exact (MuJoCo: to 1e-6).",
    ),
    Feature(
        "integrator",
        _YES,
        "Euler (with implicit joint damping), RK4, implicit and implicitfast (with the "
        "gyroscopic derivatives of free bodies).",
    ),
    Feature(
        "sensor",
        _YES,
        "all elements but `user`, `plugin`, `tactile` and `camprojection`; `cutoff`; `noise` is "
        "not added, as in MuJoCo. See [sensors](sensors.md).",
    ),
    Feature(
        "medium",
        _YES,
        "`density`, `viscosity`, `wind`, on inertia boxes and on ellipsoids "
        "(`fluidshape`, `fluidcoef`).",
    ),
    Feature(
        "flag",
        _YES,
        "`constraint`, `equality`, `frictionloss`, `limit`, `contact`, `spring`, "
        "`damper`, `gravity`, `clampctrl`, `filterparent`, `actuation`, `refsafe`, "
        "`eulerdamp`; `actuatorgroupdisable`.",
    ),
    Feature(
        "keyframe",
        _YES,
        "`qpos`, `qvel`, `act`, `ctrl`, by name: `sys.keyframe(name)`, "
        "`pipeline.init_keyframe(sys, name)`.",
    ),
    Feature(
        "inertia that couples branches, armature of tendon",
        _IDLE,
        "MuJoCo neglects the coupling of joints in different branches; eqsim simulates "
        "it.",
        detect.coupled_branches,
    ),
    Feature(
        "equality constraint that is disabled by a flag",
        _IDLE,
        "it is left out.",
        detect.disabled_equalities,
    ),
    Feature(
        "switched-off actuator",
        _IDLE,
        "it exerts no force.",
        detect.idle,
    ),
    Feature(
        "shape that touches nothing",
        _IDLE,
        "a distance field without a partner is left out.",
        detect.untouched_shapes,
    ),
    Feature(
        "impedance above 1 of geom",
        _IDLE,
        "the first two numbers of `solimp` count as at most 0.9999, as in MuJoCo.",
        detect.saturated_impedances,
    ),
    Feature(
        "contact gap of geom",
        _IDLE,
        "a gap reports contacts but exerts no force.",
        detect.gaps,
    ),
    Feature(
        "contact gap of pair",
        _IDLE,
        "a gap reports contacts but exerts no force.",
        detect.pair_gaps,
    ),
    Feature(
        "unsupported sensor",
        _IDLE,
        "it is left out, which does not change the motion: plugins, `user`, `tactile`, cameras, "
        "`delay` and `interval`, distances of shapes without a collider and of meshes that "
        "collide with nothing, shapes that are left out, contact sensors with contact gaps.",
        detect.other_sensors,
    ),
    Feature(
        "shape that rays of rangefinders pass through",
        _IDLE,
        "a distance field is not part of the system.",
        detect.shapes_without_rays,
    ),
    Feature("skin", _IDLE, "skins are only drawn.", detect.skins),
    Feature(
        "flag for sleeping bodies",
        _IDLE,
        "all bodies are simulated in every step, also those that MuJoCo lets sleep.",
        detect.sleep_flag,
    ),
    Feature(
        "solver setting",
        _IDLE,
        "the solver iterates until it has converged (at most 50 steps).",
        detect.solver_settings,
    ),
    Feature(
        "camera, light, material, texture, custom data, visual, statistic, size",
        _IDLE,
        "not part of the dynamics; not listed in the notes.",
    ),
    Feature(
        "flag `warmstart`, `midphase`, `island`, `autoreset`, `sensor`, `energy`, "
        "`fwdinv`, `invdiscrete`",
        _IDLE,
        "they affect MuJoCo's algorithms, not the motion; not listed in the notes.",
    ),
    Feature(
        "equality constraint of flexes",
        _NO,
        "remove it.",
        detect.other_equalities,
    ),
    Feature(
        "springyield of tendon",
        _NO,
        "remove it: springs are elastic.",
        detect.plastic_tendons,
        key="springyield",
    ),
    Feature(
        "adhesion with a contact gap in actuator",
        _NO,
        "set `gap` to 0 and raise `margin`.",
        detect.adhesion_gaps,
    ),
    Feature(
        "user-defined law in actuator",
        _NO,
        "use one of MuJoCo's own `gaintype`, `biastype` and `dyntype`.",
        detect.user_laws,
    ),
    Feature(
        "part of a DC motor in actuator",
        _NO,
        "use the element `dcmotor`, or a `gaintype`, `biastype` and `dyntype` that belong "
        "together.",
        detect.mixed_motors,
    ),
    Feature(
        "delay in actuator",
        _NO,
        "remove `delay` and delay the control outside the simulator.",
        detect.delayed_actuators,
        key="delay",
    ),
    Feature(
        "springyield in joint",
        _NO,
        "remove it: springs are elastic.",
        detect.plastic_springs,
        key="springyield",
    ),
    Feature(
        "contact between shapes",
        _NO,
        "replace a shape (by capsules, say), or keep the two apart with `contype` and "
        "`conaffinity` or an `exclude`.",
        detect.other_shapes,
    ),
    Feature(
        "surfacevel of geom",
        _NO,
        "move the shape with a slide or hinge joint instead.",
        detect.surface_velocities,
        key="surfacevel",
    ),
    Feature(
        "adhesion of geom", _NO, "remove it.", detect.adhesive_shapes, key="adhesion"
    ),
    Feature(
        "adhesion of pair", _NO, "remove it.", detect.adhesive_pairs, key="adhesion"
    ),
    Feature(
        "solref of mixed sign in element",
        _NO,
        "make both numbers positive, or neither.",
        detect.mixed_solrefs,
    ),
    Feature("flex", _NO, "remove it: bodies are rigid.", detect.flexes),
    Feature(
        "plugin of actuator",
        _NO,
        "replace it by an actuator without plugin, or compute its force outside.",
        detect.actuator_plugins,
    ),
    Feature(
        "plugin of body",
        _NO,
        "remove it; for elasticity, use joints with `stiffness` and `damping`.",
        detect.body_plugins,
    ),
    Feature(
        "plugin of geom",
        _NO,
        "replace the signed distance field by other shapes.",
        detect.geom_plugins,
    ),
    Feature("integrator", _NO, "set it to implicitfast.", detect.other_integrators),
    Feature(
        "noslip solver",
        _NO,
        "remove it; raise `impratio` to slow down slip.",
        detect.noslip,
        key="noslip",
    ),
    Feature("flag", _NO, "leave it at its default.", detect.refused_flags),
    Feature(
        "flag for the collision of convex shapes",
        _NO,
        "leave it at its default.",
        detect.other_detectors,
        key="nativeccd",
    ),
)
"""All features of MJCF with their support status."""
