"""A page in the browser that simulates robots and plays trajectories."""

from ._page import export as export, Page as Page
from ._sliders import (
    AbstractSlider as AbstractSlider,
    default_sliders as default_sliders,
    Scale as Scale,
    Value as Value,
)
from ._viewer import show as show, Viewer as Viewer
