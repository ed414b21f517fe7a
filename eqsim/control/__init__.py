"""Optimal control: linear models, LQR, iterative LQR, planning by sampling, MPC.

Files in reading order:

- `_dynamics`: systems to control: a robot on a pipeline, an environment, or a function of
  vectors, with states in tangent coordinates, and time; `linearize`;
- `_problem`: costs as sums of squared residuals, constraints, limits of controls;
- `_linear_quadratic`: LQR, finite horizons, LQR along a trajectory;
- `_backward_pass`, `_iterations`, `_ilqr`: iterative LQR from the inside out; `_ilqr` has the
  solver, its constraints, and derivatives of plans;
- `_mpc`: planners by sampling (CEM, MPPI, predictive sampling), a solver or planner as a policy
  with memory, and robots with latency;
- `_inverse_kinematics`: coordinates that bring sites and links to targets.

Solvers report `eqsim.RESULTS`. The package uses environments and all below; only the command
line imports it.
"""

from ._dynamics import (
    AbstractDynamics as AbstractDynamics,
    EnvDynamics as EnvDynamics,
    Linearization as Linearization,
    linearize as linearize,
    linearize_step as linearize_step,
    PipelineDynamics as PipelineDynamics,
    retract as retract,
    state_difference as state_difference,
    Timed as Timed,
    TimedDynamics as TimedDynamics,
    VectorDynamics as VectorDynamics,
)
from ._ilqr import Anneal as Anneal, ILQR as ILQR, Plan as Plan
from ._inverse_kinematics import (
    inverse_kinematics as inverse_kinematics,
    InverseKinematics as InverseKinematics,
    Target as Target,
)
from ._linear_quadratic import (
    LQProblem as LQProblem,
    LQR as LQR,
    lqr as lqr,
    LQSolution as LQSolution,
    rollout_lq as rollout_lq,
    solve_lq as solve_lq,
    tvlqr as tvlqr,
)
from ._mpc import (
    AbstractPlanner as AbstractPlanner,
    CEM as CEM,
    MPC as MPC,
    MPPI as MPPI,
    plan_cost as plan_cost,
    predict as predict,
    PredictiveSampling as PredictiveSampling,
)
from ._problem import (
    AbstractTrajectoryCost as AbstractTrajectoryCost,
    Constraint as Constraint,
    ControlProblem as ControlProblem,
    QuadraticCost as QuadraticCost,
    ResidualCost as ResidualCost,
    RewardCost as RewardCost,
    TerminalConstraint as TerminalConstraint,
)
