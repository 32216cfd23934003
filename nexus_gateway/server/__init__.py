"""What the host sees: the meta-tools over stdio and streamable HTTP, in both protocol eras.

Below: the turn service. Here alone a host's protocol, its questions and its result shapes are known.
"""
