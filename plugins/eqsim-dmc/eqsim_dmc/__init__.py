"""Tasks of the DeepMind Control Suite for eqsim."""

from . import sigmoids as sigmoids
from ._balance import (
    Acrobot as Acrobot,
    acrobot_swingup as acrobot_swingup,
    acrobot_swingup_sparse as acrobot_swingup_sparse,
    Cartpole as Cartpole,
    cartpole_balance as cartpole_balance,
    cartpole_balance_sparse as cartpole_balance_sparse,
    cartpole_swingup as cartpole_swingup,
    cartpole_swingup_sparse as cartpole_swingup_sparse,
    Lqr as Lqr,
    lqr_lqr_2_1 as lqr_lqr_2_1,
    lqr_lqr_6_2 as lqr_lqr_6_2,
    lqr_model as lqr_model,
    Pendulum as Pendulum,
    pendulum_swingup as pendulum_swingup,
    RandomSprings as RandomSprings,
)
from ._humanoids import (
    Humanoid as Humanoid,
    humanoid_CMU_run as humanoid_CMU_run,
    humanoid_CMU_stand as humanoid_CMU_stand,
    humanoid_CMU_walk as humanoid_CMU_walk,
    humanoid_run as humanoid_run,
    humanoid_run_pure_state as humanoid_run_pure_state,
    humanoid_stand as humanoid_stand,
    humanoid_walk as humanoid_walk,
    HumanoidCMU as HumanoidCMU,
)
from ._manipulation import (
    Manipulator as Manipulator,
    manipulator_bring_ball as manipulator_bring_ball,
    manipulator_bring_peg as manipulator_bring_peg,
    manipulator_insert_ball as manipulator_insert_ball,
    manipulator_insert_peg as manipulator_insert_peg,
    manipulator_model as manipulator_model,
    RandomProps as RandomProps,
    RandomTower as RandomTower,
    Stacker as Stacker,
    stacker_model as stacker_model,
    stacker_stack_2 as stacker_stack_2,
    stacker_stack_4 as stacker_stack_4,
)
from ._planar import (
    Cheetah as Cheetah,
    cheetah_run as cheetah_run,
    Hopper as Hopper,
    hopper_hop as hopper_hop,
    hopper_stand as hopper_stand,
    Walker as Walker,
    walker_run as walker_run,
    walker_stand as walker_stand,
    walker_walk as walker_walk,
)
from ._quadruped import (
    Quadruped as Quadruped,
    quadruped_escape as quadruped_escape,
    quadruped_fetch as quadruped_fetch,
    quadruped_model as quadruped_model,
    quadruped_run as quadruped_run,
    quadruped_walk as quadruped_walk,
    QuadrupedEscape as QuadrupedEscape,
    QuadrupedFetch as QuadrupedFetch,
    RandomBowl as RandomBowl,
)
from ._sensing import (
    draw_without_contact as draw_without_contact,
    lift_without_contact as lift_without_contact,
    touch as touch,
)
from ._swimmers import (
    Fish as Fish,
    fish_swim as fish_swim,
    fish_upright as fish_upright,
    RandomPoolTarget as RandomPoolTarget,
    RandomWaterTarget as RandomWaterTarget,
    Swimmer as Swimmer,
    swimmer_model as swimmer_model,
    swimmer_swimmer6 as swimmer_swimmer6,
    swimmer_swimmer15 as swimmer_swimmer15,
)
from ._targets import (
    ball_in_cup_catch as ball_in_cup_catch,
    BallInCup as BallInCup,
    Finger as Finger,
    finger_spin as finger_spin,
    finger_turn_easy as finger_turn_easy,
    finger_turn_hard as finger_turn_hard,
    GainsState as GainsState,
    point_mass_easy as point_mass_easy,
    point_mass_hard as point_mass_hard,
    PointMass as PointMass,
    RandomGains as RandomGains,
    RandomTarget as RandomTarget,
    RandomTip as RandomTip,
    Reacher as Reacher,
    reacher_easy as reacher_easy,
    reacher_hard as reacher_hard,
)
from ._task import (
    AbstractEndlessTask as AbstractEndlessTask,
    AbstractSuiteTask as AbstractSuiteTask,
    tolerance as tolerance,
)
