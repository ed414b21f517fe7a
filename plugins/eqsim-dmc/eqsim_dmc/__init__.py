"""Tasks of the DeepMind Control Suite for eqsim."""

from . import sigmoids as sigmoids
from ._acrobot import (
    Acrobot as Acrobot,
    acrobot_swingup as acrobot_swingup,
    acrobot_swingup_sparse as acrobot_swingup_sparse,
)
from ._ball_in_cup import (
    ball_in_cup_catch as ball_in_cup_catch,
    BallInCup as BallInCup,
)
from ._cartpole import (
    Cartpole as Cartpole,
    cartpole_balance as cartpole_balance,
    cartpole_balance_sparse as cartpole_balance_sparse,
    cartpole_swingup as cartpole_swingup,
    cartpole_swingup_sparse as cartpole_swingup_sparse,
)
from ._cheetah import Cheetah as Cheetah, cheetah_run as cheetah_run
from ._finger import (
    Finger as Finger,
    finger_spin as finger_spin,
    finger_turn_easy as finger_turn_easy,
    finger_turn_hard as finger_turn_hard,
    RandomTip as RandomTip,
)
from ._fish import (
    Fish as Fish,
    fish_swim as fish_swim,
    fish_upright as fish_upright,
    RandomWaterTarget as RandomWaterTarget,
)
from ._hopper import (
    Hopper as Hopper,
    hopper_hop as hopper_hop,
    hopper_stand as hopper_stand,
)
from ._humanoid import (
    Humanoid as Humanoid,
    humanoid_run as humanoid_run,
    humanoid_run_pure_state as humanoid_run_pure_state,
    humanoid_stand as humanoid_stand,
    humanoid_walk as humanoid_walk,
)
from ._humanoid_cmu import (
    humanoid_CMU_run as humanoid_CMU_run,
    humanoid_CMU_stand as humanoid_CMU_stand,
    humanoid_CMU_walk as humanoid_CMU_walk,
    HumanoidCMU as HumanoidCMU,
)
from ._lqr import (
    Lqr as Lqr,
    lqr_lqr_2_1 as lqr_lqr_2_1,
    lqr_lqr_6_2 as lqr_lqr_6_2,
    lqr_model as lqr_model,
    RandomSprings as RandomSprings,
)
from ._manipulator import (
    Manipulator as Manipulator,
    manipulator_bring_ball as manipulator_bring_ball,
    manipulator_bring_peg as manipulator_bring_peg,
    manipulator_insert_ball as manipulator_insert_ball,
    manipulator_insert_peg as manipulator_insert_peg,
    manipulator_model as manipulator_model,
    RandomProps as RandomProps,
)
from ._pendulum import Pendulum as Pendulum, pendulum_swingup as pendulum_swingup
from ._point_mass import (
    GainsState as GainsState,
    point_mass_easy as point_mass_easy,
    point_mass_hard as point_mass_hard,
    PointMass as PointMass,
    RandomGains as RandomGains,
)
from ._quadruped import (
    Quadruped as Quadruped,
    quadruped_fetch as quadruped_fetch,
    quadruped_run as quadruped_run,
    quadruped_walk as quadruped_walk,
    QuadrupedFetch as QuadrupedFetch,
)
from ._quadruped_escape import (
    quadruped_escape as quadruped_escape,
    QuadrupedEscape as QuadrupedEscape,
    RandomBowl as RandomBowl,
)
from ._quadruped_robot import quadruped_model as quadruped_model
from ._reacher import (
    RandomTarget as RandomTarget,
    Reacher as Reacher,
    reacher_easy as reacher_easy,
    reacher_hard as reacher_hard,
)
from ._stacker import (
    RandomTower as RandomTower,
    Stacker as Stacker,
    stacker_model as stacker_model,
    stacker_stack_2 as stacker_stack_2,
    stacker_stack_4 as stacker_stack_4,
)
from ._starts import (
    draw_without_contact as draw_without_contact,
    lift_without_contact as lift_without_contact,
)
from ._swimmer import (
    RandomPoolTarget as RandomPoolTarget,
    Swimmer as Swimmer,
    swimmer_model as swimmer_model,
    swimmer_swimmer6 as swimmer_swimmer6,
    swimmer_swimmer15 as swimmer_swimmer15,
)
from ._task import (
    AbstractEndlessTask as AbstractEndlessTask,
    AbstractSuiteTask as AbstractSuiteTask,
)
from ._tolerance import tolerance as tolerance
from ._touch import touch as touch
from ._walker import (
    Walker as Walker,
    walker_run as walker_run,
    walker_stand as walker_stand,
    walker_walk as walker_walk,
)
