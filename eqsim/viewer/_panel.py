"""The controls of the viewer's page."""

import queue
from collections.abc import Callable
from typing import Any

import numpy as np

from ._physics import AbstractSlider, Mode
from ._scene import VISIBLE_GROUPS
from ._session import FreeRobot, Session


_SPEEDS = {"0.1x": 0.1, "0.25x": 0.25, "0.5x": 0.5, "1x": 1.0, "2x": 2.0, "4x": 4.0}
_FIRST = "first state"
_MODES = {"sliders": Mode.SLIDERS, "random": Mode.RANDOM, "policy": Mode.POLICY}
_STEPS = 200
_LENGTHS = 0.1, 5.0
"""Ends of the slider for the length of arrows."""


class Panel:
    """Buttons and sliders of a session.

    The page calls back in threads of its own. These calls wait in `pending` until the
    thread that runs the session executes them.

    **Arguments:**

    - `server`: a `viser.ViserServer`.
    - `session`: simulation or recording to control.
    - `sliders`: sliders over parameters, by label.
    - `forces`: true if contact forces are shown at first; None if there are none.
    - `groups`: groups of shapes.
    - `show_group`: function of a group and whether it is visible.
    """

    def __init__(
        self,
        server: Any,
        session: Session,
        sliders: dict[str, AbstractSlider],
        forces: bool | None,
        groups: list[int],
        show_group: Callable[[int, bool], None],
    ):
        self.pending: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._gui, self._session = server.gui, session
        self._is_task = not isinstance(session.setup.env, FreeRobot)
        self._status = self._gui.add_markdown("compiling ...")
        with self._gui.add_folder("Time"):
            self._add_time()
        if sliders:
            with self._gui.add_folder("Parameters"):
                self._add_parameters(sliders)
        with self._gui.add_folder("Actions", expand_by_default=self._has_actions()):
            self._add_actions()
        with self._gui.add_folder("View", expand_by_default=False):
            self._add_view(forces, groups, show_group)

    def run_pending(self) -> None:
        """Execute what the page has asked for, in the thread that runs the session."""
        while not self.pending.empty():
            self.pending.get()()

    @property
    def forces(self) -> bool:
        """True if contact forces are to be drawn."""
        return self._forces is not None and self._forces.value

    @property
    def force_length(self) -> float:
        """Factor of the length of arrows."""
        value = self._force_length.value
        return value if _between(*_LENGTHS)(value) else 1.0

    @property
    def follows(self) -> bool:
        """True if the camera moves with the robots."""
        return self.follow.value

    def refresh(self, rate: float) -> None:
        """Write the time and the rewards of the frame, and move the slider of time.

        **Arguments:**

        - `rate`: simulated seconds per second.
        """
        session = self._session
        now, last = session.frame, session.history[-1].time
        first = session.history[0].time
        self._time.max = max(last, first + session.dt)
        self._time.min = first
        self._time.value = float(np.clip(now.time, first, self._time.max))
        text = f"**{now.time:.2f} s**"
        if session.playing:
            text += f" · {rate:.2f}x real time"
        if self._is_task:
            reward = np.asarray(now.robots.timestep.reward, float)
            text += f" · reward {reward.mean():.3g}"
        self._status.content = text
        self._play.label = "Pause" if session.playing else "Play"

    def _add_time(self) -> None:
        session, gui = self._session, self._gui
        self._play = gui.add_button("Pause")
        self._play.on_click(lambda _: self._ask(self._toggle))
        command = gui.add_command("Play or pause", hotkey="space")
        command.on_trigger(lambda _: self._ask(self._toggle))
        row = gui.add_button_group("", ("Step", "Reset"))
        row.on_click(
            lambda event: self._ask(
                self._step if event.target.value == "Step" else self._reset
            )
        )
        end = max(session.history[-1].time, session.dt)
        self._time = gui.add_slider("time, s", 0.0, end, 0.001, 0.0)
        self._on_change(self._time, session.seek, _between(0.0, np.inf))
        speed = gui.add_dropdown("speed", tuple(_SPEEDS), initial_value="1x")
        set_speed = lambda name: setattr(session, "speed", _SPEEDS[name])
        self._on_change(speed, set_speed, _SPEEDS.__contains__)
        simulate = gui.add_checkbox(
            "simulate",
            session.simulates,
            hint="Continue the simulation from the current frame. Otherwise play back the "
            "simulated or recorded frames.",
        )
        set_simulates = lambda on: setattr(session, "simulates", on)
        self._on_change(simulate, set_simulates, _is_flag)
        if self._is_task:
            restart = gui.add_checkbox("restart when done", session.restarts)
            set_restarts = lambda on: setattr(session, "restarts", on)
            self._on_change(restart, set_restarts, _is_flag)
        names = (_FIRST, *session.setup.env.sys.keyframes.names)
        self._start = gui.add_dropdown("reset to", names, initial_value=_FIRST)

    def _add_parameters(self, sliders: dict[str, AbstractSlider]) -> None:
        session, handles = self._session, []
        for number, (label, slider) in enumerate(sliders.items()):
            value = float(session.values[number])
            handle = self._slider(label, slider.low, slider.high, value)
            act = lambda x, k=number: _put(session.values, k, x)
            self._on_change(handle, act, _between(slider.low, slider.high))
            handles.append(handle)

        def restore():
            session.values[:] = session.initial_values
            for handle, value in zip(handles, session.values):
                handle.value = float(value)

        button = self._gui.add_button("Original values")
        button.on_click(lambda _: self._ask(restore))

    def _add_actions(self) -> None:
        session, env = self._session, self._session.setup.env
        names = list(_MODES)[: 3 if session.setup.policy is not None else 2]
        initial = session.mode.name.lower()
        mode = self._gui.add_dropdown(
            "actions from", tuple(names), initial_value=initial
        )
        set_mode = lambda name: setattr(session, "mode", _MODES[name])
        self._on_change(mode, set_mode, names.__contains__)
        bounds = np.asarray(env.action_range, float)
        low = np.where(np.isfinite(bounds[:, 0]), bounds[:, 0], -1.0)
        high = np.where(np.isfinite(bounds[:, 1]), bounds[:, 1], 1.0)
        self._ctrl = []
        for number, name in enumerate(env.sys.actuators.ctrl_names):
            value = float(np.clip(0.0, low[number], high[number]))
            ends = float(low[number]), float(high[number])
            handle = self._slider(name, *ends, value)
            act = lambda x, k=number: _put(session.ctrl, k, x)
            self._on_change(handle, act, _between(*ends))
            session.ctrl[number] = value
            self._ctrl.append((handle, *ends))

        def center():
            session.ctrl[:] = [np.clip(0.0, low, high) for _, low, high in self._ctrl]
            self._show_ctrl()

        if self._ctrl:
            button = self._gui.add_button("Zero actions")
            button.on_click(lambda _: self._ask(center))

    def _add_view(self, forces: bool | None, groups: list[int], show_group) -> None:
        gui = self._gui
        self._forces = None
        if forces is not None:
            self._forces = gui.add_checkbox("contact forces", forces)
            self._on_change(self._forces, lambda _: None, _is_flag)
        self._force_length = gui.add_slider("force length", *_LENGTHS, 0.1, 1.0)
        self._on_change(self._force_length, lambda _: None, _between(*_LENGTHS))
        self.follow = gui.add_checkbox("follow robots", False)
        self._on_change(self.follow, lambda _: None, _is_flag)
        for group in groups if len(groups) > 1 else ():
            box = gui.add_checkbox(f"shapes of group {group}", group in VISIBLE_GROUPS)
            self._on_change(box, lambda on, k=group: show_group(k, on), _is_flag)

    def _slider(self, label: str, low: float, high: float, value: float) -> Any:
        return self._gui.add_slider(label, low, high, (high - low) / _STEPS, value)

    def _has_actions(self) -> bool:
        return 0 < self._session.setup.env.sys.nu <= 12

    def _on_change(
        self, handle: Any, act: Callable[[Any], None], offered: Callable[[Any], bool]
    ) -> None:
        """Act on what the page sets, and not on what the session sets.

        A message need not come from the page, and may hold any value: those that are not
        `offered` are ignored.
        """

        def changed(event):
            value = event.target.value
            if event.client_id is not None and offered(value):
                self._ask(lambda: act(value))

        handle.on_update(changed)

    def _ask(self, act: Callable[[], None]) -> None:
        self.pending.put(act)

    def _toggle(self) -> None:
        self._session.playing = not self._session.playing

    def _step(self) -> None:
        self._session.playing = False
        self._session.advance()

    def _reset(self) -> None:
        name, names = self._start.value, self._session.setup.env.sys.keyframes.names
        self._session.reset(name if name in names else None)
        self._show_ctrl()

    def _show_ctrl(self) -> None:
        """Move the sliders to the actions of the session."""
        for (handle, low, high), value in zip(self._ctrl, self._session.ctrl):
            handle.value = float(np.clip(value, low, high))


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _between(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, float | int) and low <= value <= high


def _put(values: np.ndarray, index: int, value: float) -> None:
    values[index] = value
