"""The first layers in bands of rows, band i on device i."""

from __future__ import annotations

from partition.strategies.tiles import Tiles
from tests.partition.rewriting_contract import RewritingContract


class TestTiles(RewritingContract):
    strategy = Tiles()
