"""Reading of URDF, ROS's file format, by MuJoCo's compiler.

What MuJoCo would drop or misread is handled before, in the XML (`_description`): mesh files,
which `_mesh_files` finds and converts, fixed links, visual shapes and inertias. What a URDF
does not have is added after, in the `mujoco.MjSpec` (`_load_urdf`): a floating base, a
ground plane and actuators.
"""

from ._load_urdf import load_urdf as load_urdf, Motors as Motors, Servos as Servos
