"""A page in the browser that simulates robots and plays trajectories."""

from ._pages import export as export, Page as Page, show as show, Viewer as Viewer
from ._physics import (
    AbstractSlider as AbstractSlider,
    default_sliders as default_sliders,
    Scale as Scale,
    Value as Value,
)
from ._session import as_environment as as_environment
