"""Runs, settings and skills from JSON and from text."""

import dataclasses
import json
from random import Random

import eqsim
from eqsim_zoo.runs.fields import build, describe
from eqsim_zoo.runs.run import Counters, prior_of, Run, with_skills

from .mutations import changed, damaged, value, word


_SKILLS = (
    *("one_hot:5", "uniform:2,resample_probability=0.02,least_steps=10", "normal:2"),
    *("uniform:0", "normal:99999999999999999999", "one_hot:5,least_steps=2147483648"),
    *(
        "uniform:²",
        "normal:٣",
        "one-hot: 5",
        "uniform:2,",
        "uniform:2,resample_probability=nan",
    ),
)
_OPTIONS = ({}, {"frame_skip": 2}, {"reset_noise": 0.1}, {"no_such": 1})


class Kind:
    """Law: agents, environments and runs are made, or `ValueError` is raised."""

    REFUSALS = (ValueError, eqsim.plugins.PluginError)
    WRITES = ()

    def __init__(self, folder):
        self.makers = {name: eqsim.AGENTS.get(name) for name in eqsim.AGENTS.names()}
        self.agents = {}
        for name, make in self.makers.items():
            self.agents[name] = make()
        self.settings = {name: describe(agent) for name, agent in self.agents.items()}
        self.env = eqsim.make("point_mass")

    def attempt(self, rng: Random):
        action = rng.randrange(6)
        name = rng.choice(sorted(self.makers))
        if action == 0:
            fields = self.settings[name]
            key = rng.choice(sorted(fields))
            shown = fields[key]
            text = rng.choice((word(rng), str(shown), json.dumps(value(rng))))
            if rng.random() < 0.3:
                text = damaged(rng, text.encode(errors="replace")).decode(
                    errors="replace"
                )
            key = key if rng.random() < 0.9 else word(rng)
            build(self.makers[name], {key: text})
        elif action == 1:
            settings = self.settings[name]
            for _ in range(rng.choice((1, 1, 2, 3))):
                settings = changed(rng, settings)
            if isinstance(settings, dict):
                agent = build(self.makers[name], json.loads(json.dumps(settings)))
                json.dumps(describe(agent))
        elif action == 2:
            self._attempt_run(rng, name)
        elif action == 3:
            plan = {"seed": 0, "turns": 100, "evaluations": 10, "planned": 0}
            for _ in range(rng.choice((1, 1, 2))):
                plan = changed(rng, plan)
            known = {f.name for f in dataclasses.fields(Run)}
            if isinstance(plan, dict) and {*plan} <= known:
                made = _run({"agent": name, "env": None, "steps": 1} | plan)
                assert made.iterations(Counters()) >= 1
                made.iterations(Counters(1, 1, 1))
                made.longer(rng.choice((0, 1e6, 3)))
                made.evaluates(0, made.steps)
        elif action == 4:
            text = rng.choice(_SKILLS)
            if rng.random() < 0.5:
                text = damaged(rng, text.encode()).decode(errors="replace")
            with_skills(self.env, text)
            prior_of(word(rng))
        else:
            stored = json.loads(json.dumps(Counters()._asdict()))
            Counters.from_json(stored)
            prior_of(
                f"{rng.choice(('one_hot', 'uniform', 'normal', word(rng)))}:{word(rng)[:20]}"
            )

    def _attempt_run(self, rng: Random, name: str):
        run = {
            "agent": name,
            "env": "point_mass",
            "steps": 100,
            "settings": dict(self.settings[name]),
            "options": rng.choice(_OPTIONS),
        }
        if rng.random() < 0.3:
            run["sweep"] = {"learning_rate": [1e-3, 1e-4]}
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            run = changed(rng, run)
        if isinstance(run, dict) and {*run} >= {"agent", "env", "steps"}:
            if {*run} <= {f.name for f in dataclasses.fields(Run)}:
                made = _run(run)
                made.environment()
                str(made)
                json.dumps([describe(made.members.agent(0)), made.members.labels()])


def _run(fields) -> Run:
    """A run; a wrong type is refused as a wrong value is, as where files are read."""
    try:
        return Run(**fields)
    except TypeError as error:
        raise ValueError(str(error)) from error
