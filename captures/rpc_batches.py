"""Tables of RPCs with what they did with which files: the noun of the tables of RPCs, batch after batch."""

from __future__ import annotations

from rdmascope.dissect.measure.files import FileTable
from rdmascope.dissect.records.rpc_columns import RpcBatch
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from .session import Session


class RpcBatches:
    """Give it every table of a capture, in order."""

    def __init__(self, names_files: bool, names_paths: bool, session: Session) -> None:
        """``names_files``, ``names_paths``: such columns are wanted, which takes the contents of messages."""
        self.names_files, self.names_paths = names_files, names_paths
        self.file_table = FileTable()
        self._learner = session.path_learner()
        self._ended = 0

    def batch(self, table: RpcTable) -> RpcBatch:
        """The RPCs that ended in a batch."""
        used = []
        if self.names_files:
            for rpc in table:
                self.file_table.add(rpc)
                used.append(self.file_table.used)
        before, self._ended = self._ended, self._ended + len(table)
        return RpcBatch(table, before, used, self._learner.reader, self._learner if self.names_paths else None)
