"""The models of the default settings, opened by themselves."""

from contextlib import asynccontextmanager

from adapters.model_files import parse_model_name
from adapters.sentence_models import EmbedderOptions, open_embedder
from nexus_gateway.app import model_files
from nexus_gateway.settings import Settings


@asynccontextmanager
async def real_embedder():
    """The embedder that the gateway has unless configured."""
    settings = Settings()
    path = model_files(settings).locate(parse_model_name(settings.models.embedder_model))
    async with open_embedder(path, EmbedderOptions(threads=1)) as embedder:  # the machine may be busy
        yield embedder
