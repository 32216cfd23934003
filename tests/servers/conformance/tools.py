"""The tools that the conformance suite calls by name. A handler takes a `Call` and gives a raw result."""

import json

import anyio
from mcp.server.subscriptions import PromptsListChanged, ResourceUpdated, ToolsListChanged

from conformance.calls import ROOTS, form, missing_capability, sampling, text_result
from conformance.world import PNG, WATCHED, WAV, world

STRING = {"type": "string"}
TOOLS = {}
"""Definition and handler by name, in the order in which they are listed."""

PAUSE_SECONDS = 0.05

CHOICES = ("option1", "option2", "option3")
TITLED = [
    {"const": f"value{n}", "title": f"{word} Option"}
    for n, word in enumerate(("First", "Second", "Third"), 1)
]
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
ENUMS = {
    "untitledSingle": {"type": "string", "enum": list(CHOICES)},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": list(CHOICES)}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": STRING, "city": STRING},
        }
    },
    "properties": {
        "name": STRING,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": STRING,
        "email": STRING,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def tool(name, description, schema=None, /, **properties):
    """Register a handler; properties are required arguments unless a whole schema is given."""
    if schema is None:
        schema = {"type": "object", "properties": properties, "required": list(properties)}

    def register(handler):
        TOOLS[name] = ({"name": name, "description": description, "inputSchema": schema}, handler)
        return handler

    return register


def resource_block(uri, mime, text):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": text}}


@tool("test_simple_text", "Returns one text.")
async def simple_text(_call):
    return text_result("This is a simple text response for testing.")


@tool("test_image_content", "Returns one image.")
async def image_content(_call):
    return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}


@tool("test_audio_content", "Returns one sound.")
async def audio_content(_call):
    return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}


@tool("test_embedded_resource", "Returns one embedded resource.")
async def embedded_resource(_call):
    text = "This is an embedded resource content."
    return {"content": [resource_block("test://embedded-resource", "text/plain", text)]}


@tool("test_multiple_content_types", "Returns a text, an image and a resource.")
async def multiple_content_types(_call):
    blocks = (
        {"type": "text", "text": "Multiple content types test:"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        resource_block("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    )
    return {"content": list(blocks)}


@tool("test_tool_with_logging", "Logs three times while it runs.")
async def with_logging(call):
    await call.log("Tool execution started")
    await anyio.sleep(PAUSE_SECONDS)
    await call.log("Tool processing data")
    await anyio.sleep(PAUSE_SECONDS)
    await call.log("Tool execution completed")
    return text_result("Tool with logging executed successfully")


@tool("test_logging_tool", "Logs once: a modern host hears it only where it asked for a level.")
async def logging_tool(call):
    await call.log("Not to be heard unless asked for")
    return text_result("logged")


@tool("test_error_handling", "Always fails.")
async def error_handling(_call):
    return text_result("This tool intentionally returns an error for testing", isError=True)


@tool("test_tool_with_progress", "Tells of its progress three times.")
async def with_progress(call):
    for done in (0, 50, 100):
        await call.progress(done, 100, f"Completed step {done} of 100")
        await anyio.sleep(PAUSE_SECONDS)
    return text_result("Tool with progress executed successfully")


@tool("test_sampling", "Asks the host's model.", prompt=STRING)
async def sampled(call):
    if "sampling" not in call.capabilities:
        return text_result("The host can't sample", isError=True)
    answers = await call.ask({"answer": sampling(call.arguments.get("prompt", ""), 100)})
    return text_result(f"LLM response: {answers['answer']['content']['text']}")


async def elicited(call, said, question):
    if "elicitation" not in call.capabilities:
        return text_result("The host can't ask its user", isError=True)
    answer = (await call.ask({"answer": question}))["answer"]
    content = json.dumps(answer.get("content", {}))
    return text_result(f"{said}: action={answer['action']}, content={content}")


@tool("test_elicitation", "Asks the user for a name and an address.", message=STRING)
async def elicitation(call):
    username = {"type": "string", "description": "User's response"}
    email = {"type": "string", "description": "User's email address"}
    question = form(call.arguments.get("message", ""), username=username, email=email)
    return await elicited(call, "User response", question)


@tool("test_elicitation_sep1034_defaults", "Asks with a default for each primitive type.")
async def elicitation_defaults(call):
    return await elicited(call, "Elicitation completed", form("Please review", **DEFAULTS))


@tool("test_elicitation_sep1330_enums", "Asks with each kind of enum.")
async def elicitation_enums(call):
    return await elicited(call, "Elicitation completed", form("Please choose", **ENUMS))


@tool("test_reconnection", "Closes its response stream before it answers, where it can.")
async def reconnection(call):
    if call.ctx.close_sse_stream is not None:
        await call.ctx.close_sse_stream()
        await anyio.sleep(PAUSE_SECONDS)
    return text_result("Reconnection test completed successfully")


@tool("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", SCHEMA_2020_12)
async def schema_2020_12(call):
    return text_result(json.dumps(call.arguments))


_REGION = {"type": "string", "x-mcp-header": "Region"}


@tool("test_header_parameter", "Takes an argument that goes into a header as well.", region=_REGION)
async def header_parameter(call):
    return text_result(f"region={call.arguments.get('region')}")


@tool("test_missing_capability", "Needs a host that samples.")
async def needs_sampling(call):
    call.require("sampling")
    return text_result("The host can sample")


@tool("test_streaming_elicitation", "Tells of progress, then asks: never by a request of its own.")
async def streaming_elicitation(call):
    await call.progress(1, 2, "about to ask")
    answers = await call.ask({"go": form("Go on?", ok={"type": "boolean"})})
    return text_result(f"answered: {answers['go']['action']}")


@tool("test_trigger_tool_change", "Adds a tool to the list, or takes it away again.")
async def trigger_tool_change(call):
    world.extra_tool = not world.extra_tool
    await announce(call, ToolsListChanged(), call.ctx.session.send_tool_list_changed)
    return text_result(f"extra tool: {world.extra_tool}")


@tool("test_trigger_prompt_change", "Adds a prompt to the list, or takes it away again.")
async def trigger_prompt_change(call):
    world.extra_prompt = not world.extra_prompt
    await announce(call, PromptsListChanged(), call.ctx.session.send_prompt_list_changed)
    return text_result(f"extra prompt: {world.extra_prompt}")


@tool("test_trigger_resource_update", "Tells those who watch the watched resource.")
async def trigger_resource_update(call):
    async def tell():
        if WATCHED in world.watched:
            await call.ctx.session.send_resource_updated(WATCHED)

    await announce(call, ResourceUpdated(uri=WATCHED), tell)
    return text_result("updated")


async def announce(call, event, tell_legacy):
    if call.modern:
        await world.bus.publish(event)
    else:
        await tell_legacy()


@tool("test_input_required_result_elicitation", "Asks the user's name.")
async def input_elicitation(call):
    answer = (await call.ask({"user_name": form("What is your name?", name=STRING)}))["user_name"]
    return text_result(f"Hello, {answer['content']['name']}!")


@tool("test_input_required_result_sampling", "Asks the host's model for a capital.")
async def input_sampling(call):
    answers = await call.ask({"capital_question": sampling("What is the capital of France?", 100)})
    return text_result(answers["capital_question"]["content"]["text"])


@tool("test_input_required_result_list_roots", "Asks for the host's roots.")
async def input_list_roots(call):
    roots = (await call.ask({"client_roots": ROOTS}))["client_roots"]["roots"]
    return text_result(f"roots: {', '.join(root['uri'] for root in roots)}")


CONFIRM = {"confirm": form("Please confirm", ok={"type": "boolean"})}


@tool("test_input_required_result_request_state", "Asks with a state that has to come back.")
async def input_request_state(call):
    call.state()
    await call.ask(CONFIRM, state="confirming")
    return text_result("state-ok")


@tool("test_input_required_result_tampered_state", "Refuses a state that is not its own.")
async def input_tampered_state(call):
    call.state()
    await call.ask(CONFIRM, state="signed")
    return text_result("the state was mine")


@tool("test_input_required_result_multiple_inputs", "Asks three things of three kinds at once.")
async def input_multiple(call):
    call.state()
    questions = {
        "user_name": form("What is your name?", name=STRING),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": ROOTS,
    }
    await call.ask(questions, state="three questions")
    return text_result("all three answered")


@tool("test_input_required_result_multi_round", "Asks twice.")
async def input_multi_round(call):
    if call.state() != "two":
        await call.ask({"step1": form("Step 1: What is your name?", name=STRING)}, state="one")
    step = await call.ask({"step2": form("Step 2: What is your favorite color?", color=STRING)}, state="two")
    return text_result(f"color: {step['step2']['content']['color']}")


@tool("test_input_required_result_capabilities", "Asks only what the host can answer.")
async def input_capabilities(call):
    all_questions = {
        "user_name": form("What is your name?", name=STRING),
        "greeting": sampling("Generate a greeting", 50),
    }
    questions = {key: question for key, question in all_questions.items() if call.can_answer(question)}
    if not questions:
        raise missing_capability({"sampling": {}})
    await call.ask(questions)
    return text_result(f"answered: {', '.join(sorted(questions))}")
