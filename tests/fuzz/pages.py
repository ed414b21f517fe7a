"""Messages to the viewer: values of its controls."""

from random import Random
from types import SimpleNamespace

import jax.random as jr
import numpy as np

from eqsim import viewer
from eqsim.viewer._pages import start_server
from eqsim.viewer._panel import Panel
from eqsim.viewer._physics import default_sliders, Mode, Setup
from eqsim.viewer._session import Session

from .models import MODELS
from .mutations import value, word


class Kind:
    """Law: no value of a control stops the page or leaves a state that the page cannot
    show."""

    REFUSALS = ()
    WRITES = ()

    def __init__(self, folder):
        env = viewer.as_environment(_robot())
        labels = default_sliders(env.sys)
        self.sliders = tuple(labels.values())
        values = np.array([x.initial(env.sys) for x in self.sliders])
        self.session = Session(Setup(env, self.sliders), values, jr.key(0), 1)
        self.server = start_server(False)
        self.panel = Panel(
            self.server, self.session, labels, True, [0, 1], lambda k, on: None
        )
        handles = self.server.gui._gui_input_handle_from_uuid
        self.handles = list(handles.values())
        self.session.simulates = False

    def attempt(self, rng: Random):
        handle = rng.choice(self.handles)
        state = handle._impl
        before, refused = state.value, False
        new = rng.choice(
            (
                rng.gauss(0, 5),
                float("nan"),
                float("inf"),
                -1e308,
                10**400,
                True,
                word(rng),
            )
            + (
                value(rng),
                "Step",
                "Reset",
                "2x",
                "random",
                "policy",
                "first state",
                "home",
            )
        )
        try:
            new = tuple(new) if isinstance(before, tuple) else type(before)(new)
        except Exception:
            refused = True  # The server of the page refuses it.
        else:
            state.value = new
            event = SimpleNamespace(client_id=1, client=None, target=handle)
            for act in list(state.update_cb):
                act(event)
        self._check()
        return "the server of the page refuses it" if refused else None

    def _check(self):
        session, panel = self.session, self.panel
        panel.run_pending()
        assert session.simulates in (True, False)
        session.simulates = False  # Compiling belongs to other tests.
        session.tick(0.001)
        panel.refresh(1.0)
        assert np.isfinite(session.values).all() and np.isfinite(session.ctrl).all()
        for slider, number in zip(self.sliders, session.values, strict=True):
            assert slider.low <= number <= slider.high, (
                f"{number} is outside its slider"
            )
        assert isinstance(session.mode, Mode) and 0 < session.speed <= 4
        assert 0.1 <= panel.force_length <= 5.0 and panel.forces in (True, False)


def _robot():
    import eqsim

    return eqsim.load_mjcf(MODELS[0])
