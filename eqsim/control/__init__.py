"""Optimal control: linear models, LQR, iterative LQR, planning by sampling, MPC."""

from ._box_qp import box_qp as box_qp, BoxQP as BoxQP
from ._cem import CEM as CEM
from ._constraints import (
    Constraint as Constraint,
    Multipliers as Multipliers,
    TerminalConstraint as TerminalConstraint,
)
from ._cost import (
    AbstractCost as AbstractCost,
    Quadratic as Quadratic,
    Residual as Residual,
)
from ._dynamics import (
    AbstractDynamics as AbstractDynamics,
    EnvDynamics as EnvDynamics,
    Robot as Robot,
    VectorDynamics as VectorDynamics,
)
from ._finite_lq import (
    LQ as LQ,
    lq_rollout as lq_rollout,
    LQSolution as LQSolution,
    solve_lq as solve_lq,
)
from ._ilqr import Anneal as Anneal, ILQR as ILQR, Plan as Plan
from ._inverse_kinematics import (
    inverse_kinematics as inverse_kinematics,
    InverseKinematics as InverseKinematics,
    Target as Target,
)
from ._latency import predict as predict
from ._linearize import (
    Linearization as Linearization,
    linearize as linearize,
    linearize_step as linearize_step,
)
from ._lqr import LQR as LQR, lqr as lqr
from ._mpc import MPC as MPC
from ._mppi import MPPI as MPPI
from ._planner import AbstractPlanner as AbstractPlanner, plan_cost as plan_cost
from ._predictive_sampling import PredictiveSampling as PredictiveSampling
from ._problem import Problem as Problem
from ._results import RESULTS as RESULTS
from ._reward import Reward as Reward
from ._tangent import retract as retract, state_difference as state_difference
from ._tvlqr import tvlqr as tvlqr
