"""Makes tools and indexes for tests of what works on them."""

from adapters.embedder_double import HashingEmbedder
from tool_registry.catalog import ToolCatalog, read_listing
from tool_registry.index import build_index, compile_tool
from tool_registry.tool import tool_from_definition

STRING = {"type": "string"}
READS = {"readOnlyHint": True}
ADDS = {"readOnlyHint": False, "destructiveHint": False}
DESTROYS = {"readOnlyHint": False, "destructiveHint": True}


def definition(name, description="", properties=None, required=(), **more):
    schema = {"type": "object", "properties": properties or {}, "required": list(required)}
    return {"name": name, "description": description, "inputSchema": schema, **more}


def compiled(server, *args, **more):
    return compile_tool(tool_from_definition(server, definition(*args, **more)))


def catalog_of(**servers):
    catalog = ToolCatalog()
    for server, definitions in servers.items():
        catalog = catalog.with_server(server, read_listing(server, definitions))
    return catalog


async def index_of(catalog, embedder=None):
    tools = [compile_tool(tool) for tool in catalog]
    rows = await (embedder or HashingEmbedder()).embed_tools([tool.text for tool in tools])
    return build_index(catalog.epoch, tools, [row[None] for row in rows])
