"""Tables of RPCs with what they did with which files: the noun of the tables of RPCs, batch after batch."""

from __future__ import annotations

from rdmascope.dissect.measure.files import FileTable
from rdmascope.dissect.records.rpc_columns import RpcBatch
from rdmascope.dissect.rpcrdma.rpc_fields import FieldReader
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable


class RpcBatches:
    """Give it every table of a capture, in order."""

    def __init__(self, names_files: bool, fields: FieldReader | None = None) -> None:
        """``names_files``: columns about files are wanted, which takes the contents of messages."""
        self.names_files = names_files
        self.file_table = FileTable()
        self._fields = fields or FieldReader()
        self._ended = 0

    def batch(self, table: RpcTable) -> RpcBatch:
        """The RPCs that ended in a batch."""
        used, paths = [], []
        if self.names_files:
            for rpc in table:
                self.file_table.add(rpc)
                used.append(self.file_table.used)
                paths.append(self.file_table.path_of(rpc, self._fields.fields(rpc)))
        before, self._ended = self._ended, self._ended + len(table)
        return RpcBatch(table, before, used, paths, self._fields)
