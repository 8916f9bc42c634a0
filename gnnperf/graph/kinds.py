"""The kinds of nodes, edges, lanes and phases of an execution graph."""

from enum import IntEnum


class NodeKind(IntEnum):
    """What a node is."""

    HOST_OP = 0
    """The CPU side of an op (`aten::mm`, an autograd node, an annotation that is no step)."""
    RUNTIME = 1
    """A call of the device runtime or driver on a host thread (launch, copy, synchronize)."""
    KERNEL = 2
    """A device kernel that computes."""
    COPY = 3
    """A memcpy or memset on the device's timeline."""
    COLLECTIVE = 4
    """A device kernel that communicates with other ranks."""


DEVICE_KINDS = (NodeKind.KERNEL, NodeKind.COPY, NodeKind.COLLECTIVE)


class EdgeKind(IntEnum):
    """Why the destination of an edge cannot start before its source (has ended, or was issued)."""

    DATA = 0
    """The destination reads a tensor that the source wrote."""
    PROGRAM = 1
    """Order of one host thread."""
    LAUNCH = 2
    """From the runtime call to the device work that it enqueued."""
    STREAM = 3
    """Order of one stream."""
    EVENT_WAIT = 4
    """From device work to the first work of another stream that waits for it by an event."""
    HOST_SYNC = 5
    """From device work to the runtime call that blocks its thread until that work has ended."""
    RENDEZVOUS = 6
    """Between the parts of one collective (inside one graph; over ranks: see `Job`)."""
    THREAD = 7
    """From a host call to the first call of another host thread that it woke."""


class LaneKind(IntEnum):
    """What runs the nodes of a lane, one after the other."""

    THREAD = 0
    STREAM = 1


class Phase(IntEnum):
    """The phase of the training step that a node belongs to."""

    UNKNOWN = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    DATA = 4
    """Loading of the step's data, and its copies to the device."""
