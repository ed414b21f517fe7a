"""A page in the browser that simulates robots and plays trajectories.

Files in reading order: `_physics` (sliders over parameters, and the compiled functions that
take their values), `_session` (history and playback), `_triangles` (surfaces and poses of
shapes), `_scene` (what the page shows), `_panel` (its buttons and sliders), and `_pages`
(`launch` and `export`, which put these together). The page is that of viser, an optional
package that is imported on first use. It is served to this machine only. The command line
imports this package; no other part of eqsim does.
"""

from ._pages import export as export, launch as launch, Page as Page, Viewer as Viewer
from ._physics import (
    AbstractSlider as AbstractSlider,
    default_sliders as default_sliders,
    ScaleSlider as ScaleSlider,
    ValueSlider as ValueSlider,
)
from ._session import as_environment as as_environment
