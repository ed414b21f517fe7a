"""Physics engines: from one state to the next."""

from ._generalized import Contacts as Contacts, Generalized as Generalized
from ._pipeline import AbstractPipeline as AbstractPipeline
from ._positional import Positional as Positional
from ._spring import Spring as Spring
