"""Recurrent networks, and policies with memory."""

from ._networks import GRU as GRU, RecurrentNetwork as RecurrentNetwork
from ._policies import (
    ActorMemory as ActorMemory,
    Inputs as Inputs,
    RecurrentActor as RecurrentActor,
    RecurrentActorCritic as RecurrentActorCritic,
    Sequence as Sequence,
    sequences as sequences,
)
