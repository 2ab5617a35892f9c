"""A requester and a responder of RPC-over-RDMA versions 1 and 2, without input and output.

An ``Endpoint`` is one end of one connection: the client's, or the server's.  It is told what happened and answers with
what is to be done; it opens nothing, waits for nothing and has no clock, since nothing in the protocol depends on the
time.  A *driver* stands between it and an RDMA device, or the in-memory wire of ``rdmascope.captures.synth.wire``::

            call(), reply(), request()              Called, Answered, Failed, Settled, Changed
    application  --------------------->  Endpoint  --------------------->  application
         driver  --------------------->            --------------------->  driver
                 Connected, Received,               Register, Release, Read, Write, Send,
                 Registered, Released,              Disconnect
                 Completed, Disconnected

Every method returns a list of ``Output``, to be carried out in its order.  The driver's whole duty:

=======================  ==============================================================================================
before connecting        give ``endpoint.private_data`` to the connection manager (RDMA CM, or MPA), then tell
                         ``Connected`` with the private data of the peer
``Register``             make memory that the peer may read (or write), put ``data`` into it, tell ``Registered``
``Release``              take that memory back, tell ``Released`` with what is in it now; ``invalidated``: the peer's
                         Send With Invalidate has closed it already
``Read``                 RDMA Read from the peer's memory; tell ``Completed`` with the bytes, in any order
``Write``                RDMA Write into the peer's memory; nothing to tell, since Sends stay behind Writes
``Send``                 Send, or Send With Invalidate
``Disconnect``           end the connection
a Receive completes      tell ``Received`` with its bytes, and the handle that it invalidated
the connection ends      tell ``Disconnected``
=======================  ==============================================================================================

What the application does: ``call()`` on either end, forward on the client, backward on the server.  A ``Call`` is an
RPC message in parts, of which an ``Item`` may travel in a chunk of its own, with what its reply may measure; the
endpoint chooses chunks by the thresholds in force, unless ``Chunks`` says otherwise.  ``Called`` brings a call of the
peer, with all chunks put back, and is answered by ``reply()``.  ``service.serve`` is an application that answers.

Inside, one table each: ``negotiation`` the versions, ``characteristics`` what xcharext-02 changes while the
connection lasts; ``requester`` and ``responder`` the two halves of a direction (each end has one of each: a client its
forward requester and backward responder), ``header`` the headers, made of the Scapy layers and of nothing else.

The protocol is spoken by the book.  ``faults.FAULTS`` is the table of what an endpoint can be told to do wrong, once,
each row with the rule of the audit that it breaks; a ``Plan`` is a message at the moment where a fault can spoil it.

What the documents leave open, and what is done here:

* The first message of a version 2 client is ROPT_INITXCH, if it knows the extension, else its first call; a server
  that knows the extension answers with its own ROPT_INITXCH under the same XID, which settles the version.
* rdma_optdir: REQXCH is CALL and RESPXCH is REPLY; INITXCH and UPDXCH are CALL from the client, REPLY from the server.
* One call at a time until the first RPC reply, whatever else was answered before.
* Version 2 takes its thresholds from version-two-01 and Receive Buffer Size, version 1 from RFC 8797 private data.
"""

from .endpoint import Endpoint
from .header import encode_header
from .nouns import (
    Answered,
    Call,
    Called,
    Changed,
    Chunks,
    Completed,
    Connected,
    Disconnect,
    Disconnected,
    Event,
    Failed,
    Output,
    Read,
    Received,
    Register,
    Registered,
    Release,
    Released,
    Role,
    Send,
    Settings,
    Settled,
    Write,
)
from .payload import Item, Parts, whole

__all__ = [
    "Answered",
    "Call",
    "Called",
    "Changed",
    "Chunks",
    "Completed",
    "Connected",
    "Disconnect",
    "Disconnected",
    "Endpoint",
    "Event",
    "Failed",
    "Item",
    "Output",
    "Parts",
    "Read",
    "Received",
    "Register",
    "Registered",
    "Release",
    "Released",
    "Role",
    "Send",
    "Settings",
    "Settled",
    "Write",
    "encode_header",
    "whole",
]
