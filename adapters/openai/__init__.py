"""Argument generation on a server of somebody else's: any with the OpenAI-compatible chat API.

What lives where:

    skeleton.py   the answer so far and the schema of what is missing, as one schema of the whole answer
    spelling.py   the schema for servers whose grammar can't spell every literal
    forms.py      the ways to ask for JSON under a schema, and what an answer of each looks like
    api.py        one POST: deadline, retries, the cap on an answer, failures in words for people
    address.py    which URLs are talked to, and where the key comes from

`adapters/openai_engine.py` is the `ArgumentEngine` made of them. It knows nothing of tools, servers or turns.
"""
