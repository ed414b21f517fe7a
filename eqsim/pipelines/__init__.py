"""Physics engines: from one state to the next."""

from ._generalized import Contacts as Contacts, Generalized as Generalized
from ._pipeline import AbstractPipeline as AbstractPipeline
