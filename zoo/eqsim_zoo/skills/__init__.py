"""Evaluation, planning and plots of learned skills."""

from .paths import (
    CELLS as CELLS,
    default_skills as default_skills,
    follow_skills as follow_skills,
    SkillPaths as SkillPaths,
)
from .planning import (
    reach_goals as reach_goals,
    Reached as Reached,
)
from .plots import (
    write_goals as write_goals,
    write_skills as write_skills,
)
