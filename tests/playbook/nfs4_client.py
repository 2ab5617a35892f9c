"""An NFSv4.1 client and its server on a wire: sessions, slots, opens, callbacks (RFC 8881)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import nfs4
from .nfs4 import FH, SESSION, Op
from .rpc import Call
from .rpcrdma import Exchange, call, reply
from .wire import Connection
from .xdr_encode import callback_op, done, op

CLIENT_ID = 0x1122334455667788
OWNER = {"co_verifier": b"verifier", "co_ownerid": b"client.example"}


def stateid(number: int, seqid: int = 1) -> dict[str, Any]:
    return {"seqid": seqid, "other": number.to_bytes(12, "big")}


@dataclass(slots=True)
class Client:
    """Counts the sequence IDs of its slots."""

    connection: Connection
    session: bytes = SESSION
    minor: int = 1
    sequences: dict[int, int] = field(default_factory=dict)

    def alone(self, asked: Op, answered: Op) -> None:
        """A COMPOUND of one operation, without a session."""
        reply(call(self.connection, nfs4.compound(asked, minor=self.minor)), nfs4.compound_reply(answered))

    def exchange_id(self, client: int = CLIENT_ID, flags: int = 0x20000, **owner: bytes) -> None:
        self.alone(
            op("EXCHANGE_ID", eia_clientowner={**OWNER, **owner}, eia_client_impl_id=[{"nii_name": b"Linux 6.1"}]),
            done("EXCHANGE_ID", eir_clientid=client, eir_flags=flags),
        )

    def create_session(self, client: int = CLIENT_ID, slots: int = 4) -> None:
        channel = {"ca_maxrequestsize": 65536, "ca_maxresponsesize": 65536, "ca_maxoperations": 8}
        fore, back = {**channel, "ca_maxrequests": slots}, {**channel, "ca_maxrequests": 2}
        self.alone(
            op("CREATE_SESSION", csa_clientid=client, csa_flags=2, csa_fore_chan_attrs=fore, csa_back_chan_attrs=back),
            done(
                "CREATE_SESSION",
                csr_sessionid=self.session,
                csr_flags=2,
                csr_fore_chan_attrs=fore,
                csr_back_chan_attrs=back,
            ),
        )

    def begin(self) -> None:
        """As a mount does."""
        self.exchange_id()
        self.create_session()
        self.ask(op("RECLAIM_COMPLETE"), done("RECLAIM_COMPLETE"))

    def sent(self, *ops: Op, slot: int = 0, sequence: int | None = None, cached: bool = False, **how: Any) -> Exchange:
        """A call on a slot, with its next sequence ID unless another is given."""
        number = self.sequences.get(slot, 0) + 1 if sequence is None else sequence
        self.sequences[slot] = number
        first = op(
            "SEQUENCE", sa_sessionid=self.session, sa_sequenceid=number, sa_slotid=slot, sa_cachethis=int(cached)
        )
        connection = how.pop("connection", self.connection)
        return call(connection, nfs4.compound(first, *ops, minor=self.minor), **how)

    def answered(self, exchange: Exchange, *ops: Op, slot: int = 0, target: int = 3, flags: int = 0) -> None:
        first = done(
            "SEQUENCE",
            sr_sessionid=self.session,
            sr_sequenceid=self.sequences[slot],
            sr_slotid=slot,
            sr_highest_slotid=target,
            sr_target_highest_slotid=target,
            sr_status_flags=flags,
        )
        reply(exchange, nfs4.compound_reply(first, *ops))

    def refused(self, exchange: Exchange, status: int) -> None:
        """SEQUENCE itself fails."""
        reply(exchange, nfs4.compound_reply(done("SEQUENCE", status)))

    def ask(self, asked: Op, answered: Op, slot: int = 0, **how: Any) -> None:
        """An operation on a file, and its result."""
        self.answered(self.sent(nfs4.putfh(), asked, slot=slot, **how), nfs4.putfh_done(), answered, slot=slot)

    def open(self, number: int, delegation: int | None = None, claim: int = 4, handle: bytes = FH) -> None:
        granted: dict[str, Any] = {"delegation_type": 0}
        if delegation is not None:
            granted = {"delegation_type": 1, "stateid": stateid(delegation)}
        exchange = self.sent(
            nfs4.putfh(handle),
            op("OPEN", share_access=1, owner={"owner": b"open owner"}, claim={"claim": claim}),
            op("GETFH"),
        )
        opened = done("OPEN", stateid=stateid(number), delegation=granted)
        self.answered(exchange, nfs4.putfh_done(), opened, done("GETFH", object=handle))

    def close(self, number: int) -> None:
        self.ask(op("CLOSE", open_stateid=stateid(number)), done("CLOSE", open_stateid=stateid(number, 2)))

    def give_back(self, delegation: int) -> None:
        self.ask(op("DELEGRETURN", deleg_stateid=stateid(delegation)), done("DELEGRETURN"))

    def called_back(self, *ops: Op, sequence: int = 1) -> Exchange:
        first = callback_op("CB_SEQUENCE", csa_sessionid=self.session, csa_sequenceid=sequence)
        return call(self.connection, callback(first, *ops), backward=True)

    def recall(self, delegation: int, handle: bytes = FH, sequence: int = 1) -> None:
        exchange = self.called_back(callback_op("CB_RECALL", stateid=stateid(delegation), fh=handle), sequence=sequence)
        reply(exchange, nfs4.compound_reply(nfs4.Op(11, nfs4.cb_sequence_done(sequence).parts), nfs4.cb_recall_done()))


def callback(*ops: Op) -> Call:
    return nfs4.callback(*ops)
