"""A requester and a responder of RPC-over-RDMA versions 1 and 2, without input and output.

An ``RpcRdmaEndpoint`` is one end of one connection: the client's, or the server's.  It is given events and returns
actions; it opens nothing, waits for nothing and has no clock, since nothing in the protocol depends on the time.  A
*driver* stands between it and an RDMA device, or the in-memory network of ``rdmascope.captures.peer.wire``::

            call(), reply(), request()              Called, Answered, Failed, Settled, Changed
    application  --------------------->  endpoint  --------------------->  application
         driver  --------------------->            --------------------->  driver
             Connected, SendReceived,              Register, Release, RdmaRead, RdmaWrite,
                Registered, Released,              Send, Disconnect
           Completed, ConnectionEnded

Every method returns a list of ``Output``, to be carried out in its order.  The driver's whole duty:

=======================  ==============================================================================================
before connecting        pass ``endpoint.private_data`` to the connection manager (RDMA CM, or MPA), then give
                         ``Connected`` with the private data of the peer
``Register``             register memory that the peer may read (or write), put ``data`` into it, give ``Registered``
``Release``              deregister that memory, give ``Released`` with its contents; ``invalidated``: the peer's
                         Send With Invalidate has closed it already
``RdmaRead``             RDMA Read from the peer's memory; give ``Completed`` with the bytes, in any order
``RdmaWrite``            RDMA Write into the peer's memory; no event follows, since Sends stay behind Writes
``Send``                 Send, or Send With Invalidate
``Disconnect``           end the connection
a Receive completes      give ``SendReceived`` with its bytes, and the handle that it invalidated
the connection ends      give ``ConnectionEnded``
=======================  ==============================================================================================

What the application does: ``call()`` on either end, forward on the client, backward on the server.  A ``Call`` is an
RPC message in parts, of which a ``DdpItem`` may travel in a chunk of its own, with what its reply may measure; the
endpoint chooses chunks by the thresholds in force, unless ``Chunks`` says otherwise.  ``Called`` brings a call of the
peer, with all chunks put back, and is answered by ``reply()``.  ``service.serve`` is an application that answers.

Inside, one table each: ``negotiation`` the versions, ``characteristics`` what xcharext-02 changes while the
connection lasts; ``requester`` and ``responder`` the two halves of a direction (each end has one of each: a client its
forward requester and backward responder), ``header`` the headers, made of the Scapy layers and of nothing else.

An endpoint follows the documents.  ``faults.FAULTS`` is the table of what an endpoint can be set to do wrong, once,
each row with the rule of the audit that it breaks; a ``PlannedSend`` is a message just before it is sent, where a fault
can change it.

What the documents leave open, and what is done here:

* The first message of a version 2 client is ROPT_INITXCH, if it knows the extension, else its first call; a server
  that knows the extension answers with its own ROPT_INITXCH under the same XID, which settles the version.
* rdma_optdir: REQXCH is CALL and RESPXCH is REPLY; INITXCH and UPDXCH are CALL from the client, REPLY from the server.
* One call at a time until the first RPC reply, whatever else was answered before.
* Version 2 takes its thresholds from version-two-01 and Receive Buffer Size, version 1 from RFC 8797 private data.
"""

from ..rpc import DdpItem, Parts, whole
from .endpoint import RpcRdmaEndpoint
from .nouns import (
    Answered,
    Call,
    Called,
    Changed,
    Chunks,
    Completed,
    Connected,
    ConnectionEnded,
    Disconnect,
    EndpointSettings,
    Event,
    Failed,
    Output,
    RdmaRead,
    RdmaWrite,
    Register,
    Registered,
    Release,
    Released,
    Role,
    Send,
    SendReceived,
    Settled,
    encode_header,
)

__all__ = [
    "Answered",
    "Call",
    "Called",
    "Changed",
    "Chunks",
    "Completed",
    "Connected",
    "ConnectionEnded",
    "DdpItem",
    "Disconnect",
    "EndpointSettings",
    "Event",
    "Failed",
    "Output",
    "Parts",
    "RdmaRead",
    "RdmaWrite",
    "Register",
    "Registered",
    "Release",
    "Released",
    "Role",
    "RpcRdmaEndpoint",
    "Send",
    "SendReceived",
    "Settled",
    "encode_header",
    "whole",
]
