"""Tables of RPCs with what they did with which files: the noun of the tables of RPCs, batch after batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.records.rpc_columns import RpcBatch
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

if TYPE_CHECKING:
    from rdmascope.dissect.measure.file_names import PathLearner
    from rdmascope.dissect.measure.files import FileTable  # Many tables do without.


class RpcSource(Protocol):
    """Where RPCs come from."""

    @property
    def first_time(self) -> int:
        """Nanoseconds; of the first frame, 0 before there is one."""

    @property
    def path(self) -> str:
        """What it is called."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Of the files; '' for none."""

    def path_learner(self) -> PathLearner:
        """Learns the paths of files from RPCs."""


class RpcBatches:
    """Give it every table of a capture, in order."""

    def __init__(
        self,
        names_files: bool,
        names_paths: bool,
        session: RpcSource,
        counts: Callable[[RpcTable], NDArray[np.bool_]] | None = None,
    ) -> None:
        """``names_files``, ``names_paths``: such columns are wanted, which takes the contents of messages.

        ``counts``: which RPCs of a table are counted in ``file_table``; all by default.
        """
        self.names_files, self.names_paths = names_files, names_paths
        self._session = session
        self._ended = 0
        self._counts = counts

    @cached_property
    def _learner(self) -> PathLearner:
        return self._session.path_learner()

    @cached_property
    def file_table(self) -> FileTable:
        """The files that RPCs used, where such columns are wanted."""
        from rdmascope.dissect.measure.files import FileTable

        return FileTable(self._learner.mounts)

    def batch(self, table: RpcTable) -> RpcBatch:
        """The RPCs that ended in a batch."""
        used = []
        if self.names_files:
            counts = None if self._counts is None else self._counts(table).tolist()
            for _ in self.file_table.add_table(table, counts):
                used.append(self.file_table.used)
        before, self._ended = self._ended, self._ended + len(table)
        learner = self._learner if self.names_paths else None
        return RpcBatch(table, before, used, lambda: self._learner.reader, learner)
