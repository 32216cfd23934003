"""Argument generation, and reranking, with llama.cpp: one model, one context, one worker, a token mask from a JSON schema.

What lives where:

    engine.py           the `ArgumentEngine`: asynchronous, one call at a time in a worker thread
    writer.py           the loop that writes one value and always ends within its budget
    token_mask.py       which tokens the schema allows next
    closing.py          the shortest way out of a half-written value
    decoding_schema.py  the schema as the mask uses it
    prompt.py           segments to tokens, and where batches are cut
    chat_format.py      the texts a chat template puts around messages
    likelihood.py       the `Reranker` on the same worker: how likely a request is, given a tool
    aside.py            how likely texts are, on a sequence beside the live one
    context.py          the key-value cache and the decode loop
    state_blob.py       a sequence's state as bytes: copied out, checked, put back
    facts.py            what must agree before a state is put back
    kinds.py            how a model remembers
    metadata.py         what the GGUF file says of its model
    model.py            the GGUF file: loading, identity, tokens
    library.py          the binding itself, imported lazily

It knows nothing of tools, servers or turns. The package is called as what it adapts; imports are absolute,
so `import llama_cpp` is always the binding.
"""
