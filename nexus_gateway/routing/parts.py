"""What a router is made of, opened: for whoever measures routing or makes routers of his own."""

from collections.abc import Sequence
from dataclasses import dataclass

from adapters.ports import Embedder, ModelMissing, Reranker
from nexus_gateway.routing.router import Router
from tool_registry.routing import Gate


@dataclass(frozen=True, slots=True)
class RouterParts:
    """Loaded models, the gate, and what else a router is told.

    Attributes:
        reranker: None where nothing is reranked.
        prefer: servers whose tool is taken where several have the same one.
    """

    embedder: Embedder
    gate: Gate
    reranker: Reranker | None = None
    prefer: Sequence[str] = ()

    async def load_embedder(self) -> Embedder:
        """The embedder, as a router asks for it."""
        return self.embedder

    async def load_reranker(self) -> Reranker:
        """The reranker, as a router asks for it. Raises ModelMissing where there is none."""
        if self.reranker is None:
            raise ModelMissing("there is no reranker")
        return self.reranker

    def router(self) -> Router:
        """The router that the gateway would make of them."""
        reranker = None if self.reranker is None else self.load_reranker
        return Router(self.load_embedder, self.gate, reranker=reranker, prefer=self.prefer)
