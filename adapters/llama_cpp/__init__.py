"""Argument generation, and reranking, with llama.cpp: one model, one context, a token mask from a JSON schema.

What lives where:

    engine.py           the `StatefulEngine`: asynchronous, each call in a worker thread of its own
    desk.py             who calls the engine, and when nobody does
    completing.py       one completion: its prompt, from state where there is some, and the value after it
    writer.py           the loop that writes one value and always ends within its budget
    token_mask.py       which tokens the schema allows next
    closing.py          the shortest way out of a half-written value
    decoding_schema.py  the schema as the mask uses it
    prompt.py           segments to tokens, and where batches are cut
    chat_format.py      the texts a chat template puts around messages
    likelihood.py       the `Reranker` on the same engine: how likely a request is, given a tool
    aside.py            how likely texts are, on a sequence that is gone afterwards
    context.py          the decode loop, batch by batch in turn, and who waits for room
    sequences.py        which sequence has which chunks, and what goes when room is short
    live_sequence.py    one of these
    cells.py            accounts of the cells, and the order that they have to keep
    memory.py           llama.cpp's calls on sequences
    cache_types.py      the types of keys and values
    ticket_lock.py      a lock in the order of asking
    state_blob.py       a sequence's state as bytes: copied out, checked, put back
    facts.py            what must agree before a state is put back
    kinds.py            how a model remembers
    metadata.py         what the GGUF file says of its model
    model.py            the GGUF file: loading, identity, tokens
    library.py          the binding itself, imported lazily

It knows nothing of tools, servers or turns. The package is called as what it adapts; imports are absolute,
so `import llama_cpp` is always the binding.
"""
