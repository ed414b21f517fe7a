"""A page in the browser that simulates robots and plays trajectories."""

from ._page import export as export, Page as Page
from ._show import show as show
from ._sliders import (
    AbstractSlider as AbstractSlider,
    default_sliders as default_sliders,
    Scale as Scale,
    Value as Value,
)
from ._trajectories import as_environment as as_environment
from ._viewer import Viewer as Viewer
