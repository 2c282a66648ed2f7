"""The dashboards, one a file, in the order in which one looks at them."""

from observability.boards import degradation, embedding_server, overview, recall, wires

ALL = (overview.BOARD, degradation.BOARD, recall.BOARD, embedding_server.BOARD, wires.BOARD)
